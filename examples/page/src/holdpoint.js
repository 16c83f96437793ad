import { createClient } from '@holdpoint/page';

export const holdpoint = createClient({
  dialect: 'ui-v7',
  // In mode `jwt`: headers: async () => ({ authorization: `Bearer ${await token()}` }),
});
