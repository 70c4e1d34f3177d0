// What every scenario of one TypeScript SDK shares: the SDK, its dialect, the server and the witness.

import { deepEqual, equal, ok } from "node:assert/strict";
import { type Answer, decode, type PromiseRecord, type PromiseState, Protocol } from "../harness/protocol.ts";
import type { Cleanup } from "../harness/scenarios.ts";
import type { Server } from "../harness/server.ts";
import { listenToAnswers, Witness } from "../harness/witness.ts";

export type Sdk = typeof import("resonate-0-11-5");
export type AsyncSdk = typeof import("resonate-0-11-5/async");
export type Resonate = InstanceType<Sdk["Resonate"]>;

/** How a release of the SDK builds ids, and what else tells it from the others. */
export interface Dialect {
  version: string;
  child: (id: string, n: number) => string;
  detached: (root: string) => RegExp;
  scheduled: (schedule: string) => RegExp;
  /** The origin tag of a detached promise, given the root's id and its own. */
  detachedOrigin: (root: string, own: string) => string;
  /** Whether the SDK renews the lease of a task that it started by `run`. */
  runRenewsItsLease: boolean;
  /** Whether its sleeps carry a target. */
  sleepHasTarget: boolean;
  /** Whether it knows RESONATE_PREFIX. */
  hasPrefix: boolean;
}

function quoted(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

export const dialects: Record<string, Dialect> = {
  "0.11.4": {
    version: "0.11.4",
    child: (id, n) => `${id}.${n}`,
    detached: (root) => new RegExp(`^${quoted(root)}\\.d[0-9a-f]{14}$`),
    scheduled: (schedule) => new RegExp(`^${quoted(schedule)}\\.(\\d+)$`),
    detachedOrigin: (_root, own) => own,
    runRenewsItsLease: true,
    sleepHasTarget: false,
    hasPrefix: true,
  },
  "0.11.5": {
    version: "0.11.5",
    child: (id, n) => (id.includes(":") ? `${id}.${n}` : `${id}:${n}`),
    detached: (root) => new RegExp(`^${quoted(root)}:d[0-9a-f]{14}$`),
    scheduled: (schedule) => new RegExp(`^${quoted(schedule)}-(\\d+)$`),
    detachedOrigin: (root) => root,
    runRenewsItsLease: false,
    sleepHasTarget: true,
    hasPrefix: false,
  },
};

export interface Connection {
  group?: string;
  ttl?: number;
  url?: string;
}

/** One expected promise: its state, and its kind where that is not the usual one of its state. */
export type Expected = PromiseState | { state: PromiseState; scope?: "local" | "global"; timer?: boolean; task?: boolean };

export class Stage {
  readonly sdk: Sdk;
  readonly asyncSdk: AsyncSdk;
  readonly dialect: Dialect;
  readonly server: Server;
  readonly protocol: Protocol;
  readonly witness = new Witness();
  /** How many requests of each kind this process sent and got an answer to. */
  readonly answered = new Map<string, number>();
  private names = 0;

  private constructor(sdk: Sdk, asyncSdk: AsyncSdk, dialect: Dialect, server: Server) {
    this.sdk = sdk;
    this.asyncSdk = asyncSdk;
    this.dialect = dialect;
    this.server = server;
    this.protocol = new Protocol(server.url);
    listenToAnswers(server.url, (kind, status, data) => {
      this.answered.set(kind, (this.answered.get(kind) ?? 0) + 1);
      this.witness.seeAnswer(kind, status, data);
    });
  }

  static async open(version: string, server: Server): Promise<Stage> {
    const dialect = dialects[version];
    if (!dialect) throw new Error(`no dialect is known for SDK ${version}: add it to stage.ts`);
    const name = `resonate-${version.replaceAll(".", "-")}`;
    return new Stage(await import(name), await import(`${name}/async`), dialect, server);
  }

  /** A name that no other scenario uses. */
  name(what: string): string {
    this.names++;
    return `${what}-${this.names}`;
  }

  /** Connects the SDK. Without a group it gets one of its own, so that scenarios do not hear each other. */
  connect(cleanup: Cleanup, connection: Connection = {}): Resonate & { group: string } {
    const group = connection.group ?? this.name("group");
    const url = connection.url ?? this.server.url;
    const resonate = new this.sdk.Resonate({ url, group, logLevel: "error", ...(connection.ttl === undefined ? {} : { ttl: connection.ttl }) });
    cleanup(() => resonate.stop());
    return Object.assign(resonate, { group });
  }

  /** The id of a descendant: "1.0" is the first child of the second child of the root; "" is the root. */
  descendant(root: string, path: string): string {
    return path === "" ? root : path.split(".").reduce((id, n) => this.dialect.child(id, Number(n)), root);
  }

  /**
   * Checks what the server recorded of a call tree: exactly the given promises, by path below the root, in their
   * states and with the tags of the dialect, each with or without a task as the rules say, and none of them ever
   * seen to change once settled. Gives the records by path.
   */
  async expectTree(root: string, expected: Record<string, Expected>): Promise<Map<string, PromiseRecord>> {
    const records = new Map((await this.protocol.promisesWith({ "resonate:origin": root })).map((promise) => [promise.id, promise]));
    const ids = Object.keys(expected).map((path) => this.descendant(root, path));
    deepEqual([...records.keys()].sort(), [...ids].sort(), `the promises recorded under ${root}`);
    const byPath = new Map<string, PromiseRecord>();
    for (const [path, want] of Object.entries(expected)) {
      const record = records.get(this.descendant(root, path));
      ok(record);
      await this.expectRecord(root, path, record, typeof want === "string" ? { state: want } : want);
      byPath.set(path, record);
    }
    this.witness.check();
    return byPath;
  }

  private async expectRecord(root: string, path: string, record: PromiseRecord, want: Exclude<Expected, string>): Promise<void> {
    equal(record.state, want.state, `state of ${record.id}`);
    equal(record.settledAt !== undefined, want.state !== "pending", `settledAt of ${record.id}`);
    const parent = this.descendant(root, path.split(".").slice(0, -1).join("."));
    equal(record.tags["resonate:parent"], parent, `parent tag of ${record.id}`);
    if (want.scope) equal(record.tags["resonate:scope"], want.scope, `scope tag of ${record.id}`);
    this.witness.seePromise(record);
    const targeted = "resonate:target" in record.tags && record.tags["resonate:timer"] !== "true";
    const answer: Answer = await this.protocol.request("task.get", { id: record.id });
    equal(answer.status, targeted ? 200 : 404, `task of ${record.id}`);
    if (targeted && want.state !== "pending") equal(answer.data.task.state, "fulfilled", `task of ${record.id}`);
  }

  /** The value that a recorded promise holds, decoded. */
  value(record: PromiseRecord | undefined): any {
    ok(record);
    return decode(record.value);
  }
}

export type StageScenario = (stage: Stage, cleanup: Cleanup) => Promise<void>;

export interface NamedScenario {
  name: string;
  timeoutMs?: number;
  run: StageScenario;
}
