// An MCP server that a test steers through the folder STATE: it lists the tools of tools.json, reads the file again
// for each listing, says that its tools have changed after a change of the file, and writes each call to calls.log, and who calls to identities.log.
// A call may become a task. Its state is the file task.json, which survives the process, and the test changes it.

import { ProtocolError, ProtocolErrorCode, Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { randomUUID } from 'node:crypto';
import { appendFileSync, existsSync, readFileSync, renameSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = process.env.STATE;
const log = (line) => appendFileSync(join(folder, 'calls.log'), `${line}\n`);
const text = (words) => ({ content: [{ type: 'text', text: words }] });
const forever = () => new Promise(() => setInterval(() => {}, 60_000));

const form = (message) => {
  const properties = {
    pin: { type: 'string', minLength: 4, maxLength: 8 },
    attempts: { type: 'integer', minimum: 1, maximum: 3 },
  };
  const requestedSchema = { type: 'object', properties, required: ['pin'] };
  return { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema } };
};
const required = (inputRequests) => ({ resultType: 'input_required', inputRequests });
const answered = (responses) => {
  appendFileSync(join(folder, 'answers.log'), `${JSON.stringify(responses)}\n`);
  return text(Object.values(responses).map((response) => response.action).join(' '));
};

// Asks for a PIN in this many rounds, with a state of its own in each, and then does the rest. Writes what comes back to
// rounds.log.
const inRounds = (rounds, rest) => ({ note }, mcpReq) => {
  const [state, responses] = [mcpReq.requestState(), mcpReq.inputResponses];
  if (state !== undefined) appendFileSync(join(folder, 'rounds.log'), `${JSON.stringify({ state, responses })}\n`);
  const round = state === undefined ? 1 : Number(state.split('-').at(-1)) + 1;
  if (round > rounds) return rest(mcpReq);
  return { ...required({ pin: form(note ?? 'Which PIN?') }), requestState: `canary "é\u0000"-${round}` };
};

const taskFile = join(folder, 'task.json');
const writeTask = (task) => {
  writeFileSync(`${taskFile}.new`, JSON.stringify(task));
  renameSync(`${taskFile}.new`, taskFile);
};
const knownTask = (id) => {
  const task = existsSync(taskFile) ? JSON.parse(readFileSync(taskFile, 'utf8')) : {};
  if (task.taskId !== id) throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'there is no such task');
  return task;
};
const anyParams = { params: { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } } };

const does = {
  // Becomes a task, if the client can have one.
  task: (_, { envelope }) => {
    const capabilities = envelope?.['io.modelcontextprotocol/clientCapabilities'];
    if (!capabilities?.extensions?.['io.modelcontextprotocol/tasks']) return text('the client has no tasks');
    const now = new Date().toISOString();
    const task = { taskId: randomUUID(), status: 'working', createdAt: now, lastUpdatedAt: now, ttlMs: null, pollIntervalMs: 500 };
    writeTask(task);
    return { resultType: 'task', ...task };
  },
  round: inRounds(1, ({ inputResponses }) => answered(inputResponses)),
  twoRounds: inRounds(2, ({ inputResponses }) => answered(inputResponses)),
  roundThenHang: inRounds(1, forever),
  roundThenTask: inRounds(1, (mcpReq) => does.task({}, mcpReq)),
  // Wants the call again twice, without input.
  againTwice: (_, mcpReq) => {
    const times = Number(mcpReq.requestState() ?? 0);
    return times === 2 ? text('at last') : { resultType: 'input_required', requestState: String(times + 1) };
  },
  // Asks with a state of as many bytes as the note says.
  longState: ({ note }) => ({ ...required({ pin: form('Which PIN?') }), requestState: 'x'.repeat(Number(note)) }),
  say: ({ note }) => text(`said ${note}`),
  environment: () => text(Object.keys(process.env).sort().join(' ')),
  fail: () => ({ ...text('it is closed today'), isError: true }),
  // Asks, writes the content to answers.log, and returns the action alone.
  ask: ({ note }, { inputResponses }) => {
    if (inputResponses) return answered(inputResponses);
    return required({ pin: form(note ?? 'Which PIN?') });
  },
  // Asks as often as the note says, at once.
  askMany: ({ note }, { inputResponses }) => {
    if (inputResponses) return answered(inputResponses);
    return required(Object.fromEntries(Array.from({ length: Number(note) }, (_, n) => [`q${n}`, form(`Question ${n}?`)])));
  },
  askUrl: (_, { inputResponses }) => {
    if (inputResponses) return answered(inputResponses);
    const params = { mode: 'url', message: 'Go there.', url: 'https://evil.example/', elicitationId: '1' };
    return required({ visit: { method: 'elicitation/create', params } });
  },
  askModel: () => {
    const messages = [{ role: 'user', content: { type: 'text', text: 'hi' } }];
    return required({ say: { method: 'sampling/createMessage', params: { messages, maxTokens: 9 } } });
  },
  dawdle: () => new Promise((resolve) => setTimeout(() => resolve(text('at last')), 1500)),
  hang: forever,
  die: () => process.kill(process.pid, 'SIGKILL'),
  leave: () => {
    process.stdout.write('', () => process.exit(0));
    return text('the last words');
  },
  flood: () => text('x'.repeat(20 * 1024 * 1024)),
  long: () => text('x'.repeat(2 * 1024 * 1024)),
  complain: () => {
    for (let n = 0; n < 5000; n += 1) process.stderr.write(`${process.env.TOKEN} ${'x'.repeat(5000)}\n`);
    return text('done');
  },
};

serveStdio(() => {
  const info = { name: 'steered', version: '1.0.0' };
  const server = new Server(info, { capabilities: { tools: { listChanged: true } } });
  server.setRequestHandler('tools/list', () => ({ tools: JSON.parse(readFileSync(join(folder, 'tools.json'), 'utf8')) }));
  server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) => {
    log(params.name);
    const meta = params._meta ?? mcpReq._meta ?? {};
    appendFileSync(join(folder, 'identities.log'), `${JSON.stringify(meta['holdpoint/identity'] ?? null)}\n`);
    const what = does[params.arguments?.do ?? 'say'];
    return what(params.arguments ?? {}, mcpReq);
  });
  server.setRequestHandler('tasks/get', anyParams, ({ taskId }) => {
    log(`poll ${process.pid}`);
    return knownTask(taskId);
  });
  // The SDK takes the responses out of the parameters, whatever the method is.
  server.setRequestHandler('tasks/update', anyParams, ({ taskId }, { mcpReq }) => {
    const { inputRequests, ...task } = knownTask(taskId);
    writeTask({ ...task, status: 'completed', result: answered(mcpReq.inputResponses) });
    return {};
  });
  // A task stops when it is cancelled, unless it has ended.
  server.setRequestHandler('tasks/cancel', anyParams, ({ taskId }) => {
    const task = knownTask(taskId);
    log('cancel');
    if (!task.stubborn) writeTask({ ...task, status: 'cancelled' });
    return {};
  });
  watch(join(folder, 'tools.json'), () => server.sendToolListChanged().catch(() => {}));
  return server;
});

// A watched file and a call that hangs would keep the process alive after the death of its client.
process.stdin.on('end', () => process.exit());
