import { defineConfig } from 'vite';

// The page asks its own origin, so that the browser has no cross-origin request to ask leave for.
const server = process.env.HOLDPOINT_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  // `vite preview` takes these too.
  server: { proxy: { '/qa': server, '/threads': server } },
});
