// What no server may write into its log: the token that everybody sends here, payloads, passwords in URLs.

/** A token that the SDKs send with every request, from RESONATE_TOKEN. Servers without authentication do not ask for it. */
export const TOKEN = "hush-no-log-may-show-this-token";

/** Payloads are JSON in base64, and so are tokens; objects begin with eyJ, and arrays and strings are parts of objects here. */
const SECRET = new RegExp(`${TOKEN}|eyJ[A-Za-z0-9+/_-]{8}|"data":|://[^/\\s:@]+:[^*\\s@][^\\s@]*@`);

/** Lines of the logs of all servers of this process that hold a secret: the first few. */
const spilt: string[] = [];
const SPILT_MAX = 20;

/** Looks at a line of a server's log. */
export function watch(line: string): void {
  if (holdsSecret(line) && spilt.length < SPILT_MAX) spilt.push(line);
}

/** Whether a line of a log holds what it must not. */
export function holdsSecret(line: string): boolean {
  return SECRET.test(line);
}

/** What has been found so far. */
export function spiltLines(): readonly string[] {
  return spilt;
}
