import { holdpoint } from './holdpoint.js';

// The conversation of this page, with its messages: its URL names the thread.
export async function openThread() {
  const url = new URL(location.href);
  const id = url.searchParams.get('chat');
  if (id) return { id, messages: (await holdpoint.messages(id)).results };
  const { thread_id } = await holdpoint.createThread();
  url.searchParams.set('chat', thread_id);
  history.replaceState(null, '', url);
  return { id: thread_id, messages: [] };
}
