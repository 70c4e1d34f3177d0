// A server, its workers and transfers in flight, of which server and workers may be killed at any moment; and the judgement
// in the end. After every start of the server whatever it had acknowledged before is read again.

import { equal } from "node:assert/strict";
import { copyFileSync, existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Child } from "../harness/processes.ts";
import { isOfAnOutage, Protocol } from "../harness/protocol.ts";
import { PATIENCE, report } from "../harness/scenarios.ts";
import { temporaryFolder } from "../harness/places.ts";
import type { Store } from "../harness/storage.ts";
import { atMost, until } from "../harness/waiting.ts";
import { Witness } from "../harness/witness.ts";
import type { Dialect } from "../typescript/stage.ts";
import { Ledger } from "./ledger.ts";
import type { Random } from "./random.ts";
import { type Hear, opening, Transfers } from "./transfers.ts";

/** How long the transfers may take to end once nobody is killed any more. */
export const DRAIN_MS_MAX = 90_000 * PATIENCE;
const READS_AT_ONCE = 16;
/** For servers whose database is killed again and again: tasks that a worker could not claim meanwhile come again soon. */
export const RETRY_SOON = ["--tasks-retry-timeout", "5s"];

/** Starts a worker that runs transfers for the server at a URL, with the ledger at another, and tells what it hears. */
export type StartWorker = (serverUrl: string, ledgerUrl: string, hear: (answer: Parameters<Hear>) => void) => Child;

/** The TypeScript worker of an SDK release. */
export function typescriptWorker(version: string): StartWorker {
  return (serverUrl, ledgerUrl, hear) =>
    new Child(process.execPath, [join(import.meta.dirname, "worker.ts"), version, serverUrl, ledgerUrl], {
      onMessage: (message) => hear(message as Parameters<Hear>),
    });
}

export class Trial {
  readonly transfers: Transfers;
  /** Whether a worker got an answer since this was last set to false. */
  atWork = false;
  private readonly workerUrls: string[];
  private readonly dialect: Dialect;
  private readonly startWorkerAt: StartWorker;
  private readonly protocol: Protocol;
  /** How many answers workers got. */
  private workerAnswers = 0;
  private readonly witness = new Witness();
  private readonly ledger = new Ledger(opening);
  private readonly inFlight: number;
  private readonly workers: Child[] = [];
  private ledgerUrl = "";
  private running: Promise<void> | undefined;
  private failed: unknown;
  /** What was acknowledged since it was last read again. */
  private readonly unread = new Set<string>();

  /** URLs are those of a server, or of a workspace on it, which nobody else uses. Of several that share a store, the workers
   * take turns, and the client has its own to ask. */
  constructor(url: string | { workers: string[]; client: [string, ...string[]] }, dialect: Dialect, startWorker: StartWorker, random: Random, inFlight: number) {
    const { workers, client } = typeof url === "string" ? { workers: [url], client: [url] as [string] } : url;
    this.workerUrls = workers;
    this.dialect = dialect;
    this.startWorkerAt = startWorker;
    this.inFlight = inFlight;
    this.protocol = new Protocol(...client);
    this.transfers = new Transfers(this.protocol, (kind, status, data) => this.hear(kind, status, data), random, inFlight);
  }

  /** The last lines of the workers. */
  get log(): string[] {
    return this.workers.flatMap((worker, n) => [`--- worker ${n} ---`, ...worker.lines.slice(-60)]);
  }

  /** Starts so many workers, and transfers until all are in flight. */
  async begin(workers: number): Promise<void> {
    this.ledgerUrl = await this.ledger.serve();
    for (let n = 0; n < workers; n++) this.startWorker(n);
    this.running = this.transfers.run().catch((error) => {
      this.failed = error;
    });
    await until("all transfers are in flight", () => this.transfers.open.size >= this.inFlight || this.failed !== undefined);
  }

  /** Throws what went wrong with the transfers, and what an answer contradicts. */
  check(): void {
    if (this.failed) throw this.failed;
    this.witness.check();
  }

  /** Waits until a worker is at work, but not for ever: the next kill comes all the same. */
  async waitUntilAtWork(msMax: number): Promise<void> {
    await atMost(msMax, until("a worker is at work", () => this.atWork || this.failed !== undefined, msMax).catch(() => {}));
  }

  startWorker(n: number): void {
    this.workers[n] = this.startWorkerAt(this.workerUrls[n % this.workerUrls.length]!, this.ledgerUrl, (answer) => {
      this.atWork = true;
      this.workerAnswers++;
      this.hear(...answer);
    });
  }

  async killWorker(n: number): Promise<void> {
    await this.workers[n]?.kill();
  }

  /** Reads again what the server has acknowledged since the last time, and checks it. */
  async readAgain(): Promise<void> {
    const ids = [...this.unread];
    this.unread.clear();
    await inParallel(ids, async (id) => {
      const known = this.witness.promises.get(id);
      const before = known && { ...known };
      const answer = await this.protocol.repeat("promise.get", { id });
      if (answer.status === 404) this.witness.object(`promise ${id} was acknowledged and is missing`);
      else if (answer.status === 200) this.witness.seePromise(answer.data.promise, before);
      else this.witness.object(`promise.get ${id} was answered ${answer.status}: ${JSON.stringify(answer.data)}`);
    });
    this.check();
  }

  /** Lets what is in flight end, and judges it all; the server must be there. Gives a line of figures. */
  async end(): Promise<string> {
    this.transfers.close();
    await atMost(DRAIN_MS_MAX, this.running!);
    this.check();
    const open = [...this.transfers.open.keys()];
    equal(open.length, 0, `${open.length} transfers never ended: ${open.slice(0, 10)} ...`);
    for (const worker of this.workers) await worker.kill();
    for (const id of this.witness.promises.keys()) this.unread.add(id);
    await this.readAgain();
    const promises = await this.protocol.promisesWith({});
    this.transfers.judge(promises, this.ledger, this.dialect);
    await inParallel([...this.witness.tasks], async ([id, known]) => {
      const task = await this.protocol.task(id);
      if (task.version < known.version) this.witness.object(`task ${id} had version ${known.version} and now ${task.version}`);
      if (task.state !== "fulfilled") this.witness.object(`task ${id} is ${task.state} although its promise is settled`);
    });
    this.check();
    const calls = [...this.ledger.calls.values()];
    const repeated = calls.filter((n) => n > 1).length;
    const answers = [...this.protocol.answers.values()].reduce((sum, n) => sum + n, this.workerAnswers);
    return `${answers} requests, ${this.transfers.orders.size} transfers, ${promises.length} promises, ${calls.length} postings of which ${repeated} were asked for again`;
  }

  /** Leaves everything as it is. */
  async stop(): Promise<void> {
    this.transfers.close();
    for (const worker of this.workers) await worker.kill();
  }

  /** Hears an answer that a worker or the client got: an acknowledgement that must hold from now on. */
  private hear(kind: string, status: number, data: any): void {
    this.witness.seeAnswer(kind, status, data);
    if (status >= 500 && !isOfAnOutage(status, data)) this.witness.object(`${kind} was answered ${status}: ${JSON.stringify(data)}`);
    if (status !== 200) return;
    const promise = kind === "task.fence" ? data.action.data.promise : data.promise;
    if (promise?.id === undefined) return;
    this.unread.add(promise.id);
    if (promise.state !== "pending") this.transfers.settled(promise.id);
  }
}

/** Does something for each of a list, several at once. */
async function inParallel<T>(list: T[], act: (one: T) => Promise<void>): Promise<void> {
  const rest = [...list];
  const worker = async () => {
    for (let one = rest.pop(); one !== undefined; one = rest.pop()) await act(one);
  };
  await Promise.all(Array.from({ length: READS_AT_ONCE }, worker));
}

/** Checks a copy of the data file that a dead server left: opening the file itself would do the recovery that a server must do. */
export function checkFile({ file }: Store): void {
  if (file === undefined) return; // a database server looks after its own
  const folder = temporaryFolder();
  for (const suffix of ["", "-wal"]) {
    if (existsSync(file + suffix)) copyFileSync(file + suffix, join(folder, `copy.db${suffix}`));
  }
  const database = new DatabaseSync(join(folder, "copy.db"));
  const rows = database.prepare("PRAGMA integrity_check").all();
  database.close();
  rmSync(folder, { recursive: true, force: true });
  equal(rows.length, 1, JSON.stringify(rows));
  equal(rows[0]?.integrity_check, "ok");
}

export function note(line: string): void {
  report({ report: "note", line });
}
