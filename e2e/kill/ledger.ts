// The accounts that the transfers move money between. The ledger lives in the test's own process, which nothing kills:
// it is the outside world, and it judges in the end.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Bank, type Receipt, Refused } from "../../examples/typescript/workflow.ts";

/** A receipt says which of possibly several calls for one posting it answers: so two runs of a step differ. */
export interface NumberedReceipt extends Receipt {
  call: number;
}

export class Ledger {
  readonly accounts: Map<string, number>;
  /** How often each posting was asked for. It changed an account the first time only. */
  readonly calls = new Map<string, number>();
  private readonly balances = new Map<string, number>();

  constructor(opening: ReadonlyMap<string, number>) {
    this.accounts = new Map(opening);
  }

  /** Makes a posting once, and answers every call for it; undefined when the bank refuses. */
  post(posting: string, account: string, amount: number): NumberedReceipt | undefined {
    const call = (this.calls.get(posting) ?? 0) + 1;
    let balance = this.balances.get(posting);
    if (balance === undefined) {
      balance = (this.accounts.get(account) ?? Number.NaN) + amount;
      if (!(balance >= 0)) return undefined;
      this.accounts.set(account, balance);
      this.balances.set(posting, balance);
    }
    this.calls.set(posting, call);
    return { posting, balance, call };
  }

  /** Serves the ledger to the workers; gives its url. */
  async serve(): Promise<string> {
    const server = createServer((request, response) => {
      let body = "";
      request.on("data", (chunk) => {
        body += chunk;
      });
      request.on("end", () => {
        const { posting, account, amount } = JSON.parse(body);
        const receipt = this.post(posting, account, amount);
        response.writeHead(receipt ? 200 : 409, { "content-type": "application/json" });
        response.end(JSON.stringify(receipt ?? {}));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }
}

/** The ledger as a worker sees it. */
export class LedgerBank implements Bank {
  private readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  async post(posting: string, account: string, amount: number): Promise<Receipt> {
    const answer = await fetch(this.url, { method: "POST", body: JSON.stringify({ posting, account, amount }) });
    const receipt = (await answer.json()) as Receipt;
    if (answer.status === 409) throw new Refused(`account ${account} cannot take ${amount}`);
    return receipt;
  }
}
