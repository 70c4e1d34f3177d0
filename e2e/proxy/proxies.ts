// Reverse proxies from Debian in front of one server, each as docs/proxies.md says, but for the time after which it cuts a
// connection that is silent.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort, temporaryFolder } from "../harness/places.ts";
import { Child } from "../harness/processes.ts";
import { until } from "../harness/waiting.ts";

/** A way to the server through a proxy. */
export interface Way {
  name: string;
  url: string;
}

const START_MS_MAX = 60_000;

/** Where Debian puts what only an administrator is to run. */
function installed(command: string): string | undefined {
  return [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/usr/local/sbin"].map((folder) => join(folder, command)).find((path) => existsSync(path));
}

/** Which of the proxies this machine lacks. */
export function missing(): string[] {
  return ["nginx", "haproxy"].filter((command) => installed(command) === undefined);
}

/** The proxies that run, in a folder of their own. */
export class Proxies {
  readonly ways: Way[];
  private readonly children: Child[];
  private readonly errorLog: string;

  private constructor(ways: Way[], children: Child[], errorLog: string) {
    this.ways = ways;
    this.children = children;
    this.errorLog = errorLog;
  }

  /** Starts all of them in front of a server; each cuts what is silent for so many seconds. */
  static async start(serverUrl: string, silenceSeconds: number): Promise<Proxies> {
    const folder = temporaryFolder();
    const server = new URL(serverUrl).host;
    const ports = [await freePort(), await freePort(), await freePort()] as const;
    const [plain, kept, haproxy] = ports;
    const errorLog = join(folder, "error.log");
    writeFileSync(join(folder, "nginx.conf"), nginxConfiguration(folder, server, silenceSeconds, plain, kept));
    writeFileSync(join(folder, "haproxy.cfg"), haproxyConfiguration(server, silenceSeconds, haproxy));
    const children = [
      new Child(installed("nginx")!, ["-p", folder, "-c", join(folder, "nginx.conf"), "-e", errorLog]),
      new Child(installed("haproxy")!, ["-db", "-f", join(folder, "haproxy.cfg")]),
    ];
    const ways = ["nginx, HTTP/1.0 to the server", "nginx, HTTP/1.1 to the server", "HAProxy"].map((name, n) => ({ name, url: `http://127.0.0.1:${ports[n]}` }));
    const proxies = new Proxies(ways, children, errorLog);
    for (const { name, url } of ways) {
      await until(`${name} serves`, async () => {
        if (children.some((child) => !child.running)) throw new Error(`a proxy does not start: ${proxies.log.join("\n")}`);
        return fetch(`${url}/ready`).then(({ status }) => status === 200, () => false);
      }, START_MS_MAX);
    }
    return proxies;
  }

  /** What the proxies complained about, nginx in its file. */
  get log(): string[] {
    const written = existsSync(this.errorLog) ? readFileSync(this.errorLog, "utf8").split("\n") : [];
    return [...written.filter((line) => /\[(error|crit|alert|emerg)\]/.test(line)), ...this.children.flatMap(({ lines }) => lines)].slice(-60);
  }

  /** The lines of nginx's log that say that it cut a connection which the server was silent on, or the server one that it was not. */
  get cuts(): string[] {
    return this.log.filter((line) => /upstream (timed out|prematurely closed)/.test(line));
  }

  async end(): Promise<void> {
    await Promise.all(this.children.map((child) => child.kill()));
  }
}

/** As Debian's nginx.conf and a server block with nothing but proxy_pass: HTTP/1.0, buffering on; and one that keeps connections. */
function nginxConfiguration(folder: string, server: string, silenceSeconds: number, plain: number, kept: number): string {
  const places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${join(folder, name)};`).join("\n  ");
  return `
${process.getuid?.() === 0 ? "user root;" : ""}
worker_processes auto;
daemon off;
pid ${join(folder, "nginx.pid")};
events { worker_connections 768; }
http {
  ${places}
  sendfile on;
  tcp_nopush on;
  gzip on;
  access_log off;
  proxy_buffering on;
  proxy_read_timeout ${silenceSeconds}s;
  upstream abide { server ${server}; keepalive 8; }
  server {
    listen 127.0.0.1:${plain};
    location / { proxy_pass http://${server}; }
  }
  server {
    listen 127.0.0.1:${kept};
    location / {
      proxy_pass http://abide;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
  }
}
`;
}

/** Without http-no-delay HAProxy keeps the end of what a server has written back for 200 ms, in case that more comes. */
function haproxyConfiguration(server: string, silenceSeconds: number, port: number): string {
  return `
defaults
  mode http
  timeout connect 5s
  timeout client ${silenceSeconds}s
  timeout server ${silenceSeconds}s
  option http-no-delay
frontend proxy
  bind 127.0.0.1:${port}
  default_backend abide
backend abide
  server abide ${server}
`;
}
