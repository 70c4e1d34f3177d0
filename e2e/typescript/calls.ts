// Scenarios of calls: run, rpc, rejection, retries, detached, fan-out, recursion.

import { deepEqual, equal, match, ok, rejects } from "node:assert/strict";
import type { Context } from "resonate-0-11-5";
import { decode } from "../harness/protocol.ts";
import { until } from "../harness/waiting.ts";
import type { Expected, NamedScenario } from "./stage.ts";

export const calls: NamedScenario[] = [
  {
    name: "run: a function runs once, also when it is started again under the same id",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      let ran = 0;
      const add = resonate.register("add", async (_: Context, a: number, b: number) => {
        ran++;
        return a + b;
      });
      const id = stage.name("leaf");
      equal(await add.run(id, 2, 3), 5);
      equal(await add.run(id, 2, 3), 5);
      equal(ran, 1);
      const tree = await stage.expectTree(id, { "": { state: "resolved", scope: "global" } });
      equal(stage.value(tree.get("")), 5);
      deepEqual(decode(tree.get("")!.param), { func: "add", args: [2, 3], version: 1 });
      equal((await stage.protocol.task(id)).version, 1);
    },
  },
  {
    name: "run: a workflow of three steps records each step's result",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const ran: number[] = [];
      const step = async (_: Context, n: number) => {
        ran.push(n);
        return n * 10;
      };
      const flow = resonate.register("flow", function* (ctx: Context): Generator<any, number[], any> {
        return [yield* ctx.run(step, 1), yield* ctx.run(step, 2), yield* ctx.run(step, 3)];
      });
      const id = stage.name("steps");
      deepEqual(await flow.run(id), [10, 20, 30]);
      deepEqual(ran, [1, 2, 3]);
      const local: Expected = { state: "resolved", scope: "local" };
      const tree = await stage.expectTree(id, { "": "resolved", "0": local, "1": local, "2": local });
      deepEqual(["0", "1", "2"].map((path) => stage.value(tree.get(path))), [10, 20, 30]);
    },
  },
  {
    name: "rpc: a workflow on one worker calls a function on another",
    run: async (stage, cleanup) => {
      const caller = stage.connect(cleanup);
      const callee = stage.connect(cleanup);
      callee.register("double", async (_: Context, n: number) => 2 * n);
      caller.register("ask", function* (ctx: Context, n: number): Generator<any, number, any> {
        const far = ctx.options({ target: callee.group });
        return (yield* ctx.rpc<number>("double", n, far)) + (yield* ctx.rpc<number>("double", n + 1, far));
      });
      const id = stage.name("rpc");
      equal(await callee.rpc(id, "ask", 4, callee.options({ target: caller.group })), 18);
      const remote: Expected = { state: "resolved", scope: "global" };
      const tree = await stage.expectTree(id, { "": remote, "0": remote, "1": remote });
      equal(tree.get("0")!.tags["resonate:target"], `poll://any@${callee.group}`);
      deepEqual(["0", "1"].map((path) => stage.value(tree.get(path))), [8, 10]);
    },
  },
  {
    name: "rpc: the default group, and a result read by another client",
    run: async (stage, cleanup) => {
      const worker = new stage.sdk.Resonate({ url: stage.server.url, logLevel: "error" });
      cleanup(() => worker.stop());
      worker.register("inner", async (_: Context, name: string) => `hello ${name}`);
      const outer = worker.register("outer", function* (ctx: Context, name: string): Generator<any, string, any> {
        yield* ctx.sleep(1);
        return yield* ctx.rpc<string>("inner", name);
      });
      const id = stage.name("default-group");
      const begun = await outer.beginRpc(id, "world");
      const reader = stage.connect(cleanup);
      equal(await (await reader.get(id)).result(), "hello world");
      equal(await begun.result(), "hello world");
      equal(await begun.done(), true);
      await stage.expectTree(id, { "": "resolved", "0": "resolved", "1": "resolved" });
    },
  },
  {
    name: "rpc: an argument and a result of 300 kB",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const near = resonate.options({ target: resonate.group });
      resonate.register("reverse", async (_: Context, text: string) => [...text].reverse().join(""));
      resonate.register("flow", function* (ctx: Context, text: string): Generator<any, string, any> {
        return yield* ctx.rpc<string>("reverse", text, ctx.options({ target: resonate.group }));
      });
      const text = Array.from({ length: 30_000 }, (_, n) => `${n}`.padStart(10, "-")).join("");
      const id = stage.name("large");
      const reversed = await resonate.rpc<string>(id, "flow", text, near);
      equal(reversed, [...text].reverse().join(""));
      const tree = await stage.expectTree(id, { "": "resolved", "0": "resolved" });
      equal(stage.value(tree.get("0")), reversed);
      deepEqual(decode(tree.get("0")!.param).args, [text]);
    },
  },
  {
    name: "rejection: an error ends the workflow, a caught one does not",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const never = new stage.sdk.Never();
      const broken = async () => {
        throw new Error("out of paper");
      };
      const careless = resonate.register("careless", function* (ctx: Context): Generator<any, string, any> {
        return yield* ctx.run(broken, ctx.options({ retryPolicy: never }));
      });
      const careful = resonate.register("careful", function* (ctx: Context): Generator<any, string, any> {
        try {
          return yield* ctx.run(broken, ctx.options({ retryPolicy: never }));
        } catch (error) {
          return `caught: ${(error as Error).message}`;
        }
      });
      const [lost, saved] = [stage.name("careless"), stage.name("careful")];
      await rejects(careless.run(lost), /out of paper/);
      equal(await careful.run(saved), "caught: out of paper");
      const tree = await stage.expectTree(lost, { "": "rejected", "0": "rejected" });
      equal(stage.value(tree.get("0")).message, "out of paper");
      await stage.expectTree(saved, { "": "resolved", "0": "rejected" });
    },
  },
  {
    name: "rejection: a remote call's error reaches the caller",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      resonate.register("refuse", function* (): Generator<any, never, any> {
        throw new Error("not today");
      });
      const flow = resonate.register("ask", function* (ctx: Context): Generator<any, string, any> {
        try {
          yield* ctx.rpc("refuse", ctx.options({ target: resonate.group }));
          return "granted";
        } catch (error) {
          return (error as Error).message;
        }
      });
      const id = stage.name("refused");
      equal(await flow.run(id), "not today");
      await stage.expectTree(id, { "": "resolved", "0": "rejected" });
    },
  },
  {
    name: "retries: a step that fails twice is recorded once, with its third result",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const policy = new stage.sdk.Constant({ delay: 10, maxRetries: 5 });
      let tries = 0;
      const shaky = async () => {
        tries++;
        if (tries < 3) throw new Error("try again");
        return tries;
      };
      const flow = resonate.register("flow", function* (ctx: Context): Generator<any, number, any> {
        return yield* ctx.run(shaky, ctx.options({ retryPolicy: policy }));
      });
      const id = stage.name("retried");
      equal(await flow.run(id), 3);
      const tree = await stage.expectTree(id, { "": "resolved", "0": "resolved" });
      equal(stage.value(tree.get("0")), 3);
    },
  },
  {
    name: "retries: a step that never succeeds is rejected after its last try",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const policy = new stage.sdk.Constant({ delay: 10, maxRetries: 2 });
      let tries = 0;
      const hopeless = async () => {
        tries++;
        throw new Error(`failed ${tries} times`);
      };
      const flow = resonate.register("flow", function* (ctx: Context): Generator<any, void, any> {
        yield* ctx.run(hopeless, ctx.options({ retryPolicy: policy }));
      });
      const id = stage.name("hopeless");
      await rejects(flow.run(id), /failed 3 times/);
      equal(tries, 3);
      await stage.expectTree(id, { "": "rejected", "0": "rejected" });
    },
  },
  {
    name: "detached: the caller ends first, the detached workflow ends by itself",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const order: string[] = [];
      let release = () => {};
      const gate = new Promise<void>((resolve) => {
        release = resolve;
      });
      resonate.register("alone", async (_: Context, n: number) => {
        await gate;
        order.push("detached");
        return n + 1;
      });
      const flow = resonate.register("flow", function* (ctx: Context): Generator<any, string, any> {
        const future = yield* ctx.detached("alone", 41, ctx.options({ target: resonate.group }));
        return future.id;
      });
      const id = stage.name("parent");
      const detachedId = await flow.run(id);
      order.push("parent");
      release();
      match(detachedId, stage.dialect.detached(id));
      equal(await (await resonate.get(detachedId)).result(), 42);
      deepEqual(order, ["parent", "detached"]);
      const record = await stage.protocol.promise(detachedId);
      equal(record.tags["resonate:origin"], stage.dialect.detachedOrigin(id, detachedId));
      equal((await stage.protocol.task(detachedId)).state, "fulfilled");
      stage.witness.check();
    },
  },
  {
    name: "fan-out: 50 local children",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const square = async (_: Context, n: number) => n * n;
      const flow = resonate.register("fan-out", function* (ctx: Context): Generator<any, number, any> {
        const futures = [];
        for (let n = 0; n < 50; n++) futures.push(yield* ctx.beginRun(square, n));
        let sum = 0;
        for (const future of futures) sum += yield* future;
        return sum;
      });
      const id = stage.name("fan-out-local");
      equal(await flow.run(id), 40425);
      const tree = await stage.expectTree(id, treeOf(50, { state: "resolved", scope: "local" }));
      equal(stage.value(tree.get("49")), 49 * 49);
    },
  },
  {
    name: "fan-out: 50 remote children over two workers of one group, each run once",
    run: async (stage, cleanup) => {
      const group = stage.name("squares");
      const ran: number[] = [];
      for (let worker = 0; worker < 2; worker++) {
        stage.connect(cleanup, { group }).register("square", async (_: Context, n: number) => {
          ran.push(n);
          return n * n;
        });
      }
      const resonate = stage.connect(cleanup);
      const flow = resonate.register("fan-out", function* (ctx: Context): Generator<any, number, any> {
        const futures = [];
        for (let n = 0; n < 50; n++) futures.push(yield* ctx.beginRpc<number>("square", n, ctx.options({ target: group })));
        let sum = 0;
        for (const future of futures) sum += yield* future;
        return sum;
      });
      const id = stage.name("fan-out-remote");
      equal(await flow.run(id), 40425);
      deepEqual(ran.sort((a, b) => a - b), [...Array(50).keys()]);
      await stage.expectTree(id, treeOf(50, { state: "resolved", scope: "global" }));
    },
  },
  {
    name: "recursion: 30 remote calls deep",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const depth = resonate.register("depth", function* (ctx: Context, n: number): Generator<any, number, any> {
        return n === 0 ? 0 : 1 + (yield* ctx.rpc<number>("depth", n - 1, ctx.options({ target: resonate.group })));
      });
      const id = stage.name("deep");
      equal(await depth.run(id, 30), 30);
      const expected: Record<string, Expected> = {};
      for (let path = "", level = 0; level <= 30; level++, path = path === "" ? "0" : `${path}.0`) expected[path] = "resolved";
      await stage.expectTree(id, expected);
    },
  },
  {
    name: "recursion: a tree of remote and local calls",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      function* fib(ctx: Context, n: number): Generator<any, number, any> {
        if (n < 2) return n;
        const far = yield* ctx.beginRpc<number>("fib", n - 1, ctx.options({ target: resonate.group }));
        const near: number = yield* ctx.run(fib, n - 2);
        return near + (yield* far);
      }
      const registered = resonate.register("fib", fib);
      const id = stage.name("fib");
      equal(await registered.rpc(id, 8, resonate.options({ target: resonate.group })), 21);
      const promises = await stage.protocol.promisesWith({ "resonate:origin": id });
      equal(promises.length, 67, "promises of fib(8): one for each call");
      ok(promises.every((promise) => promise.state === "resolved"));
      stage.witness.check();
    },
  },
  {
    name: "a task that its worker gives back at once, again and again, is not sent in a hot loop",
    run: async (stage, cleanup) => {
      const resonate = stage.connect(cleanup);
      const acquiredBefore = stage.answered.get("task.acquire") ?? 0;
      const acquired = () => (stage.answered.get("task.acquire") ?? 0) - acquiredBefore;
      const id = stage.name("unregistered");
      const handle = await resonate.beginRpc(id, "nobody-knows-me", resonate.options({ target: resonate.group }));
      await until("the worker gave it back five times", () => acquired() >= 5);
      const begin = performance.now();
      const atBegin = acquired();
      await until("the worker gave it back three times more", () => acquired() >= atBegin + 3);
      ok(performance.now() - begin > 300, "the fifth to eighth round lie at least 100 ms apart");
      resonate.register("nobody-knows-me", async () => "found at last");
      equal(await handle.result(), "found at last");
      await stage.expectTree(id, { "": "resolved" });
    },
  },
];

function treeOf(children: number, child: Expected): Record<string, Expected> {
  const expected: Record<string, Expected> = { "": "resolved" };
  for (let n = 0; n < children; n++) expected[n] = child;
  return expected;
}
