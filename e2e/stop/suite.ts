// The suite process of stops: node suite.ts <pattern> <seed> <stops>.
//
// The server is asked to end by SIGTERM again and again while workers and clients are busy. It must leave with code 0 in time,
// lose nothing, say that it is not ready before it is gone, and write nothing of a fault into its log.

import { deepEqual, equal, ok } from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import type { Context } from "resonate-0-11-5";
import { Load } from "../cluster/load.ts";
import { encode, Protocol } from "../harness/protocol.ts";
import { type Cleanup, finish, PATIENCE, runScenarios } from "../harness/scenarios.ts";
import { checkStore, Server } from "../harness/server.ts";
import { until } from "../harness/waiting.ts";
import { Random } from "../kill/random.ts";
import { DRAIN_MS_MAX, note, Trial, typescriptWorker } from "../kill/trial.ts";
import { dialects } from "../typescript/stage.ts";
import { obstruct, Prober } from "./bystanders.ts";
import { Dispatches, LEASE_MS } from "./dispatches.ts";

const SDK = "0.11.5";
const DAY_MS = 24 * 60 * 60 * 1000;
/** Money transfers, other promises, and tasks of workers written by hand, in flight during the stops. */
const [TRANSFERS, CLIENTS, OPEN] = [25, 8, 20];
const PAUSE_MS_MAX = 1_000;
/** The SDK opens its stream again a second after a loss, and two, four ... after losses in a row. */
const AT_WORK_MS_MAX = 10_000;
/** The share of stops in which the prober must have heard 503, and of few stops one: it shares two processors with all the others. */
const [SEEN_MIN, FEW] = [0.8, 20];
/** Tasks of which a stop catches some in mid-dispatch. */
const DISPATCHES = 1_000;
/** A time until a task that was delivered, and not claimed, is delivered again, for which nobody can wait here; nor for LEASE_MS. */
const RETRY_LATE = ["--tasks-retry-timeout", "10m"];
/** How long all open tasks may take to end. */
const END_MS_MAX = 90_000 * PATIENCE;

const [only = "", seedText = "1", stopsText = "5"] = process.argv.slice(2);
const [seed, stops] = [Number(seedText), Number(stopsText)];
let log = () => [] as string[];

async function startServer(cleanup: Cleanup, flags: string[] = []): Promise<Server> {
  const server = await Server.start(flags);
  cleanup(() => server.kill());
  log = () => server.log;
  return server;
}

/** Ends the test's server for the last time, and looks at what it left. */
async function endServer(server: Server): Promise<void> {
  await server.stop();
  deepEqual(server.faults, [], "lines of the log that tell of a fault");
  checkStore(server.store);
}

async function stopsUnderLoad(cleanup: Cleanup): Promise<void> {
  const random = new Random(seed);
  const server = await startServer(cleanup);
  const trial = new Trial(server.url, dialects[SDK]!, typescriptWorker(SDK), random, TRANSFERS);
  cleanup(() => trial.stop());
  log = () => [...server.log, ...trial.log];
  const dispatches = new Dispatches(`${server.url}/w/dispatch`, "hand");
  cleanup(() => dispatches.leave());
  const prober = new Prober(server.url);
  cleanup(() => prober.end());
  await trial.begin(1);
  const load = new Load([`${server.url}/w/load`], CLIENTS);
  dispatches.work(2);
  const creating = dispatches.keepOpen(OPEN);
  const took: number[] = [];
  let heard = 0;
  for (let n = 1; n <= stops; n++) {
    if (random.between(0, 4) > 0) await trial.waitUntilAtWork(AT_WORK_MS_MAX);
    await delay(random.between(0, PAUSE_MS_MAX));
    trial.atWork = false;
    const obstacles = random.between(0, 3) === 0 ? await obstruct(server.url) : [];
    prober.begin();
    const begin = performance.now();
    await server.stop();
    took.push(performance.now() - begin);
    await until("the prober finds nobody", () => prober.seen.at(-1) === 0);
    if (prober.seen.includes(503)) heard++;
    for (const obstacle of obstacles) obstacle.destroy();
    deepEqual(server.faults, [], "lines of the log that tell of a fault");
    await server.restart();
    await trial.readAgain();
    for (const each of [load, dispatches]) each.check();
    if (n % 10 === 0 || n === stops) note(`stopped ${n} of ${stops} times: ${trial.transfers.ended} transfers ended, ${dispatches.received} tasks dispatched`);
  }
  const { refused, unavailable, closed } = load.next();
  const promises = await load.end();
  dispatches.stop();
  await creating;
  await until("every dispatch has ended", () => dispatches.open === 0 || dispatches.check() !== undefined, END_MS_MAX);
  await dispatches.judge();
  const figures = await trial.end();
  dispatches.leave();
  prober.end();
  await endServer(server);
  took.sort((a, b) => a - b);
  note(`a stop took ${took[took.length >> 1]!.toFixed(0)} ms (median), ${took.at(-1)!.toFixed(0)} at most; /ready was heard to be 503 in ${heard} of ${stops}`);
  note(`${promises} promises settled by clients: ${refused} connections refused, ${unavailable} answers 503, ${closed} kept connections closed under a request`);
  note(`${dispatches.all.size} tasks dispatched by hand, ${dispatches.givenUp} claims turned away, ${dispatches.late} too late`);
  note(figures);
  ok(heard >= (stops < FEW ? Math.min(1, stops) : SEEN_MIN * stops), `/ready was heard to be 503 in ${heard} of ${stops} stops`);
}

async function stopDuringDispatches(cleanup: Cleanup): Promise<void> {
  const random = new Random(seed + 1);
  const server = await startServer(cleanup, RETRY_LATE);
  for (let round = 0; round < Math.max(2, Math.ceil(stops / 20)); round++) {
    const dispatches = new Dispatches(`${server.url}/w/round-${round}`, `group-${round}`);
    cleanup(() => dispatches.leave());
    dispatches.work(4);
    const created = dispatches.create(DISPATCHES);
    const some = random.between(DISPATCHES / 10, (DISPATCHES * 9) / 10);
    await until(`${some} tasks have been dispatched`, () => dispatches.received >= some, END_MS_MAX);
    const open = dispatches.open;
    await server.stop();
    await server.restart();
    const begin = performance.now();
    await created;
    await until("every dispatch has ended", () => dispatches.open === 0 || dispatches.check() !== undefined, END_MS_MAX);
    const restMs = performance.now() - begin;
    await dispatches.judge();
    const { all, givenUp, late, received } = dispatches;
    dispatches.leave();
    equal(all.size, DISPATCHES);
    const waits = [...all.values()].map(({ createdMs, endedMs }) => endedMs! - createdMs);
    note(
      `stopped with ${open} tasks open: ${received} messages for ${DISPATCHES} tasks, ${givenUp} claims turned away, ${late} too late; ` +
        `the last one done ${restMs.toFixed(0)} ms after the start; longest from creation to end ${Math.max(...waits).toFixed(0)} ms`,
    );
    ok([...all.values()].every(({ claims }) => claims === 1), "each task was claimed once");
  }
  await endServer(server);
}

/** A stop neither ends leases nor prolongs them. */
async function leasesOverAStop(cleanup: Cleanup): Promise<void> {
  const server = await startServer(cleanup);
  const protocol = new Protocol(server.url);
  const hold = async (id: string, ttl: number) => {
    const tags = { "resonate:origin": id, "resonate:branch": id, "resonate:parent": id, "resonate:scope": "global", "resonate:target": "poll://any@held" };
    const action = { kind: "promise.create", head: {}, data: { id, timeoutAt: Date.now() + DAY_MS, param: {}, tags } };
    return (await protocol.expect("task.create", { pid: `holder-of-${id}`, ttl, action })).task;
  };
  const fulfill = (id: string, version: number) =>
    protocol.request("task.fulfill", { id, version, action: { kind: "promise.settle", head: {}, data: { id, state: "resolved", value: {} } } });
  const kept = await hold("kept", LEASE_MS);
  const left = await hold("left", 1_500);
  await server.stop();
  await server.restart();
  const { ttl: _, ...before } = kept;
  const { ttl: __, ...after } = await protocol.task("kept");
  deepEqual(after, before, "a task is held over a stop as it was");
  const renewed = await protocol.expect("task.heartbeat", { pid: "holder-of-kept", tasks: [{ id: "kept", version: kept.version }] });
  deepEqual(renewed, {}, "its holder can renew it");
  equal((await fulfill("kept", kept.version)).status, 200, "its holder can fulfil it");
  await until("the lease that nobody renews has lapsed", async () => (await protocol.task("left")).state === "pending");
  equal((await protocol.task("left")).version, left.version, "a lapse keeps the version");
  const heir = new Dispatches(server.url, "held");
  cleanup(() => heir.leave());
  heir.work(1);
  await until("another worker has done it", async () => (await protocol.promise("left")).state === "resolved", END_MS_MAX);
  equal((await fulfill("left", left.version)).status, 409, "who held it before is fenced off");
  heir.leave();
  await endServer(server);
}

/** A step of the SDK's worker that takes longer than three stops runs once. */
async function stepOverStops(cleanup: Cleanup): Promise<void> {
  const server = await startServer(cleanup);
  const sdk = await import("resonate-0-11-5");
  const worker = new sdk.Resonate({ url: server.url, group: "steps", ttl: 20_000 * PATIENCE, logLevel: "error" });
  cleanup(() => worker.stop());
  let runs = 0;
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  worker.register("long", function* (context: Context): Generator<any, any, any> {
    return yield* context.run(async () => {
      runs++;
      await released;
      return "done";
    });
  });
  const tags = { "resonate:origin": "long", "resonate:branch": "long", "resonate:parent": "long", "resonate:scope": "global", "resonate:target": "poll://any@steps" };
  const protocol = new Protocol(server.url);
  await protocol.expect("promise.create", { id: "long", timeoutAt: Date.now() + DAY_MS, param: encode({ func: "long", args: [], version: 1 }), tags });
  await until("the step runs", () => runs > 0);
  for (let n = 0; n < 3; n++) {
    await server.stop();
    await server.restart();
    await delay(500);
  }
  release();
  await until("the workflow has ended", async () => (await protocol.promise("long")).state === "resolved");
  equal(runs, 1, "the step ran once");
  await worker.stop();
  await endServer(server);
}

note(`seed ${seed}: the same stops again with --seed ${seed}`);
const scenarios = [
  { name: `SIGTERM ${stops} times under load, SDK ${SDK}, seed ${seed}`, timeoutMs: 150_000 + DRAIN_MS_MAX + stops * 16_000, run: stopsUnderLoad },
  { name: `SIGTERM during ${DISPATCHES} dispatches: none is lost, none waits for a lease or a retry`, timeoutMs: 60_000 + Math.max(2, Math.ceil(stops / 20)) * 200_000, run: stopDuringDispatches },
  { name: "leases run on over a stop: a holder keeps its task, a task without one comes again", timeoutMs: 180_000, run: leasesOverAStop },
  { name: `a step that lasts longer than three stops runs once, SDK ${SDK}`, timeoutMs: 180_000, run: stepOverStops },
];
await runScenarios(scenarios, new RegExp(only), () => log());
await finish();
