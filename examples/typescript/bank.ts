// A bank in a file: accounts, and the postings made on them. Money is only ever moved, never made.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { type Bank, type Receipt, Refused } from "./workflow.ts";

export class FileBank implements Bank {
  private readonly file: string;
  private books: { accounts: Record<string, number>; postings: Record<string, Receipt> };

  constructor(file: string, opening: Record<string, number>) {
    this.file = file;
    this.books = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { accounts: opening, postings: {} };
  }

  async post(posting: string, account: string, amount: number): Promise<Receipt> {
    const known = this.books.postings[posting];
    if (known) return known;
    const balance = (this.books.accounts[account] ?? Number.NaN) + amount;
    if (Number.isNaN(balance)) throw new Refused(`there is no account ${account}`);
    if (balance < 0) throw new Refused(`account ${account} does not hold ${-amount}`);
    this.books.accounts[account] = balance;
    this.books.postings[posting] = { posting, balance };
    this.save();
    return { posting, balance };
  }

  get accounts(): Record<string, number> {
    return { ...this.books.accounts };
  }

  private save() {
    writeFileSync(`${this.file}.new`, JSON.stringify(this.books, null, 2));
    renameSync(`${this.file}.new`, this.file);
  }
}
