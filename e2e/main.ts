// The runner: starts one process per suite, gathers what they report, prints one line per scenario and a summary.
// Exit code 0 when everything passed, 1 when something failed, 2 when the command line is wrong.

import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Child } from "./harness/processes.ts";
import { PATIENCE, type Report } from "./harness/scenarios.ts";
import { TOKEN } from "./harness/secrets.ts";
import { kinds } from "./harness/storage.ts";

const usage = `usage: e2e/run [--suite NAME]... [--storage KIND[=URL]]... [--only PATTERN] [--seed N] [--kills N | SERVER,WORKER,BOTH[,DATABASE]]
               [--transfers N] [--stops N] [--for TIME] [--out FOLDER]

  --suite      run only this suite (repeatable): typescript-0.11.4, typescript-0.11.5, python-0.7.4, python-0.8.1,
               server, examples, proxy, stop, kill, cluster (not on sqlite); and those that run only when they are named: hello, soak
  --storage    what the servers keep their data in (repeatable, one after the other): sqlite (default), postgres-15, postgres-18,
               mariadb-10.11, mysql-8.0. Without a URL each suite starts a database server of its own and may kill it
  --only       run only the scenarios whose name matches the regular expression
  --seed       seed of the kill tests (printed by each run; random without it)
  --kills      how often to kill the server, the worker, both, and the database (default 15,10,5,20; the long run is
               50,50,50,20); one number: so often the database and as often the others in turn, all in one go
  --transfers  money transfers in flight during the kill tests (default 100; with one number of kills 25)
  --stops      how often the server is stopped by SIGTERM under load (default 5; the long run is 100)
  --for        how long the soak lasts, the random kills of the cluster, and the streams through proxies: 90s, 30m, 2h (default 60s)
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
  /** It is about several servers, which SQLite does not have. */
  notOnFile?: boolean;
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
        storage: { type: "string", multiple: true, default: ["sqlite"] },
        kills: { type: "string", default: "15,10,5,20" },
        transfers: { type: "string", default: "" },
        stops: { type: "string", default: "5" },
        for: { type: "string", default: "60s" },
        out: { type: "string", default: file(".soak") },
        help: { type: "boolean", default: false },
      },
    });
    new RegExp(values.only);
    for (const storage of values.storage) checkStorage(storage);
    if (!/^\d+(,\d+,\d+(,\d+)?)?$/.test(values.kills)) throw new Error("--kills wants one whole number, or SERVER,WORKER,BOTH, or SERVER,WORKER,BOTH,DATABASE");
    for (const name of ["seed", "transfers", "stops"] as const) if (!/^\d+$/.test(values[name] || "1")) throw new Error(`--${name} wants a whole number`);
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

function checkStorage(storage: string): void {
  const [name = "", url] = storage.split(/=(.*)/s);
  const kind = kinds[name];
  if (kind === undefined) throw new Error(`--storage wants one of ${Object.keys(kinds).join(", ")}, and perhaps =URL; not ${storage}`);
  if (url !== undefined && (kind.engine === "sqlite" || !new RegExp(`^${kind.engine}(ql)?://`).test(url))) throw new Error(`--storage ${name} cannot be at ${url}`);
}

/** The seconds of a time such as 30m. */
function inSeconds(time: string): number {
  return Number(time.slice(0, -1)) * { s: 1, m: 60, h: 3600 }[time.at(-1) as "s" | "m" | "h"];
}

function suites({ only, seed, kills, transfers, stops, for: time, out }: ReturnType<typeof options>): Suite[] {
  const soakSeconds = inSeconds(time);
  return [
    ...["0.11.4", "0.11.5"].map((version) => ({
      name: `typescript-${version}`,
      command: node,
      args: [file("typescript", "suite.ts"), version, only],
      timeoutMs: 900_000,
    })),
    ...["0.7.4", "0.8.1"].map((version) => ({
      name: `python-${version}`,
      command: node,
      args: [file("python", "suite.ts"), version, only],
      timeoutMs: 600_000,
    })),
    { name: "server", command: node, args: [file("server", "suite.ts"), only], timeoutMs: 600_000 },
    { name: "examples", command: node, args: [file("examples", "suite.ts"), only], timeoutMs: 600_000 },
    { name: "hello", command: node, args: [file("hello", "suite.ts"), only], timeoutMs: 600_000, onlyWhenNamed: true },
    { name: "proxy", command: node, args: [file("proxy", "suite.ts"), only, `${soakSeconds}`], timeoutMs: soakSeconds * 1000 + 320_000 },
    { name: "stop", command: node, args: [file("stop", "suite.ts"), only, seed, stops], timeoutMs: 900_000 + Number(stops) * 30_000 },
    { name: "kill", command: node, args: [file("kill", "suite.ts"), only, seed, kills, transfers], timeoutMs: 2_400_000 },
    {
      name: "cluster",
      command: node,
      args: [file("cluster", "suite.ts"), only, seed, `${soakSeconds}`],
      timeoutMs: 2 * soakSeconds * 1000 + 720_000,
      notOnFile: true,
    },
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
async function runSuite(suite: Suite, storage: string, tally: Tally): Promise<void> {
  const [kind = ""] = storage.split("=");
  const shown = kind === "sqlite" ? suite.name : `${kind}  ${suite.name}`;
  let open: string | undefined;
  let done = false;
  const fail = (scenario: string, error: string, log: string[]) => {
    tally.failed++;
    console.log(`FAIL  ${shown}  ${scenario}\n${indent(error)}`);
    if (log.length > 0) console.log(`      --- last lines of the log ---\n${indent(log.join("\n"))}`);
  };
  const child = new Child(suite.command, suite.args, {
    tidiesUp: true,
    env: { E2E_STORAGE: storage, RESONATE_TOKEN: TOKEN },
    onMessage: (message) => {
      const told = message as Report;
      if (told.report === "begin") open = told.scenario;
      else if (told.report === "note") console.log(`      ${shown}  ${told.line}`);
      else if (told.report === "skip") tally.skipped.push(`${shown}: ${told.reason}`);
      else if (told.report === "done") done = true;
      else {
        open = undefined;
        if (told.error !== undefined) return fail(told.scenario, told.error, told.log ?? []);
        tally.passed++;
        console.log(`ok    ${shown}  ${told.scenario} (${told.durationMs} ms)`);
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
const tally: Tally = { passed: 0, failed: 0, skipped: [] };
for (const storage of given.storage) {
  const fits = (suite: Suite) => !suite.notOnFile || storage !== "sqlite";
  const chosen = all.filter((suite) => fits(suite) && ((wanted.length === 0 && !suite.onlyWhenNamed) || wanted.includes(suite.name)));
  // The suites of one language run side by side; the kill tests want the machine for themselves.
  const together = (prefix: string) =>
    Promise.all(chosen.filter((suite) => suite.name.startsWith(prefix)).map((suite) => runSuite(suite, storage, tally)));
  for (const prefix of ["hello", "typescript-", "python-", "server", "examples", "proxy", "stop", "kill", "cluster", "soak"]) await together(prefix);
}
for (const reason of tally.skipped) console.log(`skip  ${reason}`);
if (tally.passed + tally.failed === 0 && tally.skipped.length === 0) {
  console.error(wanted.includes("cluster") ? "the suite cluster needs --storage: SQLite has one server" : `no scenario matches --only ${only}`);
  process.exit(2);
}
console.log(`${tally.passed} passed, ${tally.failed} failed${tally.skipped.length > 0 ? `, ${tally.skipped.length} skipped` : ""}`);
process.exit(tally.failed === 0 ? 0 : 1);
