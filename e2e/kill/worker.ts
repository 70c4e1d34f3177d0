// The worker that gets killed: node worker.ts <sdk version> <server url> <ledger url>. It runs the transfer workflow
// of examples/typescript, and tells the test every answer that it got from the server: those are the acknowledged
// writes that no crash may lose.

import "../harness/processes.ts"; // leaves when the test is gone
import { deposit, transfer } from "../../examples/typescript/workflow.ts";
import { PATIENCE } from "../harness/scenarios.ts";
import { listenToAnswers } from "../harness/witness.ts";
import type { Sdk } from "../typescript/stage.ts";
import { LedgerBank } from "./ledger.ts";

/** Short, so that the tasks of a killed worker go on soon; not so short that a busy machine lets it lapse. */
const LEASE_MS = 4_000 * PATIENCE;

const [version = "", serverUrl = "", ledgerUrl = ""] = process.argv.slice(2);
listenToAnswers(serverUrl, (...answer) => process.send?.(answer));
const sdk: Sdk = await import(`resonate-${version.replaceAll(".", "-")}`);
const resonate = new sdk.Resonate({ url: serverUrl, ttl: LEASE_MS, logLevel: "error" });
resonate.setDependency("bank", new LedgerBank(ledgerUrl));
resonate.register("deposit", deposit);
resonate.register("transfer", transfer);
