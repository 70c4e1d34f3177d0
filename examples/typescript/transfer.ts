// Two transfers at once: one arrives, the other goes to an account that does not exist and is refunded.
//
//   abide dev                          in one terminal (or: go run ./cmd/abide dev)
//   npm run transfer                   in another
//   npm run transfer -- monday 30000   the same under a name of your own, the money resting for 30 seconds: kill this
//                                      process or the server meanwhile, start it again, and it goes on where it was

import { Resonate } from "@resonatehq/sdk";
import { FileBank } from "./bank.ts";
import { deposit, transfer } from "./workflow.ts";

const [name = `transfer-${Date.now()}`, restMs = "1000"] = process.argv.slice(2);
const bank = new FileBank("bank.json", { alice: 1000, bob: 0 });

// A short ttl: the tasks of a killed worker go to the next one after five seconds.
const resonate = new Resonate({ url: process.env.RESONATE_URL ?? "http://localhost:8001", ttl: 5_000 });
resonate.setDependency("bank", bank);
resonate.register("deposit", deposit);
const workflow = resonate.register("transfer", transfer);

console.log("before:", bank.accounts);
const order = { from: "alice", amount: 10, restMs: Number(restMs) };
const outcomes = await Promise.all([
  workflow.rpc(`${name}-to-bob`, { ...order, to: "bob" }),
  workflow.rpc(`${name}-to-nobody`, { ...order, to: "nobody" }),
]);
for (const outcome of outcomes) console.log(outcome.status, outcome.status === "refunded" ? `(${outcome.reason})` : "");
console.log("after: ", bank.accounts);
await resonate.stop();
