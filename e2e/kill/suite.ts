// The suite process of the kill tests: node suite.ts <pattern> <seed> <kills of server,worker,both> <transfers in flight>.
//
// A hundred transfers are kept in flight while the server, the worker or both are killed with SIGKILL at random moments.
// Then everything must have ended well: see Transfers.judge. The database that a killed server left behind is checked.

import { setTimeout as delay } from "node:timers/promises";
import { type Cleanup, finish, runScenarios, type Scenario } from "../harness/scenarios.ts";
import { Server } from "../harness/server.ts";
import { dialects } from "../typescript/stage.ts";
import { Random } from "./random.ts";
import { checkDatabase, DRAIN_MS_MAX, note, Trial, typescriptWorker } from "./trial.ts";

/** The longest pause before a kill. */
const PAUSE_MS_MAX = 1_500;
/**
 * Three kills in four wait until the worker is at work again, at most so long: the SDK opens its stream again one second
 * after a loss, and two, four ... after losses in a row. The fourth one comes as it comes, perhaps in mid-start.
 */
const AT_WORK_MS_MAX = 10_000;

type Victim = "server" | "worker" | "both";

async function kill(victim: Victim, kills: number, server: Server, trial: Trial, random: Random): Promise<void> {
  await trial.begin(1);
  for (let kill = 1; kill <= kills; kill++) {
    if (random.between(0, 4) > 0) await trial.waitUntilAtWork(AT_WORK_MS_MAX);
    await delay(random.between(0, PAUSE_MS_MAX));
    trial.atWork = false;
    if (victim !== "server") await trial.killWorker(0);
    if (victim !== "worker") {
      await server.kill();
      checkDatabase(server);
      await server.restart();
      await trial.readAgain();
    }
    if (victim !== "server") trial.startWorker(0);
    trial.check();
    if (kill % 5 === 0 || kill === kills) note(`killed ${kill} of ${kills} times: ${trial.transfers.ended} transfers ended, ${trial.transfers.open.size} open`);
  }
  const figures = await trial.end();
  await server.stop();
  checkDatabase(server);
  note(figures);
}

const [only = "", seedText = "1", killsText = "15,10,5", inFlight = "100"] = process.argv.slice(2);
const [serverKills = 0, workerKills = 0, bothKills = 0] = killsText.split(",").map(Number);
const seed = Number(seedText);
let log = () => [] as string[];

function scenario(version: string, victim: Victim, kills: number, offset: number): Scenario {
  return {
    name: `${victim === "both" ? "server and worker" : victim} killed ${kills} times, SDK ${version}, seed ${seed}`,
    timeoutMs: 120_000 + DRAIN_MS_MAX + kills * 5_000,
    run: async (cleanup: Cleanup) => {
      const server = await Server.start();
      const random = new Random(seed + offset);
      const trial = new Trial(server.url, dialects[version]!, typescriptWorker(version), random, Number(inFlight));
      cleanup(() => server.kill());
      cleanup(() => trial.stop());
      log = () => [...server.log, ...trial.log];
      await kill(victim, kills, server, trial, random);
    },
  };
}

note(`seed ${seed}: the same kills again with --seed ${seed}`);
// The older SDK's heartbeats name no task, so what it gave up while the server was dead must lapse all the same.
const scenarios = [
  scenario("0.11.5", "server", serverKills, 0),
  scenario("0.11.4", "server", Math.ceil(serverKills / 3), 3),
  scenario("0.11.5", "worker", workerKills, 1),
  scenario("0.11.4", "both", bothKills, 2),
];
await runScenarios(scenarios, new RegExp(only), () => log());
await finish();
