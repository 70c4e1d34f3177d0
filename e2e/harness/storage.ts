// Where the servers under test keep their data: a file of SQLite, or a database server. `e2e/run --storage` says which. A
// database server that no URL names is started by the suite's process for itself, which may kill it; it ends with the process.

import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, cpSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort, temporaryFolder } from "./places.ts";
import { atExit, Child } from "./processes.ts";
import { atMost, until } from "./waiting.ts";

/** How a kind of storage is started and called. */
interface Kind {
  engine: "sqlite" | "postgres" | "mysql";
  /** The script of internal/testenv/engines, and what its `find` is asked for before the folder of the engines. */
  script?: { name: string; find: string[] };
}

export const kinds: Record<string, Kind> = {
  sqlite: { engine: "sqlite" },
  "postgres-15": { engine: "postgres", script: { name: "postgres.sh", find: ["15"] } },
  "postgres-18": { engine: "postgres", script: { name: "postgres.sh", find: ["18"] } },
  "mariadb-10.11": { engine: "mysql", script: { name: "mariadb.sh", find: [] } },
  "mysql-8.0": { engine: "mysql", script: { name: "mysql.sh", find: [] } },
};

/** How long a database server may take to start, an empty one being made, or recovering from a kill. */
const START_MS_MAX = 120_000;
const TIDY_MS_MAX = 15_000;
/** Where engines are kept that no system package has; the same folder as the tests in Go use. */
const CACHE = process.env.ABIDE_ENGINES ?? join(tmpdir(), "abide-engines");
const scripts = join(import.meta.dirname, "..", "..", "internal", "testenv", "engines");

/** What is asked for, KIND or KIND=URL; the runner checks it and passes it on. */
const [kindName = "", givenUrl] = (process.env.E2E_STORAGE ?? "sqlite").split(/=(.*)/s);

/** Whether servers under test keep their data in a file, which one of them holds. */
export const onFile = kinds[kindName]?.engine === "sqlite";
/** Why the database server cannot be killed, if it cannot. */
export const unkillable = onFile ? "SQLite has no server" : givenUrl ? "the database server was there already" : undefined;

/** The place of one server's data, or of several servers'. */
export interface Store {
  /** The flags of `abide serve` that lead to it. */
  flags: string[];
  /** What `abide check` calls it. */
  address: string;
  /** The data file, of a store that is one. */
  file?: string;
}

/** A database server of this process' own. */
export class DatabaseServer {
  readonly url: string;
  private readonly child: Child;
  private answers = 0;

  private constructor(url: string, command: string, args: string[]) {
    this.url = url;
    this.child = new Child(command, args, { obeysLines: true, onLine: () => this.answers++ });
  }

  /** Starts an empty server of a kind. */
  static async start(name: string): Promise<DatabaseServer> {
    const { engine, script } = kinds[name]!;
    // The scripts remove the folder that they lie in when they end.
    const folder = mkdtempSync(join(tmpdir(), "abide-e2e-engine-"));
    chmodSync(folder, 0o711); // PostgreSQL runs as another user than root
    const copy = join(folder, script!.name);
    cpSync(scripts, folder, { recursive: true }); // one script sources another
    const found = new Child(copy, ["find", ...script!.find, CACHE]);
    if ((await found.ended).code !== 0) {
      throw new Error(`${name} is not installed: internal/testenv/engines/${[script!.name, "install", ...script!.find, CACHE].join(" ")}`);
    }
    const port = await freePort();
    const url = engine === "postgres" ? `postgres://postgres@127.0.0.1:${port}/postgres?sslmode=disable` : `mysql://root@127.0.0.1:${port}/`;
    const server = new DatabaseServer(url, copy, ["serve", join(folder, "engine"), `${port}`, engine === "postgres" ? found.lines[0]! : CACHE]);
    await server.answered(1);
    return server;
  }

  /** Ends the server with SIGKILL. */
  async kill(): Promise<void> {
    await this.tell("kill");
  }

  /** Starts a server that was killed, and waits until it has recovered. */
  async restart(): Promise<void> {
    await this.tell("start");
  }

  /** Ends the server and removes its data. */
  async end(): Promise<void> {
    this.child.endLines();
    await atMost(TIDY_MS_MAX, this.child.ended);
  }

  private async tell(line: string): Promise<void> {
    const before = this.answers;
    this.child.tell(line);
    await this.answered(before + 1);
  }

  private async answered(answers: number): Promise<void> {
    await until("the database server has obeyed", () => this.answers >= answers || !this.child.running, START_MS_MAX);
    if (this.answers < answers) throw new Error(`the database server ended:\n${this.child.lines.join("\n")}`);
  }
}

let own: Promise<DatabaseServer> | undefined;

/** The database server of this process' own, started when it is first asked for. */
export function databaseServer(): Promise<DatabaseServer> {
  own ??= DatabaseServer.start(kindName);
  return own;
}

/** An empty store, which is removed when this process ends. */
export async function newStore(): Promise<Store> {
  if (onFile) {
    const file = join(temporaryFolder(), "abide.db");
    return { flags: ["--storage-sqlite-path", file], address: file, file };
  }
  const url = givenUrl || (await databaseServer()).url;
  const name = `e2e_${randomBytes(5).toString("hex")}`;
  const mysql = kinds[kindName]!.engine === "mysql";
  if (mysql) database("create", url, name);
  if (givenUrl) atExit(() => database("drop", url, name));
  const within = new URL(url);
  if (mysql) {
    within.pathname = `/${name}`;
    return { flags: ["--storage-type", "mysql", "--storage-mysql-url", `${within}`], address: `${within}` };
  }
  within.searchParams.set("schema", name);
  return { flags: ["--storage-type", "postgres", "--storage-postgres-url", url, "--storage-postgres-schema", name], address: `${within}` };
}

function database(verb: "create" | "drop", url: string, name: string): void {
  const tool = process.env.E2E_DATABASE;
  if (!tool) throw new Error("E2E_DATABASE does not name the tool that makes databases; start the suite with e2e/run");
  execFileSync(tool, [verb, url, name], { stdio: ["ignore", "ignore", "pipe"] });
}
