// Remembers every promise and task that the server answered with, and objects when it changes its mind:
// a settled promise never changes, what was created stays as created, a task's version never falls.

import type { PromiseRecord, TaskRecord } from "./protocol.ts";

/** What a promise was created with; no later request may change it. */
function birth(promise: PromiseRecord): string {
  return JSON.stringify([promise.param, Object.entries(promise.tags).sort(), promise.timeoutAt, promise.createdAt]);
}

function settlement(promise: PromiseRecord): string {
  return JSON.stringify([promise.state, promise.value, promise.settledAt]);
}

interface Known {
  birth: string;
  settlement?: string;
}

export class Witness {
  readonly promises = new Map<string, Known>();
  readonly tasks = new Map<string, { version: number; fulfilled: boolean }>();
  readonly objections: string[] = [];

  /**
   * Takes note of a promise in an answer. Answers may arrive out of order, so a pending record after a settled
   * one is not an objection here; a reader that asked after the settlement passes what it knew as `before`.
   */
  seePromise(promise: PromiseRecord, before?: Known): void {
    const known = this.promises.get(promise.id);
    if (!known) {
      this.promises.set(promise.id, { birth: birth(promise), ...(promise.state === "pending" ? {} : { settlement: settlement(promise) }) });
      return;
    }
    if (known.birth !== birth(promise)) this.object(`promise ${promise.id} was created as ${known.birth} and now reads ${birth(promise)}`);
    if (promise.state === "pending") {
      if (before?.settlement) this.object(`promise ${promise.id} was settled as ${before.settlement} and is pending again`);
      return;
    }
    if (known.settlement === undefined) known.settlement = settlement(promise);
    else if (known.settlement !== settlement(promise)) {
      this.object(`promise ${promise.id} was settled as ${known.settlement} and now reads ${settlement(promise)}`);
    }
  }

  /** Takes note of a task in an answer. */
  seeTask(task: TaskRecord): void {
    const known = this.tasks.get(task.id) ?? { version: 0, fulfilled: false };
    this.tasks.set(task.id, {
      version: Math.max(known.version, task.version),
      fulfilled: known.fulfilled || task.state === "fulfilled",
    });
  }

  object(objection: string): void {
    this.objections.push(objection);
  }

  /** Takes note of everything in the answer to one request. Only answers with status 200 or 300 say something. */
  seeAnswer(kind: string, status: number, data: any): void {
    if (status !== 200 && status !== 300) return;
    if (data.promise) this.seePromise(data.promise);
    if (data.task) this.seeTask(data.task);
    for (const promise of data.preload ?? []) this.seePromise(promise);
    if (kind === "task.fence" && data.action.head.status === 200) this.seePromise(data.action.data.promise);
  }

  /** Throws the first objections, if there are any. */
  check(): void {
    if (this.objections.length > 0) throw new Error(`${this.objections.length} objections:\n  ${this.objections.slice(0, 10).join("\n  ")}`);
  }
}

/** Lets the witness hear every answer that this process gets from the server, whichever SDK asked. */
export function listenToAnswers(serverUrl: string, hear: (kind: string, status: number, data: any) => void): void {
  const plain = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const answer = await plain(input, init);
    if (init?.method === "POST" && String(input).startsWith(serverUrl)) {
      const copy = answer.clone();
      const envelope: any = await copy.json().catch(() => undefined);
      if (envelope?.head) hear(envelope.kind, envelope.head.status, envelope.data);
    }
    return answer;
  };
}
