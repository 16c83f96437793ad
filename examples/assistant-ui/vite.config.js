import { defineConfig } from 'vite';

// The page asks its own origin, and Vite forwards the requests, so no CORS is involved.
const server = process.env.HOLDPOINT_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  // `vite preview` takes these too.
  server: { proxy: { '/qa': server, '/threads': server } },
});
