import { createClient } from '@holdpoint/page';

// `ui-v7` tells the page the decisions in force, also where its own answer came too late.
export const holdpoint = createClient({ dialect: 'ui-v7' });
