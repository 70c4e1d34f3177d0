// The suite process of the kill tests: node suite.ts <pattern> <seed> <kills> <transfers in flight, or empty>.
//
// A hundred transfers are kept in flight while the server, the worker, both, or the database server are killed with SIGKILL at
// random moments. Then everything must have ended well: see Transfers.judge. What a killed server left behind is checked.

import { setTimeout as delay } from "node:timers/promises";
import { type Cleanup, finish, report, runScenarios, type Scenario } from "../harness/scenarios.ts";
import { checkStore, Server } from "../harness/server.ts";
import { databaseServer, onFile, unkillable } from "../harness/storage.ts";
import { dialects } from "../typescript/stage.ts";
import { Random } from "./random.ts";
import { checkFile, DRAIN_MS_MAX, note, RETRY_SOON, Trial, typescriptWorker } from "./trial.ts";

/** The longest pause before a kill. */
const PAUSE_MS_MAX = 1_500;
/**
 * Three kills in four wait until the worker is at work again, at most so long: the SDK opens its stream again one second
 * after a loss, and two, four ... after losses in a row. The fourth one comes as it comes, perhaps in mid-start.
 */
const AT_WORK_MS_MAX = 10_000;

type Victim = "server" | "worker" | "both" | "database";

/** How long a killed database server stays away at most, most times; one time in five, three times as long. */
const AWAY_MS_MAX = 1_000;

/** Kills one victim after the other, as given. */
async function kill(victims: Victim[], server: Server, trial: Trial, random: Random): Promise<void> {
  await trial.begin(1);
  for (const [n, victim] of victims.entries()) {
    if (random.between(0, 4) > 0) await trial.waitUntilAtWork(AT_WORK_MS_MAX);
    await delay(random.between(0, PAUSE_MS_MAX));
    trial.atWork = false;
    if (victim === "worker" || victim === "both") await trial.killWorker(0);
    if (victim === "server" || victim === "both") {
      await server.kill();
      checkFile(server.store);
      await server.restart();
    }
    if (victim === "database") {
      const database = await databaseServer();
      await database.kill();
      await delay(random.between(0, 5) === 0 ? 3 * AWAY_MS_MAX : random.between(0, AWAY_MS_MAX));
      await database.restart();
      await server.untilReady();
    }
    if (victim !== "worker") await trial.readAgain();
    if (victim === "worker" || victim === "both") trial.startWorker(0);
    trial.check();
    if ((n + 1) % 5 === 0 || n + 1 === victims.length) note(`killed ${n + 1} of ${victims.length} times: ${trial.transfers.ended} transfers ended, ${trial.transfers.open.size} open`);
  }
  const figures = await trial.end();
  await server.stop();
  checkFile(server.store);
  checkStore(server.store);
  note(figures);
}

const [only = "", seedText = "1", killsText = "15,10,5,20", transfers = ""] = process.argv.slice(2);
/** Fewer where the machine is busy with much else, as when every engine is tried in turn. */
const inFlight = transfers === "" ? (killsText.includes(",") ? 100 : 25) : Number(transfers);
const [serverKills = 0, workerKills = 0, bothKills = 0, databaseKills = 0] = killsText.split(",").map(Number);
const seed = Number(seedText);
let log = () => [] as string[];

/** A scenario that kills one kind of victim, or several in turn. */
function scenario(version: string, victims: Victim[], offset: number): Scenario {
  const times = (victim: Victim) => victims.filter((one) => one === victim).length;
  const kinds = [...new Set(victims)].map((victim) => `${victim === "both" ? "server and worker" : victim} killed ${times(victim)} times`);
  return {
    name: `${kinds.join(", ")}, SDK ${version}, seed ${seed}`,
    timeoutMs: 120_000 + DRAIN_MS_MAX + victims.length * 5_000 + times("database") * 10_000,
    run: async (cleanup: Cleanup) => {
      const server = await Server.start(times("database") > 0 ? RETRY_SOON : []);
      const random = new Random(seed + offset);
      const trial = new Trial(server.url, dialects[version]!, typescriptWorker(version), random, inFlight);
      cleanup(() => server.kill());
      cleanup(() => trial.stop());
      log = () => [...server.log, ...trial.log];
      await kill(victims, server, trial, random);
    },
  };
}

const repeated = (victim: Victim, kills: number) => Array<Victim>(kills).fill(victim);

/** So many kills of the database server, if there is one, and as many of the others in turn. */
function mixed(kills: number): Scenario {
  const others: Victim[] = ["server", "worker", "both"];
  return scenario("0.11.5", [...Array(kills).keys()].flatMap((n) => [others[n % others.length]!, ...repeated("database", unkillable ? 0 : 1)]), 0);
}

note(`seed ${seed}: the same kills again with --seed ${seed}`);
// The older SDK's heartbeats name no task, so what it gave up while the server was dead must lapse all the same.
const each: [string, Victim, number, number][] = [
  ["0.11.5", "server", serverKills, 0],
  ["0.11.4", "server", Math.ceil(serverKills / 3), 3],
  ["0.11.5", "worker", workerKills, 1],
  ["0.11.4", "both", bothKills, 2],
  ["0.11.5", "database", unkillable ? 0 : databaseKills, 4],
];
const scenarios = killsText.includes(",")
  ? each.filter(([, , kills]) => kills > 0).map(([version, victim, kills, offset]) => scenario(version, repeated(victim, kills), offset))
  : [mixed(serverKills)];
if (unkillable && databaseKills > 0 && !onFile) report({ report: "skip", reason: `the database killed ${databaseKills} times: ${unkillable}` });
await runScenarios(scenarios, new RegExp(only), () => log());
await finish();
