// The speed of workflows through the TypeScript SDK: node latency.ts [--url URL] [--rounds N] [--in-flight N].
//
// Prints one JSON object and asserts nothing. Without a url it starts a server of its own (with e2e/run's binary).

import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { type Context, Resonate } from "resonate-0-11-5";
import { Server } from "../harness/server.ts";

const { values } = parseArgs({
  options: {
    url: { type: "string" },
    rounds: { type: "string", default: "200" },
    "in-flight": { type: "string", default: "20" },
  },
});
const rounds = Number(values.rounds);
const inFlight = Number(values["in-flight"]);
const url = values.url ?? (await Server.start()).url;
const group = `latency-${process.pid}`;
const resonate = new Resonate({ url, group, logLevel: "error" });
const mine = resonate.options({ target: group });
const run = `latency-${Date.now()}`;
let names = 0;
const name = () => `${run}-${names++}`;

const step = async (_: Context, n: number) => n + 1;
const threeSteps = resonate.register("three-steps", function* (ctx: Context): Generator<any, number, any> {
  let n = 0;
  for (let i = 0; i < 3; i++) n = yield* ctx.run(step, n);
  return n;
});
const nap = resonate.register("nap", function* (ctx: Context, ms: number): Generator<any, void, any> {
  yield* ctx.sleep(ms);
});

function percentile(samples: number[], part: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]! * 100) / 100;
}

const spread = (samples: number[]) => ({ p50: percentile(samples, 0.5), p95: percentile(samples, 0.95), max: percentile(samples, 1) });

/** How long each of a number of acts takes, one after another. */
async function oneAtATime(times: number, act: () => Promise<unknown>): Promise<number[]> {
  const samples: number[] = [];
  for (let i = 0; i < times; i++) {
    const begin = performance.now();
    await act();
    samples.push(performance.now() - begin);
  }
  return samples;
}

/** Acts per second with several in flight, and the processor time that this process alone spent on each. */
async function perSecond(times: number, act: () => Promise<unknown>) {
  let left = times;
  const begin = performance.now();
  const cpuBegin = process.cpuUsage();
  const lane = async () => {
    while (left-- > 0) await act();
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  const seconds = (performance.now() - begin) / 1000;
  const cpu = process.cpuUsage(cpuBegin);
  return { perSecond: Math.round(times / seconds), clientCpuMsEach: Math.round((cpu.user + cpu.system) / times / 10) / 100 };
}

/** How long after its deadline a durable sleep of 20 ms is recorded as over, and its workflow as ended. */
async function lateness(times: number) {
  const timer: number[] = [];
  const workflow: number[] = [];
  for (let i = 0; i < times; i++) {
    const id = name();
    await nap.run(id, 20);
    const now = Date.now();
    const { timeoutAt } = await resonate.promises.get(`${id}:0`);
    const root = await resonate.promises.get(id);
    timer.push((root.settledAt ?? now) - timeoutAt);
    workflow.push(now - timeoutAt);
  }
  return { settledLateMs: spread(timer), resultLateMs: spread(workflow) };
}

const byRun = () => threeSteps.run(name());
const byRpc = () => threeSteps.rpc(name(), mine);
await delay(300); // the stream is open by then
await oneAtATime(20, byRun);
await oneAtATime(20, byRpc);
console.log(
  JSON.stringify(
    {
      rounds,
      inFlight,
      threeStepsByRunMs: spread(await oneAtATime(rounds, byRun)),
      threeStepsByRpcMs: spread(await oneAtATime(rounds, byRpc)),
      inFlightByRun: await perSecond(rounds * 5, byRun),
      inFlightByRpc: await perSecond(rounds * 5, byRpc),
      sleepOf20Ms: await lateness(Math.ceil(rounds / 4)),
    },
    null,
    2,
  ),
);
await resonate.stop();
process.exit(0);
