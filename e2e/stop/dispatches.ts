// Workers written by hand, and promises for them. A worker gives up a task whose claim is not answered 200, as the SDKs do: that
// the task comes again soon is up to the server.

import { setTimeout as delay } from "node:timers/promises";
import { Agent, get, type IncomingMessage } from "node:http";
import { encode, NoAnswer, Protocol } from "../harness/protocol.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
/** So long that whoever must wait for its end has failed the test. */
export const LEASE_MS = 600_000;
/** How soon a worker opens its stream again. */
const RECONNECT_MS = 50;
/** How many promises are created at once. */
const CREATORS = 32;

export interface Dispatch {
  createdMs: number;
  /** Claims that were answered 200. */
  claims: number;
  /** When the answer to its settling came. */
  endedMs?: number;
}

export class Dispatches {
  readonly all = new Map<string, Dispatch>();
  /** Execute messages that were received. */
  received = 0;
  /** Claims that the server turned away or did not answer. */
  givenUp = 0;
  /** Claims that were answered with 409: somebody else was told as well, and was quicker. */
  late = 0;
  private readonly url: string;
  private readonly group: string;
  private readonly protocol: Protocol;
  private readonly streams = new Set<IncomingMessage>();
  private over = false;
  private failed: unknown;
  private created = 0;
  private ended = 0;
  private left = false;

  /** The URL is that of a server, or of a workspace on it. */
  constructor(url: string, group: string) {
    this.url = url;
    this.group = group;
    this.protocol = new Protocol(url);
  }

  get open(): number {
    return this.all.size - this.ended;
  }

  /** Connects so many workers, which open their streams again whenever they end. */
  work(workers: number): void {
    for (let n = 0; n < workers; n++) void this.worker(`worker-${n}`).catch((error) => { this.failed ??= error; });
  }

  /** Creates so many promises, each until it is acknowledged. */
  async create(wanted: number): Promise<void> {
    const until = this.created + wanted;
    const creator = async () => {
      while (this.created < until && !this.over) await this.createOne(`${this.group}-${this.created++}`);
    };
    await Promise.all([...Array(CREATORS)].map(creator));
  }

  /** Creates promises until it is stopped, so that this many are open at a time. */
  async keepOpen(wanted: number): Promise<void> {
    while (!this.over) {
      if (this.open < wanted) await this.createOne(`${this.group}-${this.created++}`);
      else await delay(5);
    }
  }

  /** Throws what went wrong with a worker. */
  check(): void {
    if (this.failed) throw this.failed;
  }

  /** No promise is created any more; the workers go on. */
  stop(): void {
    this.over = true;
  }

  /** Ends the streams of the workers, which do not open them again. */
  leave(): void {
    this.over = true;
    this.left = true;
    for (const stream of this.streams) stream.destroy();
  }

  /** Reads every promise again: throws what is not as it was acknowledged. */
  async judge(): Promise<void> {
    this.check();
    const found = new Map((await this.protocol.promisesWith({})).map((promise) => [promise.id, promise]));
    for (const [id, { endedMs }] of this.all) {
      if (endedMs === undefined) throw new Error(`${id} was never settled`);
      if (found.get(id)?.state !== "resolved") throw new Error(`${id} was settled, and now is ${found.get(id)?.state}`);
    }
  }

  private async createOne(id: string): Promise<void> {
    const tags = { "resonate:origin": id, "resonate:branch": id, "resonate:parent": id, "resonate:scope": "global", "resonate:target": `poll://any@${this.group}` };
    const answer = await this.protocol.repeat("promise.create", { id, timeoutAt: Date.now() + DAY_MS, param: encode(id), tags });
    if (answer.status !== 200) throw new Error(`promise.create was answered ${answer.status}: ${JSON.stringify(answer.data)}`);
    // Its execute may have arrived, and all of it be over, before the answer.
    const known = this.all.get(id);
    if (known === undefined) this.all.set(id, { createdMs: performance.now(), claims: 0 });
  }

  private async worker(pid: string): Promise<void> {
    const agent = new Agent({ keepAlive: false });
    while (!this.left) {
      await this.listen(pid, agent).catch(() => {}); // refused, turned away, or broken off: all is well with the next one
      await delay(RECONNECT_MS);
    }
  }

  /** Opens a stream and does what comes in on it until it ends. */
  private async listen(pid: string, agent: Agent): Promise<void> {
    const stream = await new Promise<IncomingMessage>((resolve, reject) => {
      get(`${this.url}/poll/${this.group}/${pid}`, { agent }, resolve).on("error", reject);
    });
    if (stream.statusCode !== 200) {
      stream.resume();
      return;
    }
    this.streams.add(stream);
    stream.setEncoding("utf8");
    let rest = "";
    try {
      for await (const chunk of stream) {
        const lines = (rest + chunk).split("\n");
        rest = lines.pop()!;
        for (const line of lines) if (line.startsWith("data:")) this.execute(pid, JSON.parse(line.slice(5)));
      }
    } finally {
      this.streams.delete(stream);
    }
  }

  private execute(pid: string, message: any): void {
    if (message.kind !== "execute") return;
    this.received++;
    const { id, version } = message.data.task;
    this.run(pid, id, version).catch((error) => { this.failed ??= error; });
  }

  private async run(pid: string, id: string, version: number): Promise<void> {
    let status: number;
    try {
      ({ status } = await this.protocol.request("task.acquire", { id, version, pid, ttl: LEASE_MS }));
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      status = 503;
    }
    if (status === 503) this.givenUp++;
    else if (status === 409) this.late++;
    else if (status !== 200) throw new Error(`task.acquire of ${id} was answered ${status}`);
    if (status !== 200) return;
    if (!this.all.has(id)) this.all.set(id, { createdMs: performance.now(), claims: 0 });
    const dispatch = this.all.get(id)!;
    dispatch.claims++;
    const action = { kind: "promise.settle", head: {}, data: { id, state: "resolved", value: encode(id) } };
    const answer = await this.protocol.repeat("task.fulfill", { id, version: version + 1, action });
    // 409 after an answer that got lost; the promise is read again in the end.
    if (answer.status !== 200 && answer.status !== 409) throw new Error(`task.fulfill of ${id} was answered ${answer.status}: ${JSON.stringify(answer.data)}`);
    dispatch.endedMs = performance.now();
    this.ended++;
  }
}
