// A durable workflow: two steps with a pause between them.
//
//   abide dev            in one terminal (or: go run ./cmd/abide dev)
//   npm run hello        in another

import { type Context, Resonate } from "@resonatehq/sdk";

const resonate = new Resonate({ url: process.env.RESONATE_URL ?? "http://localhost:8001" });

async function greet(_: Context, name: string) {
  return `Hello, ${name}!`;
}

function* hello(ctx: Context, name: string) {
  const greeting: string = yield* ctx.run(greet, name); // its result is recorded: it is never run again
  yield* ctx.sleep(1000); // the server wakes the workflow, whether or not this process still lives
  const farewell: string = yield* ctx.run(async () => `Goodbye, ${name}!`);
  return `${greeting} ${farewell}`;
}

const workflow = resonate.register("hello", hello);
console.log(await workflow.run(`hello-${Date.now()}`, "world"));
await resonate.stop();
