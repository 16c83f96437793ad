// What TypeScript has to say about a page on `@holdpoint/page`. This file is compiled against AI SDK 5, 6 and 7.
import { DefaultChatTransport, type UIMessage } from 'ai';
import {
  createClient,
  heldCalls,
  needsReload,
  withStored,
  type Answer,
  type HoldpointDataParts,
  type HoldpointMetadata,
  type ToolDecision,
  type ToolHold,
} from '@holdpoint/page';

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <_ extends true>() => undefined;

type ChatMessage = UIMessage<HoldpointMetadata, HoldpointDataParts>;
type Part = ChatMessage['parts'][number];
holds<Same<Extract<Part, { type: 'data-tool-hold' }>['data'], ToolHold>>();
holds<Same<Extract<Part, { type: 'data-tool-decision' }>['data'], ToolDecision>>();
// @ts-expect-error: the data of a decision is no card
holds<Same<Extract<Part, { type: 'data-tool-decision' }>['data'], ToolHold>>();
// @ts-expect-error: a card has no such field
holds<Same<ToolHold['deadline'], string>>();

// A page may have data parts and tools of its own beside them.
type OwnMessage = UIMessage<
  HoldpointMetadata & { own: number },
  HoldpointDataParts & { weather: { degrees: number } },
  { pay: { input: { note: string }; output: { paid: string } } }
>;

const client = createClient({ dialect: 'ui-v7' });
new DefaultChatTransport<OwnMessage>(client.transport);
new DefaultChatTransport<UIMessage>({ ...client.transport, body: { model: 'small' } });
// @ts-expect-error: there is no such dialect
createClient({ dialect: 'ui-v0' });

declare const messages: OwnMessage[];
const merged: OwnMessage[] = withStored(messages, (await client.messages<OwnMessage>('chat')).results);
const again: boolean = needsReload(merged);
const hold: ToolHold | undefined = heldCalls(merged).get('call')?.hold;
// @ts-expect-error: a reload of other messages than those of the page
const others: OwnMessage[] = withStored(messages, [] as UIMessage[]);

const edited: Answer = { approved: true, input: { note: '7' }, remember: 'session' };
// @ts-expect-error: an answer needs `approved`
const nothing: Answer = { reason: 'no' };
await client.decideAll([{ toolCallId: 'call', ...edited, ...nothing }]);
client.subscribe('chat', { onEvents: ([first]) => void (first?.type === 'tool.approved' && first.tool_call_id) });
// @ts-expect-error: no event has this type
client.subscribe('chat', { onEvents: ([first]) => void (first?.type === 'tool.approve') });
export { again, hold, others };
