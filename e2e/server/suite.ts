// The suite process of what concerns the server's process: node suite.ts <pattern of scenario names>.

import { equal, match, ok } from "node:assert/strict";
import { readdirSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { Protocol } from "../harness/protocol.ts";
import { finish, runScenarios } from "../harness/scenarios.ts";
import { Server } from "../harness/server.ts";
import { onFile } from "../harness/storage.ts";
import { until } from "../harness/waiting.ts";

const SCENARIO_MS_MAX = 180_000;
const CONNECTS = 1_000;
const CONNECTS_AT_ONCE = 50;

const server = await Server.start();

const fileDescriptors = () => readdirSync(`/proc/${server.pid}/fd`).length;

/** Opens a worker's stream by hand; settles when the server has answered with its headers. */
async function openStream(group: string, pid: string): Promise<Socket> {
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  socket.write(`GET /poll/${group}/${pid} HTTP/1.1\r\nHost: ${hostname}\r\nAccept: text/event-stream\r\n\r\n`);
  const head = await new Promise<string>((resolve, reject) => {
    socket.on("error", reject);
    socket.once("data", (chunk) => resolve(chunk.toString("latin1")));
  });
  match(head, /^HTTP\/1\.1 200 /);
  return socket;
}

const scenarios = [
  {
    name: "1,000 workers that connect and reset leave no file descriptor behind",
    run: async () => {
      if (process.platform !== "linux") throw new Error("file descriptors are counted in /proc, which only Linux has");
      const before = fileDescriptors();
      for (let n = 0; n < CONNECTS; n += CONNECTS_AT_ONCE) {
        const sockets = await Promise.all([...Array(CONNECTS_AT_ONCE).keys()].map((i) => openStream("reset", `pid-${(n + i) % 7}`)));
        for (const socket of sockets) socket.resetAndDestroy();
      }
      // Node keeps two or three connections of its own open for the requests of this test.
      await until("the server let go of them", () => fileDescriptors() <= before + 5);
    },
  },
  {
    name: "a second server on the same file is refused and told who holds it",
    onFile: true,
    run: async () => {
      const { code, output } = await server.startRival();
      equal(code, 1, output);
      ok(output.includes(`${server.pid}`), `the refusal does not name process ${server.pid}: ${output}`);
      equal((await new Protocol(server.url).request("promise.get", { id: "nothing" })).status, 404, "the first one serves on");
    },
  },
  {
    name: "SIGTERM with streams open: they end, the server leaves with code 0, its promises are there after a start",
    run: async () => {
      const protocol = new Protocol(server.url);
      await protocol.expect("promise.create", { id: "kept", timeoutAt: Date.now() + 1e9, param: {}, tags: {} });
      const streams = await Promise.all([...Array(20).keys()].map((n) => openStream("stop", `pid-${n}`)));
      const ends = streams.map((stream) => new Promise((resolve) => stream.on("data", () => {}).on("end", resolve)));
      await server.stop();
      await Promise.all(ends);
      await server.restart();
      equal((await protocol.promise("kept")).state, "pending");
    },
  },
].filter((scenario) => onFile || !scenario.onFile);

const timed = scenarios.map((scenario) => ({ ...scenario, timeoutMs: SCENARIO_MS_MAX }));
await runScenarios(timed, new RegExp(process.argv[2] ?? ""), () => server.log);
await finish();
