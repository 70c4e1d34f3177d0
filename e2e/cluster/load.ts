// Clients that create, settle and read promises on three servers in turn. They go to another server when a connection is
// refused or the answer is a retriable 503, and take anything else for a fault.

import { randomUUID } from "node:crypto";
import { Agent, request } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { encode, Protocol } from "../harness/protocol.ts";

/** How long one request may take, with all its attempts. */
const REQUEST_MS_MAX = 30_000;
/** How long a client waits when every server has turned it away. */
const PAUSE_MS = 20;
const DAY_MS = 24 * 60 * 60 * 1000;

interface Reply {
  status: number;
  retriable: boolean;
  data: any;
}

/** What is added to the error of a connection that broke: whether it had served another request before. */
interface Broken {
  reused: boolean;
}

/** What the requests of a stretch of time came to. */
export interface Stretch {
  requests: number;
  /** Requests that were turned away, and went to another server. */
  refused: number;
  unavailable: number;
  /** Kept connections that the server closed just when a request came, of which HTTP's clients know that they may repeat it. */
  closed: number;
  /** How long each took with all its attempts. */
  durationsMs: number[];
}

export class Load {
  stretch: Stretch = emptyStretch();
  private readonly urls: string[];
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 1_000 });
  private readonly promises: string[] = [];
  private readonly running: Promise<void>[];
  private over = false;
  private failed: unknown;

  /** Starts so many clients at once; the URLs are those of a workspace that nobody else uses. */
  constructor(urls: string[], clients: number) {
    this.urls = urls;
    this.running = [...Array(clients).keys()].map((n) => this.client(n).catch((error) => { this.failed ??= error; }));
  }

  /** Ends the stretch of time that has been counted, and begins another. */
  next(): Stretch {
    const ended = this.stretch;
    this.stretch = emptyStretch();
    this.check();
    return ended;
  }

  check(): void {
    if (this.failed) throw this.failed;
  }

  /** Stops the clients and reads everything that was acknowledged again. Gives how many promises there are. */
  async end(): Promise<number> {
    this.over = true;
    await Promise.all(this.running);
    this.agent.destroy();
    this.check();
    const found = new Map((await new Protocol(this.urls[0]!).promisesWith({})).map((promise) => [promise.id, promise]));
    const lost = this.promises.filter((id) => found.get(id)?.state !== "resolved");
    if (lost.length > 0) throw new Error(`${lost.length} promises whose settling was acknowledged are lost: ${lost.slice(0, 10)}`);
    return this.promises.length;
  }

  /** A client that begins each promise at the server after the last one's. */
  private async client(n: number): Promise<void> {
    for (let turn = n; !this.over && !this.failed; turn++) {
      const id = `load-${n}-${turn}`;
      await this.surely(turn, "promise.create", { id, timeoutAt: Date.now() + DAY_MS, param: encode(turn), tags: {} });
      await this.surely(turn + 1, "promise.settle", { id, state: "resolved", value: encode(turn) });
      const { promise } = await this.surely(turn + 2, "promise.get", { id });
      if (promise.state !== "resolved") throw new Error(`${id} was settled at one server and is ${promise.state} at another`);
      this.promises.push(id);
    }
  }

  /** Has a request answered 200, by the server whose turn it is or by another. */
  private async surely(turn: number, kind: string, data: object): Promise<any> {
    const begin = performance.now();
    for (let attempt = 0; performance.now() - begin < REQUEST_MS_MAX; attempt++) {
      if (attempt > 0 && attempt % this.urls.length === 0) await delay(PAUSE_MS);
      const reply = await this.send(this.urls[(turn + attempt) % this.urls.length]!, kind, data);
      if (reply === undefined) continue;
      if (reply.status === 503 && reply.retriable) this.stretch.unavailable++;
      else if (reply.status !== 200) throw new Error(`${kind} was answered ${reply.status}: ${JSON.stringify(reply.data)}`);
      else {
        this.stretch.requests++;
        this.stretch.durationsMs.push(performance.now() - begin);
        return reply.data;
      }
    }
    throw new Error(`${kind} ${JSON.stringify(data)} was not answered by any server within ${REQUEST_MS_MAX} ms`);
  }

  /** Sends a request; undefined when there was no answer and it may be sent again. */
  private async send(url: string, kind: string, data: object): Promise<Reply | undefined> {
    const body = JSON.stringify({ kind, head: { corrId: randomUUID(), version: "2026-04-01" }, data });
    try {
      return await this.post(url, body);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === "ECONNREFUSED") this.stretch.refused++;
      else if ((code === "ECONNRESET" || code === "EPIPE") && (error as unknown as Broken).reused) this.stretch.closed++;
      else throw new Error(`${kind} at ${url}: ${error}`, { cause: error });
      return undefined;
    }
  }

  private post(url: string, body: string): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const sent = request(url, { method: "POST", agent: this.agent, headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) } }, (answer) => {
        let text = "";
        answer.setEncoding("utf8");
        answer.on("data", (chunk) => {
          text += chunk;
        });
        answer.on("error", (error) => reject(new Error(`an answer breaks off: ${error.message}`)));
        answer.on("end", () => {
          const { headers, statusCode: status = 0 } = answer;
          try {
            resolve({ status, retriable: headers["retry-after"] !== undefined, data: JSON.parse(text).data });
          } catch (error) {
            reject(error);
          }
        });
      });
      sent.on("error", (error) => reject(Object.assign(error, { reused: sent.reusedSocket } satisfies Broken)));
      sent.end(body);
    });
  }
}

function emptyStretch(): Stretch {
  return { requests: 0, refused: 0, unavailable: 0, closed: 0, durationsMs: [] };
}

/** The duration that so many per cent of the requests do not exceed. */
export function percentile({ durationsMs }: Stretch, percent: number): number {
  const sorted = durationsMs.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? Number.NaN;
}
