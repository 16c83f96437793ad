// Responses of the API that a scenario makes up, for pages alone.

/** An item of the API for a held call. */
export function heldCall(n, more) {
  const id = `00000000-0000-7000-8000-${String(n).padStart(12, '0')}`;
  const item = {
    tool_call_id: id, run_id: id, thread_id: id, session_id: id, tool_name: 'act', state: 'pending', risk_level: 'high', requested_by: 'user:ada',
    input: { text: 'a' }, input_hash: 'a'.repeat(64), schema_hash: 'b'.repeat(64), created_at: new Date().toISOString(),
    expires_at: new Date(Date.now() + 86_400_000).toISOString(), required: 1, approved_by: [], held: true, can_decide: true, can_reject: true,
    policy: { source: 'tool' }, history: [], others: { approve_roles: [], other_person: false, votes: [], delegations: [] }, thread_title: 'A thread', ...more,
  };
  const parts = ['inputs', item.secret_inputs && item.risk_level !== 'low' && 'secrets', item.constants && 'constants', item.preview && 'preview', item.unaccepted_definition && 'definition'];
  return { card_parts: parts.filter(Boolean), ...item };
}

/**
 * Answers the requests of the page with these items, and with the inputs of `revealed` by their ids. Returns the decisions that the
 * page sends.
 */
export async function answerWith(page, items, revealed = {}) {
  const decisions = [];
  const json = body => route => route.fulfill({ json: body });
  // The stream of events stays silent.
  await page.route('**/events/stream', () => {});
  await page.route('**/auth/session', json({ user_id: 'local', tenant_id: 'local' }));
  await page.route('**/tools', json({ results: [{ tool_name: 'act' }] }));
  await page.route('**/tool_requests?*', json({ results: [] }));
  await page.route('**/tool_calls/*/events?*', json({ results: [] }));
  await page.route('**/tool_calls/*/reveal', route => {
    const id = new URL(route.request().url()).pathname.split('/').at(-2);
    return route.fulfill({ json: revealed[id] });
  });
  await page.route('**/approvals?*', json({ results: items }));
  await page.route('**/approvals/*', route => {
    const id = new URL(route.request().url()).pathname.split('/').at(-1);
    return route.fulfill({ json: items.find(item => item.tool_call_id === id) });
  });
  await page.route('**/qa/**', route => {
    const body = route.request().postDataJSON();
    const all = body.decisions ?? [body];
    decisions.push(...all.map(({ toolCallId }) => toolCallId));
    const results = all.map(({ toolCallId }) => ({ toolCallId, state: 'succeeded', result: '{}' }));
    return route.fulfill({ json: body.decisions ? { results } : results[0] });
  });
  return decisions;
}
