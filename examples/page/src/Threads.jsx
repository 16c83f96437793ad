import { useState } from 'react';
import { visible } from '@holdpoint/page';

// The list of threads. On a narrow page a button opens it.
export function Threads({ threads, more, showMore, current, onNavigate }) {
  const [open, setOpen] = useState(false);

  function follow(event, id) {
    // A new tab, a new window, a download: the browser's own.
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    setOpen(false);
    onNavigate(id);
  }

  return (
    <nav aria-label="Chats" className={open ? 'threads open' : 'threads'}>
      <div className="bar">
        <button type="button" className="toggle" aria-expanded={open} aria-controls="threads" onClick={() => setOpen(!open)}>
          Chats
        </button>
        <a className="new" href={location.pathname} onClick={event => follow(event)}>
          New chat
        </a>
      </div>
      <div id="threads">
        <ul>
          {threads.map(({ thread_id, title, pending_count }) => (
            <li key={thread_id}>
              <a
                href={`?chat=${thread_id}`}
                aria-current={thread_id === current ? 'page' : undefined}
                onClick={event => follow(event, thread_id)}
              >
                <span className="title">{visible(title)}</span>
                <Badge count={pending_count} />
              </a>
            </li>
          ))}
        </ul>
        {more && <button type="button" onClick={showMore}>Older chats</button>}
      </div>
    </nav>
  );
}

// How many calls wait.
export function Badge({ count }) {
  return count > 0 && <span className="badge">{count} waiting</span>;
}
