// What a running server takes, read once a second: from /proc, from its metrics and from the size of its files.

import { readdirSync, readFileSync, statSync } from "node:fs";

/** The figures of one second. What could not be read is NaN: the server was just dead, or the system has no /proc. */
export interface Sample {
  /** Since the soak began. */
  seconds: number;
  /** Which start of the server it is. */
  life: number;
  residentBytes: number;
  heapBytes: number;
  threads: number;
  descriptors: number;
  goroutines: number;
  databaseBytes: number;
  logBytes: number;
  /** For how long the longest waiting message or timer has been due, by the server. */
  lagSeconds: number;
  /** For how long the oldest transfer goes on beyond the time that its money rests. */
  oldestSeconds: number;
  inFlight: number;
  ended: number;
}

export const figures = ["residentBytes", "heapBytes", "threads", "descriptors", "goroutines", "databaseBytes", "logBytes", "lagSeconds", "oldestSeconds"] as const;

/** A figure of a Sample that has a trend. */
export type Figure = (typeof figures)[number];

/** The columns of the file of samples. */
const columns: (keyof Sample)[] = ["seconds", "life", ...figures, "inFlight", "ended"];

export const csvHeader = `${columns.join(",")}\n`;

export function csvLine(sample: Sample): string {
  return `${columns.map((column) => (Number.isNaN(sample[column]) ? "" : +sample[column].toFixed(3))).join(",")}\n`;
}

/** What the system says of a process. */
export function processFigures(pid: number | undefined): Pick<Sample, "residentBytes" | "threads" | "descriptors"> {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    const number = (name: string) => Number(status.match(new RegExp(`^${name}:\\s*(\\d+)`, "m"))?.[1] ?? Number.NaN);
    return { residentBytes: number("VmRSS") * 1024, threads: number("Threads"), descriptors: readdirSync(`/proc/${pid}/fd`).length };
  } catch {
    return { residentBytes: Number.NaN, threads: Number.NaN, descriptors: Number.NaN };
  }
}

/** What the server says of itself at GET /metrics. */
export async function metricFigures(url: string): Promise<Pick<Sample, "heapBytes" | "goroutines" | "lagSeconds">> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(800) });
    const text = await answer.text();
    const values = (name: string) => [...text.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "gm"))].map((match) => Number(match[1]));
    const lags = [...values("abide_undelivered_oldest_seconds"), ...values("abide_timer_overdue_seconds")];
    return {
      heapBytes: values("go_memstats_heap_inuse_bytes")[0] ?? Number.NaN,
      goroutines: values("go_goroutines")[0] ?? Number.NaN,
      lagSeconds: lags.length > 0 ? Math.max(...lags) : Number.NaN,
    };
  } catch {
    return { heapBytes: Number.NaN, goroutines: Number.NaN, lagSeconds: Number.NaN };
  }
}

/** The size of a file, NaN if there is none. */
export function fileBytes(path: string | undefined): number {
  return (path === undefined ? undefined : statSync(path, { throwIfNoEntry: false })?.size) ?? Number.NaN;
}
