// One Abide server on a data folder of its own, started, stopped, killed and started again.

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { atExit, Child } from "./processes.ts";
import { atMost } from "./waiting.ts";

/** How long a server may take until it answers /ready. */
const START_MS_MAX = 15_000;
/** How long a server may take to leave after SIGTERM. */
const STOP_MS_MAX = 15_000;

/** The server binary that is tested; the `run` script builds it and names it. */
export function serverBinary(): string {
  const path = process.env.E2E_SERVER;
  if (!path) throw new Error("E2E_SERVER does not name the server binary; start the suite with e2e/run");
  return path;
}

/** A port of the loopback interface that nothing uses at this moment. */
export async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.on("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => (address !== null && typeof address === "object" ? resolve(address.port) : reject(new Error("no port"))));
    });
  });
}

/** A fresh folder that is removed when this process ends. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "abide-e2e-"));
  atExit(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export class Server {
  readonly url: string;
  /** The database file of `abide serve`. */
  readonly database: string;
  private readonly port: number;
  private readonly args: string[];
  private child: Child | undefined;
  /** Output of the processes before the present one: a failure often begins there. */
  private earlierLines: string[] = [];

  private constructor(port: number, database: string, args: string[]) {
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.database = database;
    this.args = args;
  }

  /** Starts `abide serve` on a free port and an empty database, with more arguments. */
  static async start(more: string[] = []): Promise<Server> {
    const port = await freePort();
    const database = join(temporaryFolder(), "abide.db");
    const args = ["serve", "--server-bind", "127.0.0.1", "--server-port", `${port}`, "--observability-metrics-port", "0",
      "--storage-sqlite-path", database, ...more];
    const server = new Server(port, database, args);
    await server.restart();
    return server;
  }

  /** Starts `abide dev` on a free port and a database that it throws away. */
  static async startDev(): Promise<Server> {
    const port = await freePort();
    const server = new Server(port, "", ["dev", "--ephemeral", "--server-port", `${port}`, "--observability-metrics-port", "0"]);
    await server.restart();
    return server;
  }

  /** Starts the server again on the same port and database, and waits until it is ready. */
  async restart(): Promise<void> {
    if (this.child) this.earlierLines = [...this.earlierLines, ...this.child.lines].slice(-200);
    const child = new Child(serverBinary(), this.args);
    this.child = child;
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
      const answer = await fetch(`${this.url}/ready`, { signal: AbortSignal.timeout(1_000) });
      await answer.arrayBuffer();
      return answer.status === 200;
    } catch {
      return false;
    }
  }
}
