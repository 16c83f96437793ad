// A proxy in front of a server, as servers of pages have it, and a page behind any proxy.
//
//   node driver/proxies.mjs SERVER
//
// prints {"express": URL}, and then reads requests, one a line: {"url", "method", "body"?,
// "headers"?, "until"?}. The texts of the answer are printed as they arrive, decoded as in a browser, up to its end or to
// these words: {"text"} …, {"end": {"status", "encoding", "cached"}}.
import express from 'express';
import compression from 'compression';
import httpProxy from 'http-proxy';
import http from 'node:http';
import readline from 'node:readline';

const [target] = process.argv.slice(2);
const say = line => process.stdout.write(JSON.stringify(line) + '\n');
const listening = server => new Promise(done => server.listen(0, '127.0.0.1', () => done(`http://127.0.0.1:${server.address().port}`)));

// An Express server that compresses its answers.
const forExpress = httpProxy.createProxyServer({ target });
const app = express();
app.use(compression());
app.use((request, response) => forExpress.web(request, response));

say({ express: await listening(http.createServer(app)) });

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { url, method, body, until, ...own } = JSON.parse(line);
  const headers = { 'accept-encoding': 'gzip, deflate, br', 'content-type': 'application/json', ...own.headers };
  const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  let text = '';
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    say({ text: piece });
    text += piece;
    if (until && text.includes(until)) break;
  }
  say({ end: { status: answer.status, encoding: answer.headers.get('content-encoding'), cached: answer.headers.get('cache-control') } });
}
process.exit(0);
