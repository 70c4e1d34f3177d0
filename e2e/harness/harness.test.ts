// Tests of the test tools: a check that cannot fail proves nothing. Run by `npm test`.

import { deepEqual, equal, match, ok, rejects, throws } from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Random } from "../kill/random.ts";
import { freePort } from "./places.ts";
import { Child } from "./processes.ts";
import { decode, encode, isOfAnOutage, NoAnswer, type PromiseRecord, Protocol } from "./protocol.ts";
import { holdsSecret, TOKEN } from "./secrets.ts";
import { atMost, until } from "./waiting.ts";
import { Witness } from "./witness.ts";

const pending: PromiseRecord = { id: "p", state: "pending", param: {}, value: {}, tags: { a: "1" }, timeoutAt: 10, createdAt: 1 };
const resolved: PromiseRecord = { ...pending, state: "resolved", value: { data: "eQ==" }, settledAt: 5 };

test("a line of a log that holds a token, a payload or a password is told from one that does not", () => {
  for (const line of [
    `level=INFO msg=x token=${TOKEN}`,
    'level=WARN body={"data":"x"}',
    "level=WARN msg=x auth=eyJhbGciOiJFZERTQSJ9",
    `level=WARN param=${encode({ func: "transfer", args: [1] }).data}`,
    "level=INFO data=postgres://me:secret@localhost/test",
  ]) ok(holdsSecret(line), line);
  for (const line of [
    "time=2026-11-30T20:56:24.540Z level=INFO msg=listening address=127.0.0.1:42107 version=0.1.0 data=/tmp/x.db",
    "level=INFO data=postgres://me:***@localhost/test",
    "level=WARN msg=push destination=http://127.0.0.1:1 error=refused",
  ]) ok(!holdsSecret(line), line);
});

test("the witness accepts a promise that is settled once and then repeated", () => {
  const witness = new Witness();
  for (const promise of [pending, pending, resolved, resolved, pending]) witness.seePromise(promise);
  witness.check();
});

for (const [name, change] of [
  ["another value", { ...resolved, value: { data: "bg==" } }],
  ["another state", { ...resolved, state: "rejected" as const }],
  ["another time", { ...resolved, settledAt: 6 }],
  ["another deadline", { ...resolved, timeoutAt: 11 }],
  ["another tag", { ...resolved, tags: { a: "2" } }],
  ["another param", { ...resolved, param: { data: "bg==" } }],
] as const) {
  test(`the witness objects to ${name} of a settled promise`, () => {
    const witness = new Witness();
    witness.seePromise(resolved);
    witness.seePromise(change);
    throws(() => witness.check(), /promise p/);
  });
}

test("the witness objects to a promise that a later reader finds pending again", () => {
  const witness = new Witness();
  witness.seePromise(resolved);
  witness.seePromise(pending, { ...witness.promises.get("p")! });
  throws(() => witness.check(), /pending again/);
});

test("the witness reads preloads and what a fence carried, and nothing of a refusal", () => {
  const witness = new Witness();
  witness.seeAnswer("task.fence", 200, { action: { head: { status: 200 }, data: { promise: resolved } }, preload: [{ ...pending, id: "q" }] });
  witness.seeAnswer("task.fence", 200, { action: { head: { status: 404 }, data: "no such promise" }, preload: [] });
  witness.seeAnswer("promise.get", 404, "no such promise");
  deepEqual([...witness.promises.keys()].sort(), ["p", "q"]);
});

test("values are encoded as the SDKs encode them", () => {
  deepEqual(encode({ a: "ü" }), { headers: {}, data: "eyJhIjoiw7wifQ==" });
  deepEqual(decode(encode({ a: "ü" })), { a: "ü" });
  equal(decode({}), undefined);
  equal(decode({ data: "" }), undefined);
});

test("a wait that is in vain says what it waited for", async () => {
  await rejects(until("pigs fly", () => false, 30), /in vain until pigs fly/);
});

test("a wait that is bounded ends, and lets go of its timer", async () => {
  equal(await atMost(10, new Promise(() => {})), undefined);
  deepEqual(await atMost(60_000, Promise.resolve(1)), { value: 1 });
  await rejects(atMost(60_000, Promise.reject(new Error("no"))), /no/);
});

test("a server that is not there gives no answer, which is not a refusal", async () => {
  await rejects(new Protocol(`http://127.0.0.1:${await freePort()}`).request("promise.get", { id: "p" }), NoAnswer);
});

/** A server that gives requests the statuses that it is told, as the protocol does; 0 is to hang up. */
async function answering(status: () => number) {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const given = status();
      if (given === 0) {
        response.destroy();
        return;
      }
      const { kind, head } = JSON.parse(body);
      response.writeHead(given);
      response.end(JSON.stringify({ kind, head: { corrId: head.corrId, status: given }, data: given === 500 ? "The outcome of the request is unknown: ..." : {} }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

test("a request is repeated at the next server until one answers it", async () => {
  const outages = [503, 0, 500];
  const first = await answering(() => outages.shift() ?? 200);
  const second = await answering(() => 503);
  const protocol = new Protocol(first.url, second.url);
  const answer = await protocol.repeat("promise.get", { id: "p" });
  for (const { server } of [first, second]) server.close();
  equal(answer.status, 200);
  // The first's 503, its hanging up, and the second's 503 after each; the unknown outcome turns nobody away.
  deepEqual([...protocol.answers].sort(), [[200, 1], [500, 1], [503, 3]]);
});

test("an answer of an outage is told from a fault", () => {
  deepEqual([isOfAnOutage(503, ""), isOfAnOutage(500, "The outcome of the request is unknown: ..."), isOfAnOutage(500, "Internal error"), isOfAnOutage(404, "")], [true, true, false, false]);
});

test("a child that obeys lines ends with them", async () => {
  const child = new Child("sh", ["-c", "while read -r line; do echo got $line; done; echo over"], { obeysLines: true });
  child.tell("this");
  await until("it has obeyed", () => child.lines.length > 0);
  child.endLines();
  equal((await child.ended).code, 0);
  deepEqual(child.lines, ["got this", "over"]);
});

test("a killed child takes along what it started", async () => {
  const child = new Child("sh", ["-c", "sleep 60 & echo $!; wait"]);
  await until("the grandchild is named", () => child.lines.length > 0);
  const grandchild = Number(child.lines[0]);
  ok(child.running);
  await child.kill();
  // A zombie waits for its new parent for a moment.
  await until("the grandchild is gone", async () => {
    const ps = new Child("ps", ["-o", "stat=", "-p", `${grandchild}`]);
    await ps.ended;
    return ps.lines.every((line) => line.startsWith("Z"));
  });
});

test("a child that cannot be run says so", async () => {
  const child = new Child("/nowhere/at/all", []);
  const { code } = await child.ended;
  equal(code, null);
  match(child.lines.join(), /could not run/);
});

test("random numbers repeat with their seed and keep their bounds", () => {
  const draw = (seed: number) => {
    const random = new Random(seed);
    return Array.from({ length: 1000 }, () => random.between(3, 9));
  };
  deepEqual(draw(7), draw(7));
  ok(draw(7).join() !== draw(8).join());
  deepEqual([...new Set(draw(7))].sort(), [3, 4, 5, 6, 7, 8]);
});
