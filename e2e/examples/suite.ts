// The suite process of what a newcomer runs against `abide dev`: examples/typescript, each in one command as its README says,
// and the workflow in the README of the project.

import { deepEqual, equal, match, ok } from "node:assert/strict";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { temporaryFolder } from "../harness/places.ts";
import { Child } from "../harness/processes.ts";
import { Protocol } from "../harness/protocol.ts";
import { finish, runScenarios } from "../harness/scenarios.ts";
import { Server } from "../harness/server.ts";
import { until } from "../harness/waiting.ts";

const SCENARIO_MS_MAX = 180_000;
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

/** The workflow that the project's README tells its reader to paste, in a folder where it can run. */
function readme(): string {
  const text = readFileSync(join(import.meta.dirname, "..", "..", "README.md"), "utf8");
  const code = /^```js\n(.*?)^```$/ms.exec(text)?.[1];
  if (code === undefined) throw new Error("README.md holds no block of JavaScript");
  const folder = temporaryFolder();
  symlinkSync(join(source, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "hello.mjs"), code.replace("http://localhost:8001", server.url));
  return folder;
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
  {
    name: "the README's workflow, killed in its sleep, started again, and started once more when it is done",
    run: async () => {
      const folder = readme();
      const start = () => new Child(process.execPath, ["hello.mjs"], { cwd: folder });
      const first = start();
      const protocol = new Protocol(server.url);
      await until("it sleeps", async () => (await protocol.request("task.get", { id: "hello-1" })).data.task?.state === "suspended");
      await first.kill();
      match(await finished(start()), /^Hello, world! Goodbye, world!$/m);
      const took: number[] = [];
      do {
        const begin = performance.now();
        match(await finished(start()), /^Hello, world! Goodbye, world!$/m);
        took.push(performance.now() - begin);
      } while (took.at(-1)! >= 5_000 && took.length < 5); // a busy machine may need so long to start a process
      ok(took.at(-1)! < 5_000, "the result of what is done comes without the sleep");
    },
  },
].map((scenario) => ({ ...scenario, timeoutMs: SCENARIO_MS_MAX }));

await runScenarios(scenarios, new RegExp(process.argv[2] ?? ""), () => server.log);
await finish();
