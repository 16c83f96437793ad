// The conversation of this page: its URL names it, and the first message makes it.
export async function openThread() {
  const url = new URL(location.href);
  const id = url.searchParams.get('chat') ?? crypto.randomUUID();
  if (url.searchParams.has('chat')) return { id, messages: await storedMessages(id) };
  url.searchParams.set('chat', id);
  history.replaceState(null, '', url);
  return { id, messages: [] };
}

async function storedMessages(id) {
  const response = await fetch(`/threads/${encodeURIComponent(id)}/messages?format=ui-v6`);
  // A reload before the first message.
  if (response.status === 404) return [];
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()).results;
}
