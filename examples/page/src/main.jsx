import { createRoot } from 'react-dom/client';
import { Chat } from './Chat.jsx';
import { openThread, sentence } from './thread.js';

const root = createRoot(document.getElementById('root'));
try {
  root.render(<Chat {...await openThread()} />);
} catch (error) {
  root.render(
    <main>
      <p role="alert">{sentence(error)}</p>
      <a href="/">A new chat</a>
    </main>,
  );
}
