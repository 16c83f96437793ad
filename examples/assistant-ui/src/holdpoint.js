import { createClient } from '@holdpoint/page';

// `ui-v7` reports the decisions in force, also where the answer of the page came too late.
export const holdpoint = createClient({ dialect: 'ui-v7' });
