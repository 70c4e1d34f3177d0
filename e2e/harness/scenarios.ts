// Runs scenarios one after another inside a suite process and tells the runner how each ended.

import { spiltLines } from "./secrets.ts";
import { atMost } from "./waiting.ts";

/** How long one act of tidying up may take; it matters to nobody whether it succeeds. */
const CLEANUP_MS_MAX = 2_000;

/** Stretches every time limit, for a server that is meant to be slower than usual (make signal-free). */
export const PATIENCE = Number(process.env.E2E_PATIENCE ?? 1);

export interface Scenario {
  name: string;
  /** The scenario fails when it takes longer. */
  timeoutMs: number;
  run: (cleanup: Cleanup) => Promise<void>;
}

/** Registers what must be undone when the scenario is over, however it ended. */
export type Cleanup = (act: () => unknown) => void;

/** What a suite process tells the runner: a scenario began or ended, the suite cannot run here or
 * is done, or a line for the reader. */
export type Report =
  | { report: "begin"; scenario: string }
  | { report: "end"; scenario: string; error?: string; durationMs: number; log?: string[] }
  | { report: "skip"; reason: string }
  | { report: "done" }
  | { report: "note"; line: string };

/** Sends a report to the runner; on its own, a suite prints it. */
export function report(message: Report): void {
  if (process.send) process.send(message);
  else console.log(JSON.stringify(message));
}

/** Ends a suite process that ran to its end. Without it the runner takes the suite for failed. */
export async function finish(): Promise<never> {
  const spilt = spiltLines();
  if (spilt.length > 0) {
    report({ report: "end", scenario: "no server's log holds a token, a payload or a password", error: "these lines do", durationMs: 0, log: [...spilt] });
  }
  if (process.send) await new Promise((resolve) => process.send!({ report: "done" } satisfies Report, resolve));
  process.exit(0);
}

/** Runs the scenarios whose name matches, in order. The log is shown when one fails. */
export async function runScenarios(scenarios: Scenario[], only: RegExp, log: () => string[]): Promise<void> {
  for (const scenario of scenarios) {
    if (!only.test(scenario.name)) continue;
    report({ report: "begin", scenario: scenario.name });
    const acts: (() => unknown)[] = [];
    const begin = performance.now();
    const error = await outcome(scenario, (act) => acts.push(act));
    for (const act of acts.reverse()) {
      await atMost(CLEANUP_MS_MAX, Promise.resolve().then(act).catch(() => {}));
    }
    const durationMs = Math.round(performance.now() - begin);
    report({ report: "end", scenario: scenario.name, durationMs, ...(error === undefined ? {} : { error, log: log() }) });
  }
}

/** Runs one scenario and says what was wrong, if anything was. */
async function outcome(scenario: Scenario, cleanup: Cleanup): Promise<string | undefined> {
  try {
    const limitMs = scenario.timeoutMs * PATIENCE;
    const ended = await atMost(limitMs, scenario.run(cleanup));
    return ended ? undefined : `not finished after ${limitMs} ms`;
  } catch (error) {
    return error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
}
