// The suite process of the kill tests: node suite.ts <pattern> <seed> <kills of server,worker,both> <transfers in flight>.
//
// A hundred transfers are kept in flight while the server, the worker or both are killed with SIGKILL at random moments.
// Then everything must have ended well: see Transfers.judge. After every start of the server whatever it had
// acknowledged before is read again, and the database it left behind is checked.

import { equal } from "node:assert/strict";
import { copyFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { Child } from "../harness/processes.ts";
import { Protocol } from "../harness/protocol.ts";
import { type Cleanup, finish, report, runScenarios, type Scenario } from "../harness/scenarios.ts";
import { Server, temporaryFolder } from "../harness/server.ts";
import { atMost, until } from "../harness/waiting.ts";
import { Witness } from "../harness/witness.ts";
import { type Dialect, dialects } from "../typescript/stage.ts";
import { Ledger } from "./ledger.ts";
import { Random } from "./random.ts";
import { type Hear, opening, Transfers } from "./transfers.ts";

/** The longest pause before a kill. */
const PAUSE_MS_MAX = 1_500;
/**
 * Three kills in four wait until the worker is at work again, at most so long: the SDK opens its stream again one second
 * after a loss, and two, four ... after losses in a row. The fourth one comes as it comes, perhaps in mid-start.
 */
const AT_WORK_MS_MAX = 10_000;
/** How long the transfers may take to end once nobody is killed any more. */
const DRAIN_MS_MAX = 90_000;
const READS_AT_ONCE = 16;

type Victim = "server" | "worker" | "both";

class KillTest {
  private readonly witness = new Witness();
  private readonly ledger = new Ledger(opening);
  private readonly dialect: Dialect;
  private readonly server: Server;
  private readonly protocol: Protocol;
  private readonly random: Random;
  private readonly inFlight: number;
  private ledgerUrl = "";
  private worker: Child | undefined;
  private readonly transfers: Transfers;
  /** Whether the worker got an answer since the last kill. */
  private atWork = false;
  /** What was acknowledged since it was last read again. */
  private readonly unread = new Set<string>();

  constructor(server: Server, dialect: Dialect, random: Random, inFlight: number) {
    this.server = server;
    this.dialect = dialect;
    this.random = random;
    this.inFlight = inFlight;
    this.protocol = new Protocol(server.url);
    this.transfers = new Transfers(this.protocol, (kind, status, data) => this.hear(kind, status, data), random, inFlight);
  }

  get log(): string[] {
    return [...this.server.log, "--- the worker ---", ...(this.worker?.lines ?? [])];
  }

  async run(victim: Victim, kills: number): Promise<void> {
    this.ledgerUrl = await this.ledger.serve();
    this.startWorker();
    let failed: unknown;
    const running = this.transfers.run().catch((error) => {
      failed = error;
    });
    await until("all transfers are in flight", () => this.transfers.open.size >= this.inFlight || failed !== undefined);
    for (let kill = 1; kill <= kills; kill++) {
      if (this.random.between(0, 4) > 0) await atMost(AT_WORK_MS_MAX, until("the worker is at work", () => this.atWork || failed !== undefined));
      await delay(this.random.between(0, PAUSE_MS_MAX));
      this.atWork = false;
      if (victim !== "server") await this.worker?.kill();
      if (victim !== "worker") await this.killServer();
      if (victim !== "server") this.startWorker();
      if (failed) throw failed;
      if (kill % 5 === 0 || kill === kills) this.note(`killed ${kill} of ${kills} times: ${this.transfers.ended} transfers ended, ${this.transfers.open.size} open`);
    }
    this.transfers.close();
    await atMost(DRAIN_MS_MAX, running);
    if (failed) throw failed;
    const open = [...this.transfers.open.keys()];
    equal(open.length, 0, `${open.length} transfers never ended: ${open.slice(0, 10)} ...`);
    await this.judge();
  }

  private async judge(): Promise<void> {
    await this.worker?.kill();
    for (const id of this.witness.promises.keys()) this.unread.add(id);
    await this.readAgain();
    const promises = await this.protocol.promisesWith({});
    this.transfers.judge(promises, this.ledger, this.dialect);
    for (const [id, known] of this.witness.tasks) {
      const task = await this.protocol.task(id);
      if (task.version < known.version) this.witness.object(`task ${id} had version ${known.version} and now ${task.version}`);
      if (task.state !== "fulfilled") this.witness.object(`task ${id} is ${task.state} although its promise is settled`);
    }
    this.witness.check();
    await this.server.stop();
    this.checkDatabase();
    const calls = [...this.ledger.calls.values()];
    const repeated = calls.filter((n) => n > 1).length;
    this.note(`${this.transfers.orders.size} transfers, ${promises.length} promises, ${calls.length} postings of which ${repeated} were asked for again`);
  }

  /** Kills the server, looks at the database it left, starts it again and reads again what it had acknowledged. */
  private async killServer(): Promise<void> {
    await this.server.kill();
    this.checkDatabase();
    await this.server.restart();
    await this.readAgain();
    this.witness.check();
  }

  /** Opens a copy: opening the file itself would do the recovery that the server must do. */
  private checkDatabase(): void {
    const folder = temporaryFolder();
    for (const suffix of ["", "-wal"]) {
      if (existsSync(this.server.database + suffix)) copyFileSync(this.server.database + suffix, join(folder, `copy.db${suffix}`));
    }
    const database = new DatabaseSync(join(folder, "copy.db"));
    const rows = database.prepare("PRAGMA integrity_check").all();
    database.close();
    equal(rows.length, 1, JSON.stringify(rows));
    equal(rows[0]?.integrity_check, "ok");
  }

  private async readAgain(): Promise<void> {
    const ids = [...this.unread];
    this.unread.clear();
    const reader = async () => {
      for (let id = ids.pop(); id !== undefined; id = ids.pop()) {
        const known = this.witness.promises.get(id);
        const before = known && { ...known };
        const answer = await this.protocol.request("promise.get", { id });
        if (answer.status === 404) this.witness.object(`promise ${id} was acknowledged and is missing`);
        else if (answer.status === 200) this.witness.seePromise(answer.data.promise, before);
        else this.witness.object(`promise.get ${id} was answered ${answer.status}: ${JSON.stringify(answer.data)}`);
      }
    };
    await Promise.all(Array.from({ length: READS_AT_ONCE }, reader));
  }

  private startWorker(): void {
    const args = [join(import.meta.dirname, "worker.ts"), this.dialect.version, this.server.url, this.ledgerUrl];
    this.worker = new Child(process.execPath, args, { onMessage: (message) => this.hearWorker(message as Parameters<Hear>) });
  }

  private hearWorker(answer: Parameters<Hear>): void {
    this.atWork = true;
    this.hear(...answer);
  }

  /** Hears an answer that the worker or the client got: an acknowledgement that must hold from now on. */
  private hear(kind: string, status: number, data: any): void {
    this.witness.seeAnswer(kind, status, data);
    if (status !== 200) return;
    const promise = kind === "task.fence" ? data.action.data.promise : data.promise;
    if (promise?.id === undefined) return;
    this.unread.add(promise.id);
    if (promise.state !== "pending") this.transfers.settled(promise.id);
  }

  async stop(): Promise<void> {
    this.transfers.close();
    await this.worker?.kill();
    await this.server.kill();
  }

  private note(line: string): void {
    report({ report: "note", line });
  }
}

const [only = "", seedText = "1", killsText = "15,10,5", inFlight = "100"] = process.argv.slice(2);
const [serverKills = 0, workerKills = 0, bothKills = 0] = killsText.split(",").map(Number);
const seed = Number(seedText);
let log = () => [] as string[];

function scenario(version: string, victim: Victim, kills: number, offset: number): Scenario {
  return {
    name: `${victim === "both" ? "server and worker" : victim} killed ${kills} times, SDK ${version}, seed ${seed}`,
    timeoutMs: 120_000 + DRAIN_MS_MAX + kills * 5_000,
    run: async (cleanup: Cleanup) => {
      const test = new KillTest(await Server.start(), dialects[version]!, new Random(seed + offset), Number(inFlight));
      cleanup(() => test.stop());
      log = () => test.log;
      await test.run(victim, kills);
    },
  };
}

report({ report: "note", line: `seed ${seed}: the same kills again with --seed ${seed}` });
// The older SDK's heartbeats name no task, so what it gave up while the server was dead must lapse all the same.
const scenarios = [
  scenario("0.11.5", "server", serverKills, 0),
  scenario("0.11.4", "server", Math.ceil(serverKills / 3), 3),
  scenario("0.11.5", "worker", workerKills, 1),
  scenario("0.11.4", "both", bothKills, 2),
];
await runScenarios(scenarios, new RegExp(only), () => log());
await finish();
