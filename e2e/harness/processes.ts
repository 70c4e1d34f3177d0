// Child processes, and the promise that none of them outlives this one.
//
// Every child leads its own process group, so that killing the group reaches what the child itself
// started. Whatever way this process ends (return, error, Ctrl-C, SIGTERM), all groups are killed.

import { type ChildProcess, spawn } from "node:child_process";
import { atMost } from "./waiting.ts";

/** Lines of output kept for each child: enough to explain a failure, bounded over a long run. */
const LINES_KEPT_MAX = 400;

/** How long a child that tidies up may take for it. */
const TIDY_MS_MAX = 3_000;

/** The process groups to end with this process, and the signal for each. */
const groups = new Map<number, "SIGKILL" | "SIGTERM">();

export interface ChildOptions {
  env?: Record<string, string>;
  cwd?: string;
  /** Called for each message that a Node child sends; giving it opens the channel. */
  onMessage?: (message: unknown) => void;
  /** Called for each line of standard output. */
  onLine?: (line: string) => void;
  /** Called for each line of standard error. */
  onLogLine?: (line: string) => void;
  /** The child loads this module too: on SIGTERM it kills what it started itself, which SIGKILL would leave behind. */
  tidiesUp?: boolean;
  /** The child obeys lines, and tidies up and leaves when they end, as they do with this process: nobody kills it. */
  obeysLines?: boolean;
}

/** A running child with the tail of its output. */
export class Child {
  readonly lines: string[] = [];
  /** Settles, never rejects, when the child has ended; a child that could not start has code null. */
  readonly ended: Promise<{ code: number | null; signal: string | null }>;
  private readonly process: ChildProcess;
  private readonly tidiesUp: boolean;

  constructor(command: string, args: string[], options: ChildOptions = {}) {
    this.process = spawn(command, args, {
      cwd: options.cwd,
      detached: true,
      env: { ...process.env, ...options.env },
      stdio: [options.obeysLines ? "pipe" : "ignore", "pipe", "pipe", ...(options.onMessage ? (["ipc"] as const) : [])],
    });
    const pid = this.process.pid;
    this.tidiesUp = options.tidiesUp ?? false;
    if (pid !== undefined && !options.obeysLines) groups.set(pid, this.tidiesUp ? "SIGTERM" : "SIGKILL");
    this.process.stdin?.on("error", () => {}); // it has ended, which whoever waits for its answer sees
    this.keepLines(this.process.stdout, options.onLine);
    this.keepLines(this.process.stderr, options.onLogLine);
    if (options.onMessage) this.process.on("message", options.onMessage);
    this.ended = new Promise((resolve) => {
      this.process.on("error", (error) => {
        this.lines.push(`could not run ${command}: ${error.message}`);
        if (this.process.pid === undefined) resolve({ code: null, signal: null });
      });
      // "close", not "exit": the output has been read to its end by then.
      this.process.on("close", (code, signal) => {
        if (pid !== undefined) groups.delete(pid);
        resolve({ code, signal });
      });
    });
  }

  get pid(): number | undefined {
    return this.process.pid;
  }

  get running(): boolean {
    return this.process.pid !== undefined && this.process.exitCode === null && this.process.signalCode === null;
  }

  /** Tells a child that obeys lines something. */
  tell(line: string): void {
    this.process.stdin?.write(`${line}\n`);
  }

  /** Ends the lines of a child that obeys them. */
  endLines(): void {
    this.process.stdin?.end();
  }

  /** Signals the child alone. */
  signal(name: "SIGTERM" | "SIGINT"): void {
    if (this.running) this.process.kill(name);
  }

  /** Kills the child and everything it started, and waits until it is gone. */
  async kill(): Promise<void> {
    if (this.tidiesUp) {
      this.signal("SIGTERM");
      await atMost(TIDY_MS_MAX, this.ended);
    }
    if (this.process.pid !== undefined) signalGroup(this.process.pid, "SIGKILL");
    await this.ended;
  }

  private keepLines(stream: NodeJS.ReadableStream | null, onLine?: (line: string) => void): void {
    let rest = "";
    stream?.setEncoding("utf8");
    stream?.on("data", (chunk: string) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        this.lines.push(line);
        onLine?.(line);
      }
      if (this.lines.length > LINES_KEPT_MAX) this.lines.splice(0, this.lines.length - LINES_KEPT_MAX);
    });
    stream?.on("end", () => {
      if (rest !== "") this.lines.push(rest);
    });
  }
}

function signalGroup(pid: number, signal: "SIGKILL" | "SIGTERM"): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // The group is gone already, which is what was wanted.
  }
}

const lastActs: (() => void)[] = [];

/** Registers a synchronous act for the end of this process, whatever way it ends. */
export function atExit(act: () => void): void {
  lastActs.push(act);
}

process.on("exit", () => {
  for (const [pid, signal] of groups) signalGroup(pid, signal);
  for (const act of lastActs.reverse()) act();
});
for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 129]] as const) {
  process.on(signal, () => process.exit(code));
}
// A suite process leaves as soon as the runner that started it is gone.
process.on("disconnect", () => process.exit(1));
