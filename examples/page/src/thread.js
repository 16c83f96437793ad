// The conversation of this page: the one that its URL names, or a new one, which the URL names from then on.
export async function openThread() {
  const named = new URLSearchParams(location.search).get('chat');
  if (named) return { id: named, messages: await messagesOf(named) };
  const { thread_id } = await ask('/threads', { method: 'POST' });
  history.replaceState(null, '', `?chat=${thread_id}`);
  return { id: thread_id, messages: [] };
}

// The messages as they are stored now, but for one that is being written.
export async function messagesOf(id) {
  return (await ask(`/threads/${encodeURIComponent(id)}/messages?format=ui-v6`)).results;
}

// Stops whatever runs or waits in the conversation.
export const stop = id => ask(`/threads/${encodeURIComponent(id)}/cancel`, { method: 'POST' });

async function ask(path, init) {
  const response = await fetch(path, init);
  const text = await response.text();
  if (!response.ok) throw new Error(text || `${path}: ${response.status} ${response.statusText}`);
  return JSON.parse(text);
}

// A refusal of the server is {"error":{"code","message"}}, which the SDK hands on as the text of an error.
export function sentence(error) {
  try {
    return JSON.parse(error.message).error.message;
  } catch {
    return error.message;
  }
}
