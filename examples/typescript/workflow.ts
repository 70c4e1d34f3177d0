// A money transfer with compensation, as a durable workflow.
//
// Each step is run until its result is recorded, however often the worker or the server is killed: so a step may run
// more than once, but only one result of it counts. The bank makes a repeated step harmless, because every posting
// carries the step's id and a posting with a known id changes nothing.

import type { Context } from "@resonatehq/sdk";

export interface Order {
  from: string;
  to: string;
  amount: number;
  /** How long the money rests between the two accounts. */
  restMs: number;
}

export interface Receipt {
  posting: string;
  balance: number;
}

/** Where the accounts are. A posting with a known id gives the first one's receipt again. */
export interface Bank {
  post(posting: string, account: string, amount: number): Promise<Receipt>;
}

/** The bank says no: trying again would not help. */
export class Refused extends Error {}

export type Outcome =
  | { status: "done"; withdrawal: Receipt; deposit: Receipt }
  | { status: "refunded"; reason: string; withdrawal: Receipt; refund: Receipt };

const bank = (ctx: Context): Bank => ctx.getDependency<Bank>("bank")!;

async function withdraw(ctx: Context, order: Order) {
  return bank(ctx).post(ctx.id, order.from, -order.amount);
}

async function refund(ctx: Context, order: Order) {
  return bank(ctx).post(ctx.id, order.from, order.amount);
}

async function credit(ctx: Context, order: Order) {
  return bank(ctx).post(ctx.id, order.to, order.amount);
}

/** The other bank's half, called by rpc: any worker may run it. */
export function* deposit(ctx: Context, order: Order): Generator<any, Receipt, any> {
  return yield* ctx.run(credit, order, ctx.options({ nonRetryableErrors: [Refused] }));
}

export function* transfer(ctx: Context, order: Order): Generator<any, Outcome, any> {
  const withdrawal = yield* ctx.run(withdraw, order, ctx.options({ nonRetryableErrors: [Refused] }));
  yield* ctx.sleep(order.restMs);
  try {
    const receipt = yield* ctx.rpc<Receipt>("deposit", order);
    return { status: "done", withdrawal, deposit: receipt };
  } catch (error) {
    const back = yield* ctx.run(refund, order);
    return { status: "refunded", reason: (error as Error).message, withdrawal, refund: back };
  }
}
