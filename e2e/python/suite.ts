// The suite process of one Python SDK: node suite.ts <sdk version> <pattern of scenario names>.
// It gives the scenarios a server and passes on what they report.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { Child } from "../harness/processes.ts";
import { finish, type Report, report } from "../harness/scenarios.ts";
import { Server } from "../harness/server.ts";

const [version = "0.8.1", only = ""] = process.argv.slice(2);
const skipped = process.env.E2E_PYTHON_SKIPPED;
if (skipped) {
  report({ report: "skip", reason: skipped });
  await finish();
}
const python = join(import.meta.dirname, `.venv-${version}`, "bin", "python");
if (!existsSync(python)) throw new Error(`${python} is missing; start the suite with e2e/run, which makes it`);

const server = await Server.start();
const child = new Child(python, [join(import.meta.dirname, "scenarios.py"), version, server.url, only], {
  onLine: (line) => {
    const message: Report = JSON.parse(line);
    const sdkLog = () => child.lines.filter((text) => !text.startsWith("{")).slice(-30);
    report(message.report === "end" && message.error !== undefined ? { ...message, log: [...sdkLog(), ...server.log] } : message);
  },
});
const { code } = await child.ended;
if (code !== 0) throw new Error(`the scenarios ended with code ${code}:\n${child.lines.join("\n")}`);
await server.stop();
await finish();
