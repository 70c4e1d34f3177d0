// The suite process of several servers: node suite.ts <pattern> <seed> <seconds of random kills>.
//
// Three servers share a store. Workers are connected to some, work is created through others. Servers, workers and the
// database server are killed with SIGKILL at random moments; and the servers are restarted one after the other, as an
// operator rolls out a release.

import { deepEqual, equal, ok } from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import type { Context } from "resonate-0-11-5";
import { encode, Protocol } from "../harness/protocol.ts";
import { type Cleanup, finish, PATIENCE, runScenarios } from "../harness/scenarios.ts";
import { serverBinary } from "../harness/server.ts";
import { databaseServer, onFile, unkillable } from "../harness/storage.ts";
import { until } from "../harness/waiting.ts";
import { Random } from "../kill/random.ts";
import { DRAIN_MS_MAX, note, Trial, typescriptWorker } from "../kill/trial.ts";
import { dialects } from "../typescript/stage.ts";
import { Load, percentile } from "./load.ts";
import { Trio } from "./trio.ts";

const SDK = "0.11.5";
const DAY_MS = 24 * 60 * 60 * 1000;
/** Longer than a server's lease, so that the others find it dead. */
const LONG_ABSENCE_MS = 12_000;
/** How much longer the slowest requests may take while servers are restarted: they share two processors with a process that starts. */
const P99_RATIO_MAX = 20 * PATIENCE;
const ROLLING_ROUNDS = 2;
const CALLS = 20;

const [only = "", seedText = "1", secondsText = "60"] = process.argv.slice(2);
const [seed, seconds] = [Number(seedText), Number(secondsText)];
let log = () => [] as string[];

/** A worker of server A does what is created at B and C. */
async function crossing(cleanup: Cleanup): Promise<void> {
  const trio = await Trio.start();
  cleanup(() => trio.kill());
  log = () => trio.log;
  const [a, b, c] = trio.servers;
  const sdk = await import("resonate-0-11-5");
  const worker = new sdk.Resonate({ url: a.url, group: "crossing", logLevel: "error" });
  cleanup(() => worker.stop());
  let ran = 0;
  worker.register("double", async (_: Context, n: number) => {
    ran++;
    return 2 * n;
  });
  const call = async (url: string, name: string) => {
    const protocol = new Protocol(url);
    const durations: number[] = [];
    for (let n = 0; n < CALLS; n++) {
      const id = `${name}-${n}`;
      const begin = performance.now();
      const tags = { "resonate:origin": id, "resonate:branch": id, "resonate:parent": id, "resonate:scope": "global", "resonate:target": "poll://any@crossing" };
      await protocol.expect("promise.create", { id, timeoutAt: Date.now() + DAY_MS, param: encode({ func: "double", args: [n], version: 1 }), tags });
      await until(`${id} has ended`, async () => (await protocol.promise(id)).state === "resolved");
      durations.push(performance.now() - begin);
    }
    return durations.toSorted((x, y) => x - y)[CALLS >> 1]!;
  };
  const here = await call(a.url, "at-a");
  const elsewhere = [await call(b.url, "at-b"), await call(c.url, "at-c")];
  equal(ran, 3 * CALLS, "each call ran once");
  note(`${CALLS} calls each, median of creation to result: ${here.toFixed(0)} ms at the worker's server, ${elsewhere.map((ms) => ms.toFixed(0)).join(" and ")} ms at others`);
  const census = JSON.parse(execFileSync(serverBinary(), ["cluster", "--json", "--url", trio.metricsUrl(1)], { encoding: "utf8" }));
  deepEqual(census.servers.map(({ live }: { live: boolean }) => live), [true, true, true], "abide cluster shows three live servers");
  equal(new Set(census.servers.map(({ id }: { id: string }) => id)).size, 3);
  equal(census.servers.reduce((sum: number, { connections }: { connections: number }) => sum + connections, 0), 1, "it shows one worker");
  await worker.stop();
  await trio.end();
}

/** The random kills of servers, workers and the database for a time. */
class Chaos {
  readonly counts = { server: 0, "two servers": 0, "server for longer than its lease": 0, worker: 0, database: 0 };
  private readonly trio: Trio;
  private readonly trial: Trial;
  private readonly random: Random;
  private readonly until = performance.now() + seconds * 1000;

  constructor(trio: Trio, trial: Trial, random: Random) {
    this.trio = trio;
    this.trial = trial;
    this.random = random;
  }

  async run(): Promise<void> {
    await Promise.all([this.killServers(), this.killWorkers(), ...(unkillable ? [] : [this.killDatabase()])]);
  }

  private get over(): boolean {
    this.trial.check();
    return performance.now() > this.until;
  }

  private async killServers(): Promise<void> {
    for (;;) {
      await delay(this.random.between(200, 2_000));
      if (this.over) return;
      const first = this.random.between(0, 3);
      const draw = this.random.between(0, 12);
      const victims = draw === 0 ? [first, (first + 1) % 3] : [first];
      this.counts[draw === 0 ? "two servers" : draw === 1 ? "server for longer than its lease" : "server"]++;
      await Promise.all(victims.map((n) => this.trio.servers[n]!.kill()));
      await delay(draw === 1 ? LONG_ABSENCE_MS : this.random.between(0, 1_500));
      await Promise.all(victims.map((n) => this.trio.restart(n)));
      await this.trial.readAgain();
    }
  }

  private async killWorkers(): Promise<void> {
    for (;;) {
      await delay(this.random.between(1_000, 12_000));
      if (this.over) return;
      const n = this.random.between(0, 2);
      this.counts.worker++;
      await this.trial.killWorker(n);
      await delay(this.random.between(0, 1_000));
      this.trial.startWorker(n);
    }
  }

  private async killDatabase(): Promise<void> {
    const database = await databaseServer();
    for (;;) {
      await delay(this.random.between(3_000, 15_000));
      if (this.over) return;
      this.counts.database++;
      await database.kill();
      await delay(this.random.between(0, 1_500));
      await database.restart();
      await this.trial.readAgain();
    }
  }
}

/** Workers at A and C; the client at B, and at C while B is dead. */
function trialOn(trio: Trio, random: Random, inFlight: number, cleanup: Cleanup): Trial {
  const [a, b, c] = trio.servers;
  const trial = new Trial({ workers: [a.url, c.url], client: [b.url, c.url] }, dialects[SDK]!, typescriptWorker(SDK), random, inFlight);
  cleanup(() => trio.kill());
  cleanup(() => trial.stop());
  log = () => [...trio.log, ...trial.log];
  return trial;
}

async function randomKills(cleanup: Cleanup): Promise<void> {
  const trio = await Trio.start();
  const random = new Random(seed);
  const trial = trialOn(trio, random, 50, cleanup);
  await trial.begin(2);
  const chaos = new Chaos(trio, trial, random);
  await chaos.run();
  const figures = await trial.end();
  await trio.end();
  note(`killed in ${seconds} s: ${Object.entries(chaos.counts).map(([victim, n]) => `${victim} ${n} times`).join(", ")}${unkillable ? ` (${unkillable})` : ""}`);
  note(figures);
}

async function rollingRestart(cleanup: Cleanup): Promise<void> {
  const trio = await Trio.start();
  const trial = trialOn(trio, new Random(seed + 1), 20, cleanup);
  await trial.begin(2);
  const load = new Load(trio.servers.map(({ url }) => `${url}/w/load`), 16);
  await delay(2_000);
  load.next(); // connections were made and caches filled
  await delay(6_000);
  const before = load.next();
  for (let round = 0; round < ROLLING_ROUNDS; round++) {
    for (const server of trio.servers) {
      await server.stop();
      await server.restart();
      trial.check();
      load.check();
    }
  }
  const during = load.next();
  const promises = await load.end();
  const figures = await trial.end();
  await trio.end();
  const [was, is] = [percentile(before, 99), percentile(during, 99)];
  note(
    `${ROLLING_ROUNDS * 3} restarts, ${during.requests} requests meanwhile: ${during.refused} connections refused, ${during.unavailable} answers 503, ` +
      `${during.closed} kept connections closed under a request; ${promises} promises settled in all, none lost`,
  );
  note(
    `p50 ${percentile(before, 50).toFixed(0)} ms before, ${percentile(during, 50).toFixed(0)} ms during; p99 ${was.toFixed(0)} ms before, ${is.toFixed(0)} ms during; ` +
      `longest ${percentile(during, 100).toFixed(0)} ms`,
  );
  note(figures);
  equal(before.refused + before.unavailable + before.closed, 0, "nobody is turned away while nothing is restarted");
  ok(is <= P99_RATIO_MAX * was, `p99 rises from ${was.toFixed(0)} to ${is.toFixed(0)} ms while servers are restarted; at most ${P99_RATIO_MAX} times as much`);
}

if (onFile) throw new Error("several servers cannot share a file: run the suite with --storage");
note(`seed ${seed}: the same kills again with --seed ${seed}`);
const scenarios = [
  { name: "a worker of one server does what is created at the others", timeoutMs: 240_000, run: crossing },
  { name: `three servers, random kills for ${seconds} s, SDK ${SDK}, seed ${seed}`, timeoutMs: 2 * seconds * 1000 + 120_000 + 2 * DRAIN_MS_MAX, run: randomKills },
  { name: "rolling restart under load: nothing is lost, nobody hears of it", timeoutMs: 180_000 + DRAIN_MS_MAX, run: rollingRestart },
];
await runScenarios(scenarios, new RegExp(only), () => log());
await finish();
