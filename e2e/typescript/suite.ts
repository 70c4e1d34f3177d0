// The suite process of one TypeScript SDK: node suite.ts <sdk version> <pattern of scenario names>.

import { finish, runScenarios } from "../harness/scenarios.ts";
import { Server } from "../harness/server.ts";
import { calls } from "./calls.ts";
import { Stage } from "./stage.ts";
import { waits } from "./waits.ts";

const SCENARIO_MS_MAX = 120_000;

const [version = "0.11.5", only = ""] = process.argv.slice(2);
const server = await Server.start();
const stage = await Stage.open(version, server);
const scenarios = [...calls, ...waits].map(({ name, timeoutMs, run }) => ({
  name,
  timeoutMs: timeoutMs ?? SCENARIO_MS_MAX,
  run: (cleanup: (act: () => unknown) => void) => run(stage, cleanup),
}));
scenarios.push({ name: "the server leaves with code 0 after SIGTERM", timeoutMs: SCENARIO_MS_MAX, run: () => server.stop() });
await runScenarios(scenarios, new RegExp(only), () => server.log);
await finish();
