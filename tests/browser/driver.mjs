// What the drivers of Chromium share: the start of the browser, and the commands of the test process.
import readline from 'node:readline';
import { execFileSync } from 'node:child_process';
import { chromium } from 'playwright-core';

/** Starts a Chromium that connects to this machine only. The shell without windows starts in half the time. */
export const launch = () => chromium.launch({
  executablePath: execFileSync('sh', ['-c', 'command -v chromium-headless-shell'], { encoding: 'utf8' }).trim(),
  args: ['--disable-gpu', '--disable-quic', '--disable-sync', '--disable-component-update'],
});

/**
 * Runs the commands of the test process, several at once. Each line of stdin is a command, {"id", ...}, and is answered by a
 * line of stdout: {"id", "ok": value} or {"id", "error": text}. Calls `end` after the last command, and ends the process
 * with stdin.
 */
export function serve(run, end) {
  const pending = new Set();
  // The test process may have ended.
  process.stdout.on('error', () => {});
  // Commands that arrived during the start are still in stdin.
  const commands = readline.createInterface({ input: process.stdin });
  commands.on('line', line => {
    const command = JSON.parse(line);
    const answer = answer => console.log(JSON.stringify({ id: command.id, ...answer }));
    const done = run(command).then(ok => answer({ ok: ok ?? null }), error => answer({ error: error.stack }));
    pending.add(done);
    done.finally(() => pending.delete(done));
  });
  commands.on('close', async () => {
    await Promise.all(pending);
    await end();
    process.exit(0);
  });
}
