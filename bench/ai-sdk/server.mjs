// The server on AI SDK 7: streamText and a UI message stream from node:http, and the persistence of the SDK's guide
// ("send only the last message"): load the chat, append the message, validate, stream, and save the whole chat
// when the stream ends. One tool needs an approval.
import http from 'node:http';
import * as ai from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import pg from 'pg';
import { z } from 'zod';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 20 });
const provider = createOpenAICompatible({
  name: 'bench',
  baseURL: process.env.MODEL_URL,
  apiKey: 'bench',
  includeUsage: true,
});
const model = provider.chatModel('bench-model');
const generateMessageId = ai.createIdGenerator({ prefix: 'msg', size: 16 });

const tools = {
  delete_file: ai.tool({
    description: 'Delete a file from the server',
    inputSchema: z.object({ path: z.string(), reason: z.string() }),
    execute: async ({ path }, { toolCallId }) => {
      await pool.query('INSERT INTO effects (tool_call_id) VALUES ($1)', [toolCallId]);
      return { deleted: path };
    },
  }),
};

async function load(id) {
  const chats = await pool.query({ name: 'load', text: 'SELECT messages FROM chats WHERE id = $1', values: [id] });
  return chats.rows[0]?.messages ?? [];
}

function save(id, messages) {
  const text = `INSERT INTO chats (id, messages) VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET messages = excluded.messages, updated_at = now()`;
  return pool.query({ name: 'save', text, values: [id, JSON.stringify(messages)] });
}

async function chat(request, response) {
  let body = '';
  request.setEncoding('utf8');
  for await (const piece of request) body += piece;
  const { id, message } = JSON.parse(body);
  const stored = await load(id);
  // An approval is the stored message of the assistant with an answer in its tool part.
  const at = stored.findIndex(earlier => earlier.id === message.id);
  const messages = await ai.validateUIMessages({
    messages: [...(at < 0 ? stored : stored.slice(0, at)), message],
    tools,
  });
  const result = ai.streamText({
    model,
    messages: await ai.convertToModelMessages(messages),
    tools,
    toolApproval: { delete_file: 'user-approval' },
    stopWhen: ai.isStepCount(5),
  });
  await ai.pipeUIMessageStreamToResponse({
    response,
    // The stream ends after the save: an approval that follows at once has to find the message.
    stream: ai.toUIMessageStream({
      stream: result.stream,
      originalMessages: messages,
      generateMessageId,
      onEnd: ({ messages }) => save(id, messages),
    }),
  });
}

async function ready(response) {
  await pool.query('SELECT 1');
  response.end('ready');
}

const server = http.createServer((request, response) => {
  const answered = request.url === '/readyz' ? ready(response) : chat(request, response);
  answered.catch(error => {
    console.error(error);
    if (!response.headersSent) response.writeHead(500);
    response.end(String(error));
  });
});
server.keepAliveTimeout = 30_000;
server.listen({ port: Number(process.env.PORT), host: '127.0.0.1', backlog: 4096 });
