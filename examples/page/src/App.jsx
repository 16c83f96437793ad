import { useEffect, useRef, useState } from 'react';
import { errorText } from '@holdpoint/page';
import { Chat } from './Chat.jsx';
import { holdpoint } from './holdpoint.js';
import { Threads } from './Threads.jsx';
import { useThreads } from './useThreads.js';

const chatInUrl = () => new URLSearchParams(location.search).get('chat');

// What is shown: the thread that the URL names, or a new chat, which becomes a thread with its first message.
export function App() {
  const threads = useThreads();
  // { id, title, messages, older }, or { error }. Absent while it is loaded.
  const [shown, setShown] = useState();
  const latest = useRef(0);

  async function show(id, focus = 'composer') {
    const mine = ++latest.current;
    const next = await loaded(id).catch(error => ({ error }));
    if (mine === latest.current) setShown({ ...next, generation: mine, focus });
  }

  useEffect(() => {
    void show(chatInUrl());
    const showFromUrl = () => void show(chatInUrl(), 'title');
    addEventListener('popstate', showFromUrl);
    return () => removeEventListener('popstate', showFromUrl);
  }, []);

  function navigate(id) {
    history.pushState(null, '', id ? `?chat=${encodeURIComponent(id)}` : location.pathname);
    void show(id, id ? 'title' : 'composer');
  }

  async function start(text) {
    const title = text.split('\n')[0].slice(0, 60);
    const { thread_id } = await holdpoint.createThread({ title });
    history.pushState(null, '', `?chat=${thread_id}`);
    setShown({ id: thread_id, title, messages: [], first: text, generation: ++latest.current, focus: 'composer' });
    void threads.refresh();
  }

  return (
    <div className="app">
      <Threads {...threads} current={shown?.id} onNavigate={navigate} />
      {shown?.error && (
        <main>
          <h1>Chat</h1>
          <p role="alert">{errorText(shown.error)}</p>
        </main>
      )}
      {shown && !shown.error && (
        <Chat key={shown.generation} {...shown} onStart={start} onChange={threads.refresh} />
      )}
      {!shown && <main aria-busy="true" />}
    </div>
  );
}

async function loaded(id) {
  if (!id) return { title: 'New chat', messages: [] };
  const [thread, page] = await Promise.all([holdpoint.thread(id), holdpoint.messages(id)]);
  return { id: thread.thread_id, title: thread.title, messages: page.results, older: page.next_cursor };
}
