// Signs a message with the library of Standard Webhooks. Reads {secret, id, at, body} as JSON from its standard input,
// with the time in seconds, and writes the signature.
import { Webhook } from 'standardwebhooks';
import { text } from 'node:stream/consumers';

const { secret, id, at, body } = JSON.parse(await text(process.stdin));
console.log(JSON.stringify(new Webhook(secret).sign(id, new Date(at * 1000), body)));
