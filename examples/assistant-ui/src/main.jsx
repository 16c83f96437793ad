import { createRoot } from 'react-dom/client';
import { Chat } from './Chat.jsx';
import { openThread } from './thread.js';

const root = createRoot(document.getElementById('root'));
try {
  root.render(<Chat {...await openThread()} />);
} catch (error) {
  root.render(<p role="alert">{error.message}</p>);
}
