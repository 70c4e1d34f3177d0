// One Abide server, on a store of its own or one that it shares, started, stopped, killed and started again.

import { execFileSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { freePort } from "./places.ts";
import { Child } from "./processes.ts";
import { watch } from "./secrets.ts";
import { newStore, onFile, type Store } from "./storage.ts";
import { atMost } from "./waiting.ts";

/** How long a server may take until it answers /ready. */
const START_MS_MAX = 90_000;
/** How long a server may take to leave after SIGTERM. */
const STOP_MS_MAX = 60_000;
/** Lines of a server's log that no server writes that is well: errors, panics, and a stop that gave up on something. */
const FAULTY = /level=ERROR|^panic:|^fatal error:|^goroutine \d+ \[|"panic in|WARNING: DATA RACE|at the shutdown timeout|was not closed in time/;

/** The server binary that is tested; the `run` script builds it and names it. */
export function serverBinary(): string {
  const path = process.env.E2E_SERVER;
  if (!path) throw new Error("E2E_SERVER does not name the server binary; start the suite with e2e/run");
  return path;
}

export class Server {
  readonly url: string;
  readonly store: Store;
  private readonly port: number;
  private readonly args: string[];
  /** Lines of the log, over all starts, that tell of a fault: at most a hundred. */
  readonly faults: string[] = [];
  private child: Child | undefined;
  /** Output of the processes before the present one: a failure often begins there. */
  private earlierLines: string[] = [];

  private constructor(port: number, store: Store, args: string[]) {
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.store = store;
    this.args = args;
  }

  /** Starts `abide serve` on a free port and an empty store, or one that others use too, with more arguments. */
  static async start(more: string[] = [], store?: Store): Promise<Server> {
    const port = await freePort();
    const on = store ?? (await newStore());
    const args = ["serve", "--server-bind", "127.0.0.1", "--server-port", `${port}`, "--observability-metrics-port", "0", "--level", "debug", ...on.flags, ...more];
    const server = new Server(port, on, args);
    await server.restart();
    return server;
  }

  /** Starts `abide dev` on a free port and data that it or this process throws away. */
  static async startDev(): Promise<Server> {
    const port = await freePort();
    const store = await newStore();
    const data = onFile ? ["--ephemeral"] : store.flags;
    const server = new Server(port, store, ["dev", ...data, "--server-port", `${port}`, "--observability-metrics-port", "0", "--level", "debug"]);
    await server.restart();
    return server;
  }

  /** Starts the server again on the same port and store, and waits until it is ready. */
  async restart(): Promise<void> {
    if (this.child) this.earlierLines = [...this.earlierLines, ...this.child.lines].slice(-200);
    this.child = new Child(serverBinary(), this.args, {
      onLogLine: (line) => {
        watch(line);
        if (FAULTY.test(line) && this.faults.length < 100) this.faults.push(line);
      },
    });
    await this.untilReady();
  }

  /** Waits until the server that runs is ready. */
  async untilReady(): Promise<void> {
    const child = this.child!;
    const deadline = performance.now() + START_MS_MAX;
    while (!(await this.ready())) {
      if (!child.running) throw new Error(`the server ended while starting:\n${child.lines.join("\n")}`);
      if (performance.now() > deadline) throw new Error(`the server was not ready after ${START_MS_MAX} ms:\n${child.lines.join("\n")}`);
      await delay(20);
    }
  }

  /** Ends the server with SIGKILL: nothing of it gets to run again. */
  async kill(): Promise<void> {
    await this.child?.kill();
  }

  /** Ends the server with SIGTERM and fails unless it leaves in time with exit code 0. */
  async stop(): Promise<void> {
    const child = this.child;
    if (!child?.running) throw new Error("the server had ended before it was stopped");
    child.signal("SIGTERM");
    const stopped = await atMost(STOP_MS_MAX, child.ended);
    if (!stopped) {
      await child.kill();
      throw new Error(`the server had not left ${STOP_MS_MAX} ms after SIGTERM`);
    }
    const { code, signal } = stopped.value;
    if (code !== 0) throw new Error(`the server left with code ${code}, signal ${signal}, after SIGTERM`);
  }

  /** The process of the present start. */
  get pid(): number | undefined {
    return this.child?.pid;
  }

  /** Starts a second server process on the same database and another port, and gives how it ended. */
  async startRival(): Promise<{ code: number | null; output: string }> {
    const port = `${await freePort()}`;
    const rival = new Child(serverBinary(), this.args.map((arg) => (arg === `${this.port}` ? port : arg)));
    const ended = await atMost(START_MS_MAX, rival.ended);
    await rival.kill();
    return { code: ended ? ended.value.code : null, output: rival.lines.join("\n") };
  }

  /** The last lines that the server wrote, over all its starts. */
  get log(): string[] {
    return [...this.earlierLines, ...(this.child?.lines ?? [])].slice(-60);
  }

  private async ready(): Promise<boolean> {
    try {
      const answer = await fetch(`${this.url}/ready`, { signal: AbortSignal.timeout(5_000) });
      await answer.arrayBuffer();
      return answer.status === 200;
    } catch {
      return false;
    }
  }
}

/** Has `abide check` look at a store that no server uses any more, from its pages to the fold of its journal; throws what it finds. */
export function checkStore(store: Store): void {
  execFileSync(serverBinary(), ["check", "--replay", store.address], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}
