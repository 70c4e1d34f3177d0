// Waiting that ends.

import { setTimeout as delay } from "node:timers/promises";

/** Waits for the promise, but at most so long: undefined means that it took longer. It rejects as the promise does. */
export async function atMost<T>(ms: number, promise: Promise<T>): Promise<{ value: T } | undefined> {
  const timer = new AbortController();
  try {
    return await Promise.race([promise.then((value) => ({ value })), delay(ms, undefined, { signal: timer.signal })]);
  } finally {
    timer.abort();
  }
}

/** Waits until the condition holds. A condition that throws ends the wait. */
export async function until(what: string, condition: () => boolean | Promise<boolean>, waitMsMax = 60_000): Promise<void> {
  const deadline = performance.now() + waitMsMax;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`waited ${waitMsMax} ms in vain until ${what}`);
    await delay(10);
  }
}
