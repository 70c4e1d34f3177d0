// A plain client of the protocol, independent of any SDK: what the checks read the records with.

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";

export type PromiseState = "pending" | "resolved" | "rejected" | "rejected_canceled" | "rejected_timedout";

export interface Value {
  headers?: Record<string, string>;
  data?: string;
}

export interface PromiseRecord {
  id: string;
  state: PromiseState;
  param: Value;
  value: Value;
  tags: Record<string, string>;
  timeoutAt: number;
  createdAt: number;
  settledAt?: number;
}

export interface TaskRecord {
  id: string;
  state: "pending" | "acquired" | "suspended" | "halted" | "fulfilled";
  version: number;
  resumes: number;
  ttl?: number;
  pid?: string;
}

export interface Answer {
  status: number;
  data: any;
}

const VERSION = "2026-04-01";
const SEARCH_LIMIT = 1000;

/** The request got no answer: what became of it is unknown. */
export class NoAnswer extends Error {}

/**
 * Whether an answer is one of a server or database that goes down, and not a fault: nothing was done, or, if the database was
 * away for longer than the server tries to find out, nobody knows whether it was.
 */
export function isOfAnOutage(status: number, data: any): boolean {
  return status === 503 || (status === 500 && /^The outcome of the request is unknown/.test(data));
}

export class Protocol {
  /** How many answers of each status there were. */
  readonly answers = new Map<number, number>();
  private readonly urls: string[];
  private chosen: string;

  /** Of several servers on one store the first is asked, until it gives no answer or 503: then the next, and so on. */
  constructor(url: string, ...others: string[]) {
    this.urls = [url, ...others];
    this.chosen = url;
  }

  /** Sends one request and gives the protocol's status and data; checks the envelope of the answer on the way. */
  async request(kind: string, data: object): Promise<Answer> {
    const url = this.chosen;
    const corrId = randomUUID();
    let text: string;
    let httpStatus: number;
    try {
      const answer = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ kind, head: { corrId, version: VERSION }, data }),
        signal: AbortSignal.timeout(30_000),
      });
      httpStatus = answer.status;
      text = await answer.text();
    } catch (error) {
      this.turnFrom(url);
      throw new NoAnswer(`${kind}: ${error instanceof Error ? error.message : error}`);
    }
    this.answers.set(httpStatus, (this.answers.get(httpStatus) ?? 0) + 1);
    if (httpStatus === 503) this.turnFrom(url);
    const envelope = JSON.parse(text);
    if (envelope.kind !== kind || envelope.head.corrId !== corrId || envelope.head.status !== httpStatus) {
      throw new Error(`the answer to ${kind} (HTTP ${httpStatus}) does not echo its request: ${text.slice(0, 500)}`);
    }
    return { status: httpStatus, data: envelope.data };
  }

  /** Repeats a harmless request until a server, which or whose database may be dead just now, has answered it. */
  async repeat(kind: string, data: object): Promise<Answer> {
    for (;;) {
      try {
        const answer = await this.request(kind, data);
        if (!isOfAnOutage(answer.status, answer.data)) return answer;
      } catch (error) {
        if (!(error instanceof NoAnswer)) throw error;
      }
      await delay(50);
    }
  }

  /** Sends a request that must be answered 200, and gives its data. */
  async expect(kind: string, data: object): Promise<any> {
    const answer = await this.request(kind, data);
    if (answer.status !== 200) throw new Error(`${kind} ${JSON.stringify(data)} was answered ${answer.status}: ${JSON.stringify(answer.data)}`);
    return answer.data;
  }

  private turnFrom(url: string): void {
    if (this.chosen === url) this.chosen = this.urls[(this.urls.indexOf(url) + 1) % this.urls.length]!;
  }

  async promise(id: string): Promise<PromiseRecord> {
    return (await this.expect("promise.get", { id })).promise;
  }

  async task(id: string): Promise<TaskRecord> {
    return (await this.expect("task.get", { id })).task;
  }

  /** Every promise that carries all the tags, in the order of the search. */
  async promisesWith(tags: Record<string, string>): Promise<PromiseRecord[]> {
    const found: PromiseRecord[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = await this.expect("promise.search", { tags, limit: SEARCH_LIMIT, ...(cursor === undefined ? {} : { cursor }) });
      found.push(...page.promises);
      cursor = page.cursor;
      if (cursor === undefined) return found;
    }
  }
}

/** What an SDK encoded: base64 of JSON; nothing at all for an absent or empty value. */
export function decode(value: Value): any {
  return value.data ? JSON.parse(Buffer.from(value.data, "base64").toString("utf8")) : undefined;
}

/** The value that an SDK would encode. */
export function encode(content: unknown): Value {
  return { headers: {}, data: Buffer.from(JSON.stringify(content), "utf8").toString("base64") };
}
