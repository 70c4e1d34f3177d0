// Ports and folders that nobody else uses.

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atExit } from "./processes.ts";

/**
 * Ports below those that systems give to whoever asks for any, so that nobody is given one before it is used, nor while a
 * server that was killed is started again on it.
 */
const [FIRST_PORT, PORTS, DRAWS_MAX] = [20_000, 10_000, 100];

/** A port of the loopback interface that nothing uses at this moment. */
export async function freePort(): Promise<number> {
  for (let draw = 0; draw < DRAWS_MAX; draw++) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port from ${FIRST_PORT} to ${FIRST_PORT + PORTS - 1}`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.on("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}

/** A fresh folder that is removed when this process ends. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "abide-e2e-"));
  atExit(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
