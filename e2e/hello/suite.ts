// The suite process of the shortest look at a storage: node suite.ts <pattern>. The newest SDK of each language says hello.

import { equal } from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Child } from "../harness/processes.ts";
import { finish, report, runScenarios } from "../harness/scenarios.ts";
import { checkStore, Server } from "../harness/server.ts";
import { calls } from "../typescript/calls.ts";
import { Stage } from "../typescript/stage.ts";

const SCENARIO_MS_MAX = 180_000;
const TYPESCRIPT = "0.11.5";
const PYTHON = "0.8.1";
/** The scenario of each language: a workflow on one worker calls a function on another. */
const HELLO = /^rpc: a workflow on one worker calls a function on another/;

// Every message carries a trace; that nobody collects any must not matter.
const server = await Server.start(["--observability-otlp-endpoint", "127.0.0.1:9", "--observability-trace-sample", "1"]);
const stage = await Stage.open(TYPESCRIPT, server);
const python = join(import.meta.dirname, "..", "python", `.venv-${PYTHON}`, "bin", "python");
const scenarios = [
  {
    name: `TypeScript ${TYPESCRIPT}`,
    run: async (cleanup: (act: () => unknown) => void) => {
      for (const { name, run } of calls) if (HELLO.test(name)) await run(stage, cleanup);
    },
  },
  {
    name: `Python ${PYTHON}`,
    run: async () => {
      const child = new Child(python, [join(import.meta.dirname, "..", "python", "scenarios.py"), PYTHON, server.url, HELLO.source]);
      const { code } = await child.ended;
      const ends = child.lines.filter((line) => line.startsWith('{"report": "end"')).map((line) => JSON.parse(line));
      equal(code, 0, child.lines.join("\n"));
      equal(ends.length, 1, child.lines.join("\n"));
      equal(ends[0].error, undefined);
    },
  },
  {
    name: "the server leaves after SIGTERM, and abide check finds nothing",
    run: async () => {
      await server.stop();
      checkStore(server.store);
    },
  },
].map((scenario) => ({ ...scenario, timeoutMs: SCENARIO_MS_MAX }));

const skipped = process.env.E2E_PYTHON_SKIPPED ?? (existsSync(python) ? undefined : `${python} is missing`);
if (skipped) report({ report: "skip", reason: skipped });
await runScenarios(skipped ? scenarios.filter(({ name }) => !name.startsWith("Python")) : scenarios, new RegExp(process.argv[2] ?? ""), () => server.log);
await finish();
