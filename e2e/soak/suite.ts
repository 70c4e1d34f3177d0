// The suite process of the soak: node suite.ts <pattern> <seed> <seconds> <transfers in flight> <folder for the results>.
//
// For the given time TypeScript workers and a Python worker run transfers, and the server and the workers are killed with
// SIGKILL at random moments. Once a second what the server takes and how far it lags goes into samples.csv. In the end
// everything must have ended well, as in the kill tests, and nothing may surely grow; result.json holds the figures.

import { appendFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Child } from "../harness/processes.ts";
import { type Cleanup, finish, PATIENCE, runScenarios } from "../harness/scenarios.ts";
import { freePort } from "../harness/places.ts";
import { checkStore, Server } from "../harness/server.ts";
import { Random } from "../kill/random.ts";
import { checkFile, DRAIN_MS_MAX, note, type StartWorker, Trial, typescriptWorker } from "../kill/trial.ts";
import { dialects } from "../typescript/stage.ts";
import { csvHeader, csvLine, type Figure, figures, fileBytes, metricFigures, processFigures, type Sample } from "./gauges.ts";
import { sureGrowth, type Trend, trend } from "./trend.ts";

/**
 * By how much a figure may grow over the run, or by that part of its median if that is more. What is not here may grow.
 * Half of what resident memory may grow by are SQLite's page caches, 64 MiB together, which fill as the database grows.
 */
const GROWTH_MAX: Partial<Record<Figure, number>> = { residentBytes: 128 << 20, heapBytes: 32 << 20, threads: 16, descriptors: 32, goroutines: 50 };
const GROWTH_PART_MAX = 0.5;
/** How long a transfer may go on beyond the rest of its money: some kills in a row, each of which may cost a retry after 30 s. */
const OLDEST_SECONDS_MAX = 120 * PATIENCE;
/** A database is checked after every kill while it is so small, later at the end alone. */
const CHECKED_BYTES_MAX = 32 << 20;
const PYTHON = join(import.meta.dirname, "..", "python", ".venv-0.8.1", "bin", "python");
const TYPESCRIPT_WORKERS = 2;

const [only = "", seedText = "1", secondsText = "60", inFlightText = "24", folder = "."] = process.argv.slice(2);
const [seed, seconds, inFlight] = [Number(seedText), Number(secondsText), Number(inFlightText)];
/** Of a life: what is left out of its trend. */
const warmUpSeconds = Math.min(60, Math.max(5, seconds / 30));
/** For so long at the end the server is left alone, so that there is a trend however the dice fall. */
const quietSeconds = Math.max(25, Math.min(180, seconds / 3));

const pythonWorker: StartWorker = (serverUrl, ledgerUrl) => new Child(PYTHON, [join(import.meta.dirname, "worker.py"), serverUrl, ledgerUrl]);

/** The Python SDK builds ids as the newest TypeScript one does, and counts from 1. */
const newest = dialects["0.11.5"]!;
const pythonDialect = { ...newest, version: "python-0.8.1", child: (id: string, n: number) => newest.child(id, n + 1) };

class Soak {
  readonly server: Server;
  readonly trials: Trial[] = [];
  readonly samples: Sample[] = [];
  life = 0;
  workerKills = 0;
  private readonly metricsUrl: string;
  private readonly random = new Random(seed);
  private readonly begun = performance.now();
  private readonly csv = join(folder, "samples.csv");
  /** How many workers each trial has. */
  private readonly workers: number[] = [];
  private over = false;

  constructor(server: Server, metricsPort: number) {
    this.server = server;
    this.metricsUrl = `http://127.0.0.1:${metricsPort}/metrics`;
    this.add(new Trial(server.url, newest, typescriptWorker("0.11.5"), this.random, inFlight), TYPESCRIPT_WORKERS);
    // In a workspace of its own, because a trial judges all that it finds.
    const python = () => new Trial(`${server.url}/w/python`, pythonDialect, pythonWorker, this.random, Math.ceil(inFlight / 3));
    if (existsSync(PYTHON)) this.add(python(), 1);
    else note(`without a Python worker: ${process.env.E2E_PYTHON_SKIPPED ?? `${PYTHON} is missing`}`);
  }

  get age(): number {
    return (performance.now() - this.begun) / 1000;
  }

  async run(): Promise<string[]> {
    writeFileSync(this.csv, csvHeader);
    for (const [n, trial] of this.trials.entries()) await trial.begin(this.workers[n]!);
    const sampling = this.sample();
    try {
      await Promise.all([this.killServers(), this.killWorkers()]);
    } finally {
      this.over = true;
      await sampling;
    }
    for (const trial of this.trials) note(await trial.end());
    await this.server.stop();
    checkFile(this.server.store);
    checkStore(this.server.store);
    return this.judge();
  }

  private add(trial: Trial, workers: number): void {
    this.trials.push(trial);
    this.workers.push(workers);
  }

  /** Kills the server again and again: the first time and two times in three soon after its start, else after long enough for a trend. */
  private async killServers(): Promise<void> {
    const long = Math.min(300, seconds / 2);
    for (;;) {
      const soon = this.life === 0 || this.random.between(0, 3) > 0;
      const wait = soon ? this.random.between(500, 8_000) : this.random.between(500 * long, 1_000 * long);
      await this.pause(wait);
      if (this.over || this.age > seconds - quietSeconds) return this.pause(seconds * 1000);
      await this.server.kill();
      if (fileBytes(this.server.store.file) <= CHECKED_BYTES_MAX) checkFile(this.server.store);
      this.life++;
      await this.server.restart();
      for (const trial of this.trials) await trial.readAgain();
    }
  }

  private async killWorkers(): Promise<void> {
    for (;;) {
      await this.pause(this.random.between(500, 15_000));
      if (this.over || this.age > seconds) return;
      const n = this.random.between(0, this.trials.length);
      const worker = this.random.between(0, this.workers[n]!);
      await this.trials[n]!.killWorker(worker);
      this.workerKills++;
      await delay(this.random.between(0, 1_000));
      this.trials[n]!.startWorker(worker);
    }
  }

  /** Waits, but not beyond the end. */
  private async pause(ms: number): Promise<void> {
    const until = Math.min(performance.now() + ms, this.begun + seconds * 1000 + 1);
    while (!this.over && performance.now() < until) {
      for (const trial of this.trials) trial.check();
      await delay(Math.min(100, Math.max(1, until - performance.now())));
    }
  }

  private async sample(): Promise<void> {
    const every = seconds < 300 ? 10 : 60;
    const { file } = this.server.store;
    for (let n = 1; !this.over; n++) {
      await delay(Math.max(0, n * 1000 - this.age * 1000));
      const life = this.life;
      const sample: Sample = {
        ...{ seconds: this.age, life, ...processFigures(this.server.pid), ...(await metricFigures(this.metricsUrl)) },
        ...{ databaseBytes: fileBytes(file), logBytes: fileBytes(file && `${file}-wal`) },
        oldestSeconds: Math.max(...this.trials.map((trial) => trial.transfers.oldestSeconds)),
        inFlight: this.trials.reduce((sum, trial) => sum + trial.transfers.open.size, 0),
        ended: this.trials.reduce((sum, trial) => sum + trial.transfers.ended, 0),
      };
      if (life !== this.life) continue; // killed in between: half of one life, half of another
      this.samples.push(sample);
      appendFileSync(this.csv, csvLine(sample));
      if (n % every === 0) note(this.progress(sample));
    }
  }

  private progress(sample: Sample): string {
    return (
      `${Math.round(sample.seconds)} of ${seconds} s: killed the server ${this.life} and workers ${this.workerKills} times, ${sample.ended} transfers ended; ` +
      `${shown("residentBytes", sample.residentBytes)} resident, ${sample.goroutines} goroutines, ${sample.descriptors} descriptors, ` +
      `database ${shown("databaseBytes", sample.databaseBytes)} + ${shown("logBytes", sample.logBytes)}, lag ${sample.lagSeconds} s, oldest ${sample.oldestSeconds.toFixed(1)} s`
    );
  }

  /** Reports the trends and gives what is wrong with them. */
  private judge(): string[] {
    const wrong: string[] = [];
    const found: Partial<Record<Figure, Trend>> = {};
    for (const figure of figures) {
      const line = trend(this.samples.map((sample) => ({ life: sample.life, seconds: sample.seconds, value: sample[figure] })), warmUpSeconds);
      if (!line) {
        if (GROWTH_MAX[figure] !== undefined) wrong.push(`${figure} could not be read often enough for a trend`);
        continue;
      }
      found[figure] = line;
      note(
        `${figure}: median ${shown(figure, line.median)}, at most ${shown(figure, line.max)}; ` +
          `slope ${shown(figure, line.perHour)} ± ${shown(figure, line.errorPerHour)} an hour (${line.readings} readings)`,
      );
      const bound = GROWTH_MAX[figure];
      const grown = sureGrowth(line, seconds);
      if (bound !== undefined && grown > Math.max(bound, GROWTH_PART_MAX * line.median)) wrong.push(`${figure} grows: by ${shown(figure, grown)} at least over the run`);
    }
    const oldest = Math.max(...this.samples.map((sample) => sample.oldestSeconds));
    if (oldest > OLDEST_SECONDS_MAX) wrong.push(`a transfer went on for ${oldest.toFixed(0)} s longer than its money rested; at most ${OLDEST_SECONDS_MAX} s`);
    const ended = this.trials.reduce((sum, trial) => sum + trial.transfers.ended, 0);
    const result = { seed, seconds, inFlight, serverKills: this.life, workerKills: this.workerKills, transfers: ended, oldestSeconds: oldest, warmUpSeconds, trends: found, wrong };
    writeFileSync(join(folder, "result.json"), `${JSON.stringify(result, undefined, 2)}\n`);
    note(`killed the server ${this.life} and workers ${this.workerKills} times; ${join(folder, "result.json")} and samples.csv beside it`);
    return wrong;
  }
}

/** A figure for people: bytes as megabytes. */
function shown(figure: Figure, value: number): string {
  return figure.endsWith("Bytes") ? `${(value / (1 << 20)).toFixed(1)} MB` : `${+value.toFixed(2)}`;
}

let log = () => [] as string[];
mkdirSync(folder, { recursive: true });
note(`seed ${seed}: the same pauses again with --seed ${seed}`);
const scenario = {
  name: `soak of ${seconds} s, seed ${seed}`,
  // The drain at the end, twice; then as long again as all took for reading it back.
  timeoutMs: 2 * seconds * 1000 + 120_000 + 2 * DRAIN_MS_MAX,
  run: async (cleanup: Cleanup) => {
    const metricsPort = await freePort();
    const server = await Server.start(["--observability-metrics-port", `${metricsPort}`]);
    const soak = new Soak(server, metricsPort);
    cleanup(() => server.kill());
    cleanup(() => Promise.all(soak.trials.map((trial) => trial.stop())));
    log = () => [...server.log, ...soak.trials.flatMap((trial) => trial.log)];
    const wrong = await soak.run();
    if (wrong.length > 0) throw new Error(wrong.join("\n"));
  },
};
await runScenarios([scenario], new RegExp(only), () => log());
await finish();
