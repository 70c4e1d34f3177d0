// Three servers on one store, any of which may be dead at any moment.

import { freePort } from "../harness/places.ts";
import { checkStore, Server } from "../harness/server.ts";
import { newStore, type Store } from "../harness/storage.ts";
import { until } from "../harness/waiting.ts";
import { RETRY_SOON } from "../kill/trial.ts";

/** How long a server is started again and again: it may end while its database is away. */
const RESTART_MS_MAX = 120_000;

export class Trio {
  readonly servers: [Server, Server, Server];
  private readonly store: Store;
  private readonly metricsPorts: number[];

  private constructor(store: Store, servers: [Server, Server, Server], metricsPorts: number[]) {
    this.store = store;
    this.servers = servers;
    this.metricsPorts = metricsPorts;
  }

  /** Starts three servers on an empty store. */
  static async start(): Promise<Trio> {
    const store = await newStore();
    const ports = [await freePort(), await freePort(), await freePort()];
    const start = (n: number) => Server.start(["--observability-metrics-port", `${ports[n]}`, ...RETRY_SOON], store);
    // One after the other: the first makes the tables.
    return new Trio(store, [await start(0), await start(1), await start(2)], ports);
  }

  /** Where a server tells who runs on the store. */
  metricsUrl(n: number): string {
    return `http://127.0.0.1:${this.metricsPorts[n]}`;
  }

  get log(): string[] {
    return this.servers.flatMap((server, n) => [`--- server ${n} ---`, ...server.log]);
  }

  /** Starts a killed server, again and again until it is ready. */
  async restart(n: number): Promise<void> {
    const attempt = () =>
      this.servers[n]!.restart().then(
        () => true,
        () => this.servers[n]!.kill().then(() => false),
      );
    await until(`server ${n} starts`, attempt, RESTART_MS_MAX);
  }

  /** Ends all as an operator does, and has the store checked. */
  async end(): Promise<void> {
    for (const server of this.servers) await server.stop();
    checkStore(this.store);
  }

  async kill(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.kill()));
  }
}
