// Scenarios of waiting: sleeps, promises from outside, deadlines, schedules, leases, late workers, odd ids and urls.

import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import type { Context } from "resonate-0-11-5";
import type { Context as AsyncContext } from "resonate-0-11-5/async";
import { encode, Protocol } from "../harness/protocol.ts";
import { PATIENCE } from "../harness/scenarios.ts";
import { until } from "../harness/waiting.ts";
import type { NamedScenario } from "./stage.ts";

/** Short, so that it lapses soon; not so short that a busy machine lets it lapse. */
const LEASE_MS = 2_000 * PATIENCE;

export const waits: NamedScenario[] = [
  {
    name: "sleep: 50 ms and 5 s, each ends at its own time",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const flow = resonate.register("nap", function* (ctx: Context, ms: number): Generator<any, number, any> {
        yield* ctx.sleep(ms);
        return ms;
      });
      const ended: number[] = [];
      const [long, short] = [stage.name("long"), stage.name("short")];
      await Promise.all(
        ([[long, 5_000], [short, 50]] as const).map(async ([id, ms]) => {
          const begin = Date.now();
          ended.push(await flow.run(id, ms));
          ok(Date.now() - begin >= ms, `a sleep of ${ms} ms took ${Date.now() - begin}`);
        }),
      );
      deepEqual(ended, [50, 5_000]);
      for (const id of [long, short]) {
        const tree = await stage.expectTree(id, { "": "resolved", "0": "resolved" });
        const timer = tree.get("0")!;
        equal("resonate:target" in timer.tags, stage.dialect.sleepHasTarget);
        equal(timer.settledAt, timer.timeoutAt, "a timer settles at its deadline");
        deepEqual(timer.value, {});
        ok(tree.get("")!.settledAt! >= timer.timeoutAt);
      }
    },
  },
  {
    name: "a promise of a workflow is resolved from outside",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const flow = resonate.register("approval", function* (ctx: Context): Generator<any, string, any> {
        const decision = yield* ctx.promise<string>();
        return `decided: ${yield* decision}`;
      });
      const id = stage.name("approval");
      const handle = await flow.beginRun(id);
      await until("the workflow waits", async () => (await stage.protocol.task(id)).state === "suspended");
      const outside = stage.connect(cleanup);
      const decision = stage.descendant(id, "0");
      await outside.promises.resolve(decision, encode("yes"));
      const again = await outside.promises.reject(decision, encode("no"));
      equal(again.state, "resolved", "the first decision stands");
      equal(await handle.result(), "decided: yes");
      await stage.expectTree(id, { "": "resolved", "0": { state: "resolved", scope: "global" } });
    },
  },
  {
    name: "a promise of a workflow is rejected from outside",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const flow = resonate.register("approval", function* (ctx: Context): Generator<any, string, any> {
        try {
          return yield* yield* ctx.promise<string>();
        } catch (reason) {
          return `refused: ${reason}`;
        }
      });
      const id = stage.name("refusal");
      const handle = await flow.beginRun(id);
      await until("the promise exists", async () => (await stage.protocol.request("promise.get", { id: stage.descendant(id, "0") })).status === 200);
      await resonate.promises.reject(stage.descendant(id, "0"), encode("too dear"));
      equal(await handle.result(), "refused: too dear");
      await stage.expectTree(id, { "": "resolved", "0": "rejected" });
    },
  },
  {
    name: "deadline and cancellation end a call that nobody serves",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const nowhere = stage.name("nowhere");
      const [late, unwanted] = [stage.name("late"), stage.name("unwanted")];
      const lateHandle = await resonate.beginRpc(late, "nothing", resonate.options({ target: nowhere, timeout: 100 }));
      await rejects(lateHandle.result(), /Promise timedout/);
      const unwantedHandle = await resonate.beginRpc(unwanted, "nothing", resonate.options({ target: nowhere }));
      const result = rejects(unwantedHandle.result(), /Promise canceled/);
      await resonate.promises.cancel(unwanted);
      await result;
      await stage.expectTree(late, { "": "rejected_timedout" });
      await stage.expectTree(unwanted, { "": "rejected_canceled" });
    },
  },
  {
    name: "schedule: fires every second until it is deleted",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const heard: string[] = [];
      resonate.register("tick", async (ctx: Context, word: string) => {
        heard.push(word);
        return ctx.id;
      });
      const id = stage.name("every-second");
      const schedule = await resonate.schedule(id, "* * * * * *", "tick", "tock", resonate.options({ target: resonate.group }));
      cleanup(() => schedule.delete());
      await until("it fired twice", () => heard.length >= 2);
      await schedule.delete();
      equal((await stage.protocol.request("schedule.get", { id })).status, 404);
      const pending = async () => (await stage.protocol.promisesWith({ "resonate:schedule": id })).filter((promise) => promise.state === "pending");
      await until("all that it started ended", async () => (await pending()).length === 0);
      const fired = await stage.protocol.promisesWith({ "resonate:schedule": id });
      equal(fired.length, heard.length);
      const instants = fired.map((promise) => {
        equal(stage.value(promise), promise.id);
        equal(promise.tags["resonate:origin"], promise.id);
        const instant = Number(stage.dialect.scheduled(id).exec(promise.id)?.[1]);
        equal(promise.createdAt, instant);
        return instant;
      });
      instants.forEach((instant, n) => equal(instant, instants[0]! + 1_000 * n, "one promise for each second"));
      await delay(1_200);
      equal((await stage.protocol.promisesWith({ "resonate:schedule": id })).length, fired.length, "nothing fires after the deletion");
    },
  },
  {
    name: "lease: a step that takes 2.5 leases is kept by heartbeats and runs once",
    run: async (stage, cleanup) => {
      const worker = stage.connect(cleanup, { ttl: LEASE_MS });
      let ran = 0;
      worker.register("slow", async () => {
        ran++;
        await delay(2.5 * LEASE_MS);
        return ran;
      });
      const id = stage.name("slow-rpc");
      const caller = stage.connect(cleanup);
      equal(await caller.rpc(id, "slow", caller.options({ target: worker.group })), 1);
      equal(ran, 1);
      equal((await stage.protocol.task(id)).version, 1);
      await stage.expectTree(id, { "": "resolved" });
    },
  },
  {
    name: "lease: started by run, a step that outlives its lease still ends, recorded once",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup, { ttl: LEASE_MS });
      let ran = 0;
      const slow = resonate.register("slow", async () => {
        const mine = ++ran;
        await delay(1.8 * LEASE_MS);
        return mine;
      });
      const id = stage.name("slow-run");
      const result = await slow.run(id);
      const task = await stage.protocol.task(id);
      equal(task.version, result, "the result is that of the last claim");
      if (stage.dialect.runRenewsItsLease) equal(ran, 1);
      else equal(ran, 2, "without heartbeats the lease lapses once and the step is started again");
      const tree = await stage.expectTree(id, { "": "resolved" });
      equal(stage.value(tree.get("")), result);
    },
  },
  {
    name: "lease: the longest that the SDK can ask for, which makes it send a heartbeat every millisecond",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup, { ttl: Number.MAX_SAFE_INTEGER });
      const beats = () => stage.answered.get("task.heartbeat") ?? 0;
      const before = beats();
      resonate.register("slow", async () => {
        await until("heartbeats are answered", () => beats() - before > 20);
        return "done";
      });
      const id = stage.name("long-lease");
      equal(await resonate.rpc(id, "slow", resonate.options({ target: resonate.group })), "done");
      equal((await stage.protocol.task(id)).version, 1);
      await stage.expectTree(id, { "": "resolved" });
    },
  },
  {
    name: "a worker that connects after the task was made gets it at once",
    run: async (stage, cleanup) => {
      const caller = stage.connect(cleanup);
      const group = stage.name("late-group");
      const ids = [...Array(10)].map(() => stage.name("early"));
      const handles = await Promise.all(ids.map((id) => caller.beginRpc<string>(id, "greet", caller.options({ target: group }))));
      await delay(500);
      for (const id of ids) equal((await stage.protocol.task(id)).state, "pending");
      let ran = 0;
      const worker = stage.connect(cleanup, { group });
      worker.register("greet", async () => {
        ran++;
        return "at last";
      });
      deepEqual(await Promise.all(handles.map((handle) => handle.result())), ids.map(() => "at last"));
      equal(ran, ids.length);
      for (const id of ids) await stage.expectTree(id, { "": "resolved" });
    },
  },
  {
    name: "ids are opaque: spaces, slashes, dots, emoji, newlines, percent signs",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const flow = resonate.register("flow", function* (ctx: Context): Generator<any, string, any> {
        yield* ctx.sleep(1);
        return yield* ctx.run(async () => "done");
      });
      for (const odd of ["a b", "a/b/c", "..", "./../x", "line\nbreak\ttab", "50%25?x=1#y", "crab 🦀 naïve", "\"quoted\" \\ 'id'"]) {
        const id = `${stage.name("odd")} ${odd}`;
        equal(await flow.run(id), "done", JSON.stringify(id));
        await stage.expectTree(id, { "": "resolved", "0": "resolved", "1": "resolved" });
      }
    },
  },
  {
    name: "ids: the prefix that some releases put before a root's id, with a colon",
    run: async (stage, cleanup) => {
      process.env.RESONATE_PREFIX = "shop";
      const resonate = stage.connect(cleanup);
      delete process.env.RESONATE_PREFIX;
      const flow = resonate.register("flow", function* (ctx: Context): Generator<any, string, any> {
        yield* ctx.sleep(1);
        return yield* ctx.run(async () => "done");
      });
      const id = stage.name("prefixed");
      equal(await flow.run(id), "done");
      await stage.expectTree(stage.dialect.hasPrefix ? `shop:${id}` : id, { "": "resolved", "0": "resolved", "1": "resolved" });
    },
  },
  {
    name: "the url may end in a slash",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup, { url: `${stage.server.url}/` });
      resonate.register("echo", async (_: Context, word: string) => word);
      const id = stage.name("slash");
      equal(await resonate.rpc(id, "echo", "heard", resonate.options({ target: resonate.group })), "heard");
      await stage.expectTree(id, { "": "resolved" });
    },
  },
  {
    name: "a workspace by path keeps its own promises and workers",
    run: async (stage, cleanup) => {
      const group = stage.name("shared-name");
      // Below a path the SDK reads its own group and pid off the wrong places: the server has to put up with that.
      const inside = stage.connect(cleanup, { group, url: `${stage.server.url}/w/orders` });
      const outside = stage.connect(cleanup, { group });
      const where = (answer: string) =>
        function* (ctx: Context): Generator<any, string, any> {
          yield* ctx.sleep(1);
          return yield* ctx.rpc<string>("answer", answer, ctx.options({ target: group }));
        };
      for (const [resonate, answer] of [[inside, "inside"], [outside, "outside"]] as const) {
        resonate.register("where", where(answer));
        resonate.register("answer", async (_: Context, text: string) => text);
      }
      const [within, without] = [stage.name("where"), stage.name("where")];
      equal(await inside.run(within, "where"), "inside");
      equal(await outside.rpc(without, "where", outside.options({ target: group })), "outside");
      const orders = new Protocol(`${stage.server.url}/w/orders`);
      equal((await orders.promise(within)).state, "resolved");
      equal((await orders.request("promise.get", { id: without })).status, 404);
      equal((await stage.protocol.request("promise.get", { id: within })).status, 404);
      stage.witness.check();
    },
  },
  {
    name: "the server is stopped and started again while a workflow sleeps",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const flow = resonate.register("flow", function* (ctx: Context): Generator<any, string, any> {
        const before: string = yield* ctx.run(async () => "before");
        yield* ctx.sleep(1_000);
        const after: string = yield* ctx.run(async () => "after");
        return `${before} and ${after}`;
      });
      const id = stage.name("restart");
      await flow.beginRun(id);
      await until("it sleeps", async () => (await stage.protocol.task(id)).state === "suspended");
      await stage.server.stop();
      await stage.server.restart();
      await until("it ended", async () => (await stage.protocol.promise(id)).state !== "pending");
      const tree = await stage.expectTree(id, { "": "resolved", "0": "resolved", "1": "resolved", "2": "resolved" });
      equal(stage.value(tree.get("")), "before and after");
    },
  },
  {
    name: "async engine: steps in parallel, a sleep, a remote call",
    run: async (stage, cleanup) => {
      const group = stage.name("async");
      const resonate = new stage.asyncSdk.Resonate({ url: stage.server.url, group, logLevel: "error" });
      cleanup(() => resonate.stop());
      resonate.register("triple", async (_: AsyncContext, n: number) => 3 * n);
      const flow = resonate.register("flow", async (ctx: AsyncContext, n: number) => {
        const [a, b] = await Promise.all([ctx.run(async () => n), ctx.run(async () => n + 1)]);
        await ctx.sleep(20);
        return a + b + (await ctx.rpc<number>("triple", n, ctx.options({ target: group })));
      });
      const id = stage.name("async-flow");
      equal(await (await flow.run(id, 5)).result(), 26);
      await stage.expectTree(id, { "": "resolved", "0": "resolved", "1": "resolved", "2": "resolved", "3": "resolved" });
    },
  },
];
