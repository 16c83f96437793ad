import { defineConfig, searchForWorkspaceRoot } from 'vite';

// The page asks its own origin, and Vite forwards the requests, so no CORS is involved.
const target = process.env.HOLDPOINT_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  server: {
    // `vite preview` takes the proxy too.
    proxy: { '/api': target },
    // Where `@holdpoint/page` is, which this page takes from the repository.
    fs: { allow: [searchForWorkspaceRoot(process.cwd()), '../../packages/page'] },
  },
});
