// Keeps a number of transfers in flight, whatever happens to server and worker, and knows in the end what each of
// them must have come to.

import { deepEqual, equal, ok } from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import type { Order, Outcome } from "../../examples/typescript/workflow.ts";
import { decode, encode, type PromiseRecord, type Protocol } from "../harness/protocol.ts";
import type { Dialect } from "../typescript/stage.ts";
import type { Ledger } from "./ledger.ts";
import type { Random } from "./random.ts";

const ACCOUNTS = [...Array(10).keys()].map((n) => `account-${n}`);
const OPENING = 1_000_000;
/** Holds nothing: a withdrawal from it is refused and the transfer is rejected. */
const EMPTY = "empty";
/** Not an account: a deposit is refused and the money goes back. */
const CLOSED = "closed";
const TARGET = "poll://any@default";
const DAY_MS = 24 * 60 * 60 * 1000;
/** How long a transfer may be silent before it is asked after: the answer that ended it may have died with a worker. */
const SILENCE_MS_MAX = 3_000;

export const opening: ReadonlyMap<string, number> = new Map([...ACCOUNTS.map((name): [string, number] => [name, OPENING]), [EMPTY, 0]]);

/** Hears every answer of the server to a request of a transfer's client. */
export type Hear = (kind: string, status: number, data: any) => void;

export class Transfers {
  readonly orders = new Map<string, Order>();
  readonly open = new Map<string, { since: number; begun: number }>();
  private readonly protocol: Protocol;
  private readonly hear: Hear;
  private readonly random: Random;
  private readonly wanted: number;
  private closing = false;

  /** A transfer ends when `settled` is told so: by whoever hears the answers, this object's own among them. */
  constructor(protocol: Protocol, hear: Hear, random: Random, wanted: number) {
    this.protocol = protocol;
    this.hear = hear;
    this.random = random;
    this.wanted = wanted;
  }

  get ended(): number {
    return this.orders.size - this.open.size;
  }

  /** For how many seconds the oldest open transfer goes on beyond the time that its money rests; 0 if none does. */
  get oldestSeconds(): number {
    const now = performance.now();
    let oldest = 0;
    for (const [id, { begun }] of this.open) oldest = Math.max(oldest, now - begun - this.orders.get(id)!.restMs);
    return oldest / 1000;
  }

  /** Runs until `close` was called and every transfer has ended. */
  async run(): Promise<void> {
    while (!this.closing || this.open.size > 0) {
      while (!this.closing && this.open.size < this.wanted) await this.begin();
      await this.askAfterSilentOnes();
      await delay(50);
    }
  }

  /** From now on no transfer begins. */
  close(): void {
    this.closing = true;
  }

  /** Hears that a promise was settled, from whoever got the answer. */
  settled(id: string): void {
    this.open.delete(id);
  }

  private async begin(): Promise<void> {
    const id = `transfer-${this.orders.size}`;
    const order: Order = {
      from: this.random.between(0, 20) === 0 ? EMPTY : this.random.pick(ACCOUNTS),
      to: this.random.between(0, 5) === 0 ? CLOSED : this.random.pick(ACCOUNTS),
      amount: this.random.between(1, 100),
      restMs: this.random.between(50, 2_000),
    };
    this.orders.set(id, order);
    this.open.set(id, { since: performance.now(), begun: performance.now() });
    // The same request as `resonate.rpc` sends, repeated until it is acknowledged: creating a known id is harmless.
    const tags = { origin: id, branch: id, parent: id, scope: "global", target: TARGET };
    await this.certainly("promise.create", {
      id,
      timeoutAt: Date.now() + DAY_MS,
      param: encode({ func: "transfer", args: [order], version: 1 }),
      tags: Object.fromEntries(Object.entries(tags).map(([name, value]) => [`resonate:${name}`, value])),
    });
  }

  private async askAfterSilentOnes(): Promise<void> {
    const now = performance.now();
    for (const [id, transfer] of this.open) {
      if (now - transfer.since < SILENCE_MS_MAX + this.orders.get(id)!.restMs) continue;
      transfer.since = now;
      await this.certainly("promise.get", { id });
    }
  }

  /** Repeats a harmless request until it is answered, and hears the answer. */
  private async certainly(kind: string, data: object): Promise<void> {
    const answer = await this.protocol.repeat(kind, data);
    this.hear(kind, answer.status, answer.data);
    if (answer.status !== 200) throw new Error(`${kind} was answered ${answer.status}: ${JSON.stringify(answer.data)}`);
  }

  /** Judges the end: every transfer came to what its order says, by the server's records and by the ledger. */
  judge(promises: PromiseRecord[], ledger: Ledger, dialect: Dialect): void {
    const records = new Map(promises.map((promise) => [promise.id, promise]));
    const accounts = new Map(opening);
    const postings = new Set<string>();
    const expected = new Set<string>();
    const move = (posting: string, account: string, amount: number) => {
      postings.add(posting);
      accounts.set(account, accounts.get(account)! + amount);
    };
    for (const [id, order] of this.orders) {
      const step = (n: number) => dialect.child(id, n);
      const credit = dialect.child(step(2), 0);
      const state = (promiseId: string, state: string) => {
        expected.add(promiseId);
        equal(records.get(promiseId)?.state, state, `state of ${promiseId}`);
      };
      const refusedAtOnce = order.from === EMPTY;
      state(id, refusedAtOnce ? "rejected" : "resolved");
      state(step(0), refusedAtOnce ? "rejected" : "resolved");
      if (refusedAtOnce) continue;
      const arrives = order.to !== CLOSED;
      state(step(1), "resolved");
      state(step(2), arrives ? "resolved" : "rejected");
      state(credit, arrives ? "resolved" : "rejected");
      if (!arrives) state(step(3), "resolved");
      move(step(0), order.from, -order.amount);
      move(arrives ? credit : step(3), arrives ? order.to : order.from, order.amount);
      const value = (promiseId: string) => decode(records.get(promiseId)!.value);
      const outcome: Outcome = value(id);
      equal(outcome.status, arrives ? "done" : "refunded", `outcome of ${id}`);
      deepEqual(outcome.withdrawal, value(step(0)), `${id} saw the withdrawal that is recorded`);
      if (outcome.status === "done") {
        deepEqual(outcome.deposit, value(step(2)), `${id} saw the deposit that is recorded`);
        deepEqual(outcome.deposit, value(credit), `the deposit of ${id} is the credit that is recorded`);
      } else deepEqual(outcome.refund, value(step(3)), `${id} saw the refund that is recorded`);
    }
    deepEqual([...records.keys()].sort(), [...expected].sort(), "the promises recorded");
    deepEqual([...ledger.calls.keys()].sort(), [...postings].sort(), "the postings made");
    deepEqual(ledger.accounts, accounts, "the accounts");
    const sum = (books: ReadonlyMap<string, number>) => [...books.values()].reduce((total, amount) => total + amount, 0);
    equal(sum(ledger.accounts), sum(opening), "money is conserved");
    ok(this.orders.size >= this.wanted);
  }
}
