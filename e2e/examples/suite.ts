// The suite process of examples/typescript: each example in one command, against `abide dev`, as its README says.

import { deepEqual, equal, match } from "node:assert/strict";
import { cpSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { Child } from "../harness/processes.ts";
import { Protocol } from "../harness/protocol.ts";
import { runScenarios } from "../harness/scenarios.ts";
import { Server, temporaryFolder } from "../harness/server.ts";
import { until } from "../harness/waiting.ts";

const SCENARIO_MS_MAX = 60_000;
const source = join(import.meta.dirname, "..", "..", "examples", "typescript");

/** A copy of the examples, so that their files do not mix with the reader's. */
function examples(): string {
  const folder = temporaryFolder();
  const modules = join(source, "node_modules");
  cpSync(source, folder, { recursive: true, filter: (path) => path !== modules && !path.endsWith("bank.json") });
  symlinkSync(modules, join(folder, "node_modules"));
  return folder;
}

const server = await Server.startDev();

function npm(folder: string, ...args: string[]): Child {
  const path = `${dirname(process.execPath)}:${process.env.PATH}`;
  return new Child("npm", ["run", "--silent", ...args], { cwd: folder, env: { RESONATE_URL: server.url, PATH: path } });
}

async function finished(child: Child): Promise<string> {
  const { code, signal } = await child.ended;
  equal(code, 0, `code ${code}, signal ${signal}: ${child.lines.join("\n")}`);
  return child.lines.join("\n");
}

const accounts = (folder: string) => JSON.parse(readFileSync(join(folder, "bank.json"), "utf8")).accounts;

const scenarios = [
  {
    name: "hello",
    run: async () => match(await finished(npm(examples(), "hello")), /^Hello, world! Goodbye, world!$/m),
  },
  {
    name: "transfer: one arrives, one is refunded",
    run: async () => {
      const folder = examples();
      const output = await finished(npm(folder, "transfer"));
      match(output, /^done/m);
      match(output, /^refunded \(there is no account nobody\)/m);
      deepEqual(accounts(folder), { alice: 990, bob: 10 });
    },
  },
  {
    name: "transfer: killed while the money rests, started again, it goes on where it was",
    run: async () => {
      const folder = examples();
      const first = npm(folder, "transfer", "--", "monday", "4000");
      const protocol = new Protocol(server.url);
      await until("the money rests", async () => (await protocol.request("promise.get", { id: "monday-to-bob:1" })).status === 200);
      await first.kill();
      match(await finished(npm(folder, "transfer", "--", "monday", "4000")), /^done/m);
      deepEqual(accounts(folder), { alice: 990, bob: 10 });
    },
  },
].map((scenario) => ({ ...scenario, timeoutMs: SCENARIO_MS_MAX }));

await runScenarios(scenarios, new RegExp(process.argv[2] ?? ""), () => server.log);
process.exit(0);
