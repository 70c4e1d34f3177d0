// The suite process of proxies: node suite.ts <pattern> <seconds>.
//
// Workers and clients reach the server through proxies that buffer and that cut what is silent. Streams must stay up all the
// same, and messages must arrive when they are sent.

import { deepEqual, equal, ok } from "node:assert/strict";
import { Agent, get, type IncomingMessage } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Context } from "resonate-0-11-5";
import { encode, Protocol } from "../harness/protocol.ts";
import { type Cleanup, finish, PATIENCE, report, runScenarios } from "../harness/scenarios.ts";
import { Server } from "../harness/server.ts";
import { until } from "../harness/waiting.ts";
import { missing, Proxies, type Way } from "./proxies.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
/** How many messages are sent one after the other. */
const MESSAGES = 100;
/** A message that is so late was kept back, by a buffer or until the next ping (15 s). */
const LATE_MS = 12_000;
/** How much later than directly messages may arrive, in the median: so much lies between two processes more and a timer. */
const RATIO_MAX = 10 * PATIENCE;
/** How old a stream must be that the server ends, so that its worker opens a new one: see PollOptions.MaxAge. */
const AGE_MS_MIN = 200_000;

const [only = "", secondsText = "60"] = process.argv.slice(2);
const seconds = Number(secondsText);
/** A minute, as nginx has it, where the test lasts long enough for that; not below a ping and what a busy machine adds. */
const silenceSeconds = Math.min(60, Math.max(20, Math.floor(seconds / 4)));
const server = await Server.start();
let proxies: Proxies | undefined;

/** A stream to a worker, as it arrives. */
class Stream {
  readonly openedMs = performance.now();
  readonly messages: string[] = [];
  pings = 0;
  /** How it ended: "whole" if the server ended it, "cut" if it broke off. */
  end: "whole" | "cut" | undefined;
  private readonly answer: IncomingMessage;

  private constructor(answer: IncomingMessage) {
    this.answer = answer;
    let rest = "";
    answer.setEncoding("utf8");
    answer.on("data", (chunk: string) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        if (line.startsWith("data:")) this.messages.push(JSON.parse(line.slice(5)).data.task.id);
        else if (line.startsWith(": ping")) this.pings++;
      }
    });
    answer.on("error", () => { this.end = "cut"; });
    answer.on("close", () => { this.end ??= answer.complete ? "whole" : "cut"; });
  }

  static async open(url: string, group: string, pid: string): Promise<Stream> {
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      get(`${url}/poll/${group}/${pid}`, { agent: new Agent({ keepAlive: false }), headers: { "accept-encoding": "gzip" } }, resolve).on("error", reject);
    });
    equal(answer.statusCode, 200);
    equal(answer.headers["content-type"], "text/event-stream");
    equal(answer.headers["content-encoding"], undefined, "a stream is not compressed");
    return new Stream(answer);
  }

  close(): void {
    this.end ??= "whole";
    this.answer.destroy();
  }
}

/** Creates a task for the group through a way, and gives how long it took until its message was there. */
async function dispatch(protocol: Protocol, stream: Stream, group: string, id: string): Promise<number> {
  const tags = { "resonate:origin": id, "resonate:branch": id, "resonate:parent": id, "resonate:scope": "global", "resonate:target": `poll://any@${group}` };
  const begin = performance.now();
  await protocol.expect("promise.create", { id, timeoutAt: Date.now() + DAY_MS, param: encode(id), tags });
  await until(`the message of ${id} arrives`, () => stream.messages.includes(id), LATE_MS);
  const tookMs = performance.now() - begin;
  await protocol.expect("task.acquire", { id, version: 0, pid: "by-hand", ttl: 60_000 });
  await protocol.expect("task.fulfill", { id, version: 1, action: { kind: "promise.settle", head: {}, data: { id, state: "resolved", value: encode(id) } } });
  return tookMs;
}

async function atOnce({ name, url }: Way): Promise<void> {
  const medians: number[] = [];
  for (const [n, base] of [server.url, url].entries()) {
    const group = `at-once-${new URL(base).port}-${new URL(url).port}`;
    const stream = await Stream.open(base, group, "by-hand");
    const protocol = new Protocol(base);
    const took: number[] = [];
    for (let m = 0; m < MESSAGES; m++) took.push(await dispatch(protocol, stream, group, `${group}-${m}`));
    stream.close();
    medians[n] = took.sort((a, b) => a - b)[MESSAGES >> 1]!;
  }
  note(`${name}: ${MESSAGES} messages, one after the other: median ${medians[1]!.toFixed(1)} ms, directly ${medians[0]!.toFixed(1)} ms`);
  ok(medians[1]! <= RATIO_MAX * medians[0]!, `${name}: messages are kept back`);
}

/** Keeps a stream of a worker open; messages come only at the beginning, in the middle, and at the end. */
async function stayUp({ name, url }: Way): Promise<void> {
  const group = `stay-up-${new URL(url).port}`;
  const protocol = new Protocol(url);
  let stream = await Stream.open(url, group, "by-hand");
  let [pings, ended, sent] = [0, 0, 0];
  const begin = performance.now();
  const took: number[] = [];
  while (sent < 3) {
    if (stream.end !== undefined) {
      const ageMs = performance.now() - stream.openedMs;
      equal(stream.end, "whole", `${name}: the stream broke off after ${(ageMs / 1000).toFixed(0)} s`);
      ok(ageMs >= AGE_MS_MIN, `${name}: the stream ended after ${(ageMs / 1000).toFixed(0)} s`);
      [pings, ended] = [pings + stream.pings, ended + 1];
      stream = await Stream.open(url, group, "by-hand");
    }
    if (performance.now() - begin >= (sent * seconds * 1000) / 2) took.push(await dispatch(protocol, stream, group, `${group}-${sent++}`));
    await delay(50);
  }
  equal(stream.end, undefined, `${name}: the stream is up in the end`);
  pings += stream.pings;
  stream.close();
  ok(pings >= seconds / 30, `${name}: ${pings} pings arrived in ${seconds} s`);
  note(`${name}: up for ${seconds} s of which it was silent but for ${pings} pings; ended by the server and opened again ${ended} times; messages took ${took.map((ms) => ms.toFixed(0)).join(", ")} ms`);
}

/** One workflow of the SDK whose every request goes through the proxy, before and after a restart of the server. */
async function workflow({ url }: Way, cleanup: Cleanup): Promise<void> {
  const sdk = await import("resonate-0-11-5");
  const group = `workflow-${new URL(url).port}`;
  const worker = new sdk.Resonate({ url, group, logLevel: "error" });
  cleanup(() => worker.stop());
  worker.register("double", (_: Context, n: number) => 2 * n);
  worker.register("quadruple", function* (context: Context, n: number): Generator<any, any, any> {
    const once = yield* context.run(async (_: Context, m: number) => 2 * m, n);
    return yield* context.rpc("double", once, context.options({ target: `poll://any@${group}` }));
  });
  equal(await worker.run(`${group}-first`, "quadruple", 4), 16);
  await server.stop();
  await delay(1_000); // the proxy answers 502 meanwhile
  await server.restart();
  await until("the workflow goes through", async () => {
    const handle = await worker.beginRun(`${group}-second`, "quadruple", 5).catch(() => undefined);
    return handle !== undefined && (await handle.result()) === 20;
  });
  await worker.stop();
}

function note(line: string): void {
  report({ report: "note", line });
}

async function ways(): Promise<Way[]> {
  proxies ??= await Proxies.start(server.url, silenceSeconds);
  return proxies.ways;
}

const scenarios = [
  {
    name: "messages arrive when they are sent",
    timeoutMs: 120_000,
    run: async () => {
      for (const way of await ways()) await atOnce(way);
    },
  },
  {
    name: `streams stay up for ${seconds} s where ${silenceSeconds} s of silence are cut`,
    timeoutMs: seconds * 1000 + 60_000,
    run: async () => {
      await Promise.all((await ways()).map(stayUp));
      deepEqual(proxies!.cuts, [], "nginx cut nothing");
    },
  },
  {
    name: "a workflow of the SDK, and another after a restart of the server",
    timeoutMs: 120_000,
    run: async (cleanup: Cleanup) => {
      for (const way of await ways()) await workflow(way, cleanup);
    },
  },
];

const lacking = missing();
if (lacking.length > 0) report({ report: "skip", reason: `${lacking.join(" and ")} not installed (apt-get install ${lacking.join(" ")})` });
else await runScenarios(scenarios, new RegExp(only), () => [...server.log, ...(proxies?.log ?? [])]);
await proxies?.end();
await finish();
