// Verifies one signed request with the library of Standard Webhooks. Reads {secret, headers, body} as JSON from its
// standard input, and writes {verified} or {refused}.
import { Webhook } from 'standardwebhooks';
import { text } from 'node:stream/consumers';

const { secret, headers, body } = JSON.parse(await text(process.stdin));
try {
  console.log(JSON.stringify({ verified: new Webhook(secret).verify(body, headers) }));
} catch (error) {
  console.log(JSON.stringify({ refused: error.message }));
}
