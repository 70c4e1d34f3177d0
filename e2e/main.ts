// The runner: starts one process per suite, gathers what they report, prints one line per scenario and a summary.
// Exit code 0 when everything passed, 1 when something failed, 2 when the command line is wrong.

import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Child } from "./harness/processes.ts";
import { PATIENCE, type Report } from "./harness/scenarios.ts";

const usage = `usage: e2e/run [--suite NAME]... [--only PATTERN] [--seed N] [--kills SERVER,WORKER,BOTH] [--transfers N]

  --suite      run only this suite (repeatable): typescript-0.11.4, typescript-0.11.5, python-0.7.4, python-0.8.1,
               server, examples, kill, soak (which runs only when it is named)
  --only       run only the scenarios whose name matches the regular expression
  --seed       seed of the kill tests (printed by each run; random without it)
  --kills      how often to kill the server, the worker and both (default 15,10,5; the long run is 50,50,50)
  --transfers  money transfers in flight during the kill tests (default 100)
  --for        how long the soak lasts: 90s, 30m, 2h (default 60s)
  --out        folder for the soak's samples.csv and result.json (default e2e/.soak)
  --help       print this and do nothing`;

/** What a soak needs for a trend, and what it has room for. */
const [SOAK_SECONDS_MIN, SOAK_SECONDS_MAX] = [40, 7 * 24 * 60 * 60];

interface Suite {
  name: string;
  command: string;
  args: string[];
  /** A suite that has not ended by then is killed and failed. */
  timeoutMs: number;
  onlyWhenNamed?: boolean;
}

interface Tally {
  passed: number;
  failed: number;
  skipped: string[];
}

const node = process.execPath;
const here = import.meta.dirname;
const file = (...path: string[]) => join(here, ...path);

function options() {
  try {
    const { values } = parseArgs({
      options: {
        suite: { type: "string", multiple: true, default: [] },
        only: { type: "string", default: "" },
        seed: { type: "string", default: `${Math.floor(Math.random() * 2 ** 31)}` },
        kills: { type: "string", default: "15,10,5" },
        transfers: { type: "string", default: "100" },
        for: { type: "string", default: "60s" },
        out: { type: "string", default: file(".soak") },
        help: { type: "boolean", default: false },
      },
    });
    new RegExp(values.only);
    if (!/^\d+,\d+,\d+$/.test(values.kills)) throw new Error("--kills wants three whole numbers: SERVER,WORKER,BOTH");
    for (const name of ["seed", "transfers"] as const) if (!/^\d+$/.test(values[name])) throw new Error(`--${name} wants a whole number`);
    const soak = /^[1-9]\d{0,5}[smh]$/.test(values.for) ? inSeconds(values.for) : 0;
    if (soak < SOAK_SECONDS_MIN || soak > SOAK_SECONDS_MAX) throw new Error("--for wants a time such as 90s, 30m or 2h: from 40 seconds to a week");
    if (!values.help) return values;
    console.log(usage);
    process.exit(0);
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n\n${usage}`);
    process.exit(2);
  }
}

/** The seconds of a time such as 30m. */
function inSeconds(time: string): number {
  return Number(time.slice(0, -1)) * { s: 1, m: 60, h: 3600 }[time.at(-1) as "s" | "m" | "h"];
}

function suites({ only, seed, kills, transfers, for: time, out }: ReturnType<typeof options>): Suite[] {
  const soakSeconds = inSeconds(time);
  return [
    ...["0.11.4", "0.11.5"].map((version) => ({
      name: `typescript-${version}`,
      command: node,
      args: [file("typescript", "suite.ts"), version, only],
      timeoutMs: 180_000,
    })),
    ...["0.7.4", "0.8.1"].map((version) => ({
      name: `python-${version}`,
      command: node,
      args: [file("python", "suite.ts"), version, only],
      timeoutMs: 120_000,
    })),
    { name: "server", command: node, args: [file("server", "suite.ts"), only], timeoutMs: 120_000 },
    { name: "examples", command: node, args: [file("examples", "suite.ts"), only], timeoutMs: 120_000 },
    { name: "kill", command: node, args: [file("kill", "suite.ts"), only, seed, kills, transfers], timeoutMs: 1_800_000 },
    {
      name: "soak",
      command: node,
      args: [file("soak", "suite.ts"), only, seed, `${soakSeconds}`, "24", resolve(out)],
      timeoutMs: 2 * soakSeconds * 1000 + 360_000,
      onlyWhenNamed: true,
    },
  ];
}

/** Runs one suite to its end and prints its scenarios as they end. */
async function runSuite(suite: Suite, tally: Tally): Promise<void> {
  let open: string | undefined;
  let done = false;
  const fail = (scenario: string, error: string, log: string[]) => {
    tally.failed++;
    console.log(`FAIL  ${suite.name}  ${scenario}\n${indent(error)}`);
    if (log.length > 0) console.log(`      --- last lines of the log ---\n${indent(log.join("\n"))}`);
  };
  const child = new Child(suite.command, suite.args, {
    tidiesUp: true,
    onMessage: (message) => {
      const told = message as Report;
      if (told.report === "begin") open = told.scenario;
      else if (told.report === "note") console.log(`      ${suite.name}  ${told.line}`);
      else if (told.report === "skip") tally.skipped.push(`${suite.name}: ${told.reason}`);
      else if (told.report === "done") done = true;
      else {
        open = undefined;
        if (told.error !== undefined) return fail(told.scenario, told.error, told.log ?? []);
        tally.passed++;
        console.log(`ok    ${suite.name}  ${told.scenario} (${told.durationMs} ms)`);
      }
    },
  });
  const limitMs = suite.timeoutMs * PATIENCE;
  const timer = setTimeout(() => child.kill(), limitMs);
  const begin = performance.now();
  const { code, signal } = await child.ended;
  clearTimeout(timer);
  const tookTooLong = performance.now() - begin >= limitMs;
  if (code !== 0 || !done) {
    const how = tookTooLong ? `was not done after ${limitMs} ms` : `ended with code ${code}, signal ${signal}`;
    fail(open ?? "(between scenarios)", `the suite's process ${how}`, child.lines.slice(-60));
  }
}

function indent(text: string): string {
  return text.replace(/^/gm, "      ");
}

const given = options();
const { suite: wanted, only } = given;
const all = suites(given);
const unknown = wanted.filter((name) => !all.some((suite) => suite.name === name));
if (unknown.length > 0) {
  console.error(`there is no suite ${unknown.join(", ")}\n\n${usage}`);
  process.exit(2);
}
const chosen = all.filter((suite) => (wanted.length === 0 && !suite.onlyWhenNamed) || wanted.includes(suite.name));
const tally: Tally = { passed: 0, failed: 0, skipped: [] };
// The suites of one language run side by side; the kill tests want the machine for themselves.
const together = (prefix: string) => Promise.all(chosen.filter((suite) => suite.name.startsWith(prefix)).map((suite) => runSuite(suite, tally)));
for (const prefix of ["typescript-", "python-", "server", "examples", "kill", "soak"]) await together(prefix);
for (const reason of tally.skipped) console.log(`skip  ${reason}`);
if (tally.passed + tally.failed === 0 && tally.skipped.length === 0) {
  console.error(`no scenario matches --only ${only}`);
  process.exit(2);
}
console.log(`${tally.passed} passed, ${tally.failed} failed${tally.skipped.length > 0 ? `, ${tally.skipped.length} skipped` : ""}`);
process.exit(tally.failed === 0 ? 0 : 1);
