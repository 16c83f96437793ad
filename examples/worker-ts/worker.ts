// A worker: claims approved calls of its tools from holdpoint, runs them and settles them.
// `node worker.ts` from Node 22.18 on. For Node 20 first: `tsc worker.ts --target es2022 --module es2022`.
declare const process: { env: Record<string, string | undefined> };

type Call = { tool_call_id: string; tool_name: string; input: any; attempt: number; idempotency_key: string };
type Claim = { call: Call; permit: string; lease_ms: number };
type Outcome = { outcome: "succeeded" | "failed" | "unknown"; result?: unknown; error?: string };

/** The effect did not happen and will not. After any other error the outcome of the call is unknown. */
class Refused extends Error {}

/** The tools. `stop` is aborted if the call is cancelled, or if its lease is lost. */
const tools: Record<string, (call: Call, stop: AbortSignal) => Promise<unknown>> = {
  async refund({ input, idempotency_key }) {
    if (input.cents > 10_000) throw new Refused("more than 100.00 needs the bank");
    return { refunded: input.order, reference: idempotency_key };
  },
};

const { HOLDPOINT_URL: base = "http://127.0.0.1:8080", HOLDPOINT_TOKEN: token } = process.env;
const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
const sleep = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** Posts until the server answers. A repeated renewal or outcome changes nothing. A call whose claim got lost ends with its lease. */
async function post(path: string, body: object): Promise<{ ok: boolean; body: any }> {
  for (;;) {
    try {
      const answer = await fetch(base + path, { method: "POST", headers, body: JSON.stringify(body) });
      if (answer.status < 500 && answer.status !== 429) return { ok: answer.ok, body: await answer.json() };
    } catch {} // The server is away.
    await sleep(1000);
  }
}

async function execute({ call, permit, lease_ms }: Claim) {
  const [path, stop] = [`/tool_calls/${call.tool_call_id}`, new AbortController()];
  const renew = setInterval(async () => {
    const renewed = await post(`${path}/renew`, { permit });
    if (!renewed.ok || renewed.body.cancel_requested) stop.abort();
  }, lease_ms / 3);
  const outcome: Outcome = await tools[call.tool_name](call, stop.signal).then(
    (result) => ({ outcome: "succeeded", result }),
    (error) => (error instanceof Refused ? { outcome: "failed", error: error.message } : { outcome: "unknown" }),
  );
  clearInterval(renew);
  await post(`${path}/settle`, { permit, ...outcome });
}

for (;;) {
  const { ok, body } = await post("/tool_calls/claim", { tools: Object.keys(tools), wait: 20 });
  if (!ok) throw new Error(body.error.message);
  if (body.claim) await execute(body.claim);
}
export {};
