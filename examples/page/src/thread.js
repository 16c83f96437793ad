// The conversation of this page: the one that its URL names, or a new one, which the URL names from then on.
export async function openThread() {
  const named = new URLSearchParams(location.search).get('chat');
  if (named) {
    const path = `/threads/${encodeURIComponent(named)}/messages?format=ui-v6`;
    return { id: named, messages: (await ask(path)).results };
  }
  const { thread_id } = await ask('/threads', { method: 'POST' });
  history.replaceState(null, '', `?chat=${thread_id}`);
  return { id: thread_id, messages: [] };
}

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
