// A receiver of webhooks with the library of Standard Webhooks. Its argument is the secret. It writes the port, then a
// line for each request: {id, verified} or {id, refused}.
import { Webhook } from 'standardwebhooks';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const webhook = new Webhook(process.argv[2]);
const server = createServer(async (request, response) => {
  const body = await text(request);
  const id = request.headers['webhook-id'];
  try {
    console.log(JSON.stringify({ id, verified: webhook.verify(body, request.headers) }));
    response.writeHead(204).end();
  } catch (error) {
    console.log(JSON.stringify({ id, refused: error.message }));
    response.writeHead(401).end();
  }
});
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: server.address().port })));
