// Those who are connected while a server stops, besides those who work: a prober of /ready, and clients that are in the way.

import { Agent, get } from "node:http";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

const PROBE_MS = 5;

/** Asks for /ready on a connection that it keeps, as load balancers do. */
export class Prober {
  /** What was answered since `begin`, each status once in a row; 0 when there was no answer. */
  seen: number[] = [];
  private readonly url: string;
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 1 });
  private over = false;

  constructor(url: string) {
    this.url = url;
    void this.run();
  }

  begin(): void {
    this.seen = [];
  }

  end(): void {
    this.over = true;
    this.agent.destroy();
  }

  private async run(): Promise<void> {
    while (!this.over) {
      const status = await this.ask();
      if (this.seen.at(-1) !== status) this.seen.push(status);
      await delay(PROBE_MS);
    }
  }

  private ask(): Promise<number> {
    return new Promise((resolve) => {
      get(`${this.url}/ready`, { agent: this.agent }, (answer) => {
        answer.resume();
        answer.on("error", () => resolve(0)).on("end", () => resolve(answer.statusCode!));
      }).on("error", () => resolve(0));
    });
  }
}

/** Opens connections that a stop must not wait for: silent ones, half a request, a worker that reads nothing. */
export async function obstruct(url: string): Promise<Socket[]> {
  const { hostname, port } = new URL(url);
  const texts = [
    "",
    "",
    `POST / HTTP/1.1\r\nHost: ${hostname}\r\n`,
    `POST / HTTP/1.1\r\nHost: ${hostname}\r\nContent-Length: 1000\r\n\r\n{"kind":`,
    `GET /poll/stalled/one HTTP/1.1\r\nHost: ${hostname}\r\n\r\n`,
  ];
  return Promise.all(texts.map((text) => obstacle(hostname, Number(port), text)));
}

function obstacle(hostname: string, port: number, text: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, hostname, () => {
      socket.removeListener("error", reject);
      socket.on("error", () => {});
      socket.write(text, () => resolve(socket));
    });
    socket.pause();
    socket.on("error", reject);
  });
}
