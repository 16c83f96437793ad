import type { Answer, BatchItem, Decided, Dialect, EditPreview, Results, RevealedInputs, Thread, Tool } from './api.js';
import { HoldpointError } from './errors.js';
import { subscribe, type Subscription } from './events.js';

type RequestHeaders = Record<string, string>;

export type ClientOptions = {
  /**
   * Where the server is, as the page reaches it. The default `/api` is on the page's own origin: the server answers
   * every route under `/api` too.
   */
  url?: string;
  /** The stream that the page reads: `ui-v5` for AI SDK 5, `ui-v6` for 6 and `ui-v7` for 7. */
  dialect: Dialect;
  /** Headers of every request, such as `authorization`. A function is called for each request. */
  headers?: RequestHeaders | (() => RequestHeaders | Promise<RequestHeaders>);
  /** In place of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
};

export type Client = ReturnType<typeof createClient>;

/** A client of one server. A page needs one, made outside of its components. */
export function createClient({ url = '/api', dialect, headers = {}, fetch }: ClientOptions) {
  const server = url.replace(/\/+$/, '');
  const ownHeaders = async () => (typeof headers === 'function' ? await headers() : headers);
  // The global `fetch` is looked up for each request, because tests and instrumentation replace it.
  const send: typeof globalThis.fetch = (input, init) => (fetch ?? globalThis.fetch)(input, init);
  const thread = (id: string) => `/threads/${encodeURIComponent(id)}`;

  const request = <T = unknown>(method: string, path: string, body?: unknown): Promise<T> =>
    requestText(method, path, body === undefined ? undefined : JSON.stringify(body));

  async function requestText<T>(method: string, path: string, body: string | undefined): Promise<T> {
    const response = await send(server + path, {
      method,
      headers: { ...(await ownHeaders()), ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body }),
    });
    if (!response.ok) throw await HoldpointError.from(response);
    if (response.status === 204) return undefined as T;
    if (!isOf(response, 'application/json')) throw await HoldpointError.from(response);
    return (await response.json()) as T;
  }

  return {
    /** The options of the transport of the AI SDK: `new DefaultChatTransport(client.transport)`. */
    transport: {
      api: `${server}/qa/chat_streamed`,
      headers: async (): Promise<RequestHeaders> => ({ ...(await ownHeaders()), 'x-stream-protocol': dialect }),
      ...(fetch && { fetch }),
    },

    /**
     * A request to any other route, with the headers of this client: `request('GET', '/qa/models')`. A refusal is
     * thrown as a `HoldpointError`.
     */
    request,

    /** Makes a thread. Its `thread_id` is a chat id for `useChat`. */
    createThread: (body: { title?: string } = {}): Promise<Thread> => request('POST', '/threads', body),

    /** The threads of the user, newest first. */
    threads: (query: { cursor?: string; pageSize?: number; clientId?: string } = {}): Promise<Results<Thread>> =>
      request(
        'GET',
        withQuery('/threads', { cursor: query.cursor, page_size: query.pageSize, client_id: query.clientId }),
      ),

    /** One thread, by its id or by the chat id of the page. */
    thread: (id: string): Promise<Thread> => request('GET', thread(id)),

    renameThread: (id: string, title: string): Promise<Thread> => request('PATCH', thread(id), { title }),

    deleteThread: (id: string): Promise<void> => request('DELETE', thread(id)),

    /**
     * The newest messages of a thread, oldest first, as `useChat` takes them. `cursor` leads to older ones. A message
     * that a turn is writing is left out, because reading along (`resume`, `resumeStream`) gives it whole.
     */
    messages: <M = unknown>(
      id: string,
      { cursor, pageSize }: { cursor?: string; pageSize?: number } = {},
    ): Promise<Results<M>> =>
      request(
        'GET',
        withQuery(`${thread(id)}/messages`, {
          format: dialect === 'data-v1' ? 'v4' : dialect,
          cursor,
          page_size: pageSize,
        }),
      ),

    /** Stops whatever runs or waits in a thread: the request of a Stop button. `stop` of `useChat` only disconnects. */
    cancel: (id: string): Promise<void> => request('POST', `${thread(id)}/cancel`),

    /**
     * Approves or rejects a held call, and waits for the outcome for a while. The page continues with
     * `sendMessage()`, unless the answer has `resume`.
     */
    decide: async (toolCallId: string, answer: Answer): Promise<Decided> =>
      requestText('POST', '/qa/validate_tool', decision(toolCallId, answer)),

    /** Decides several held calls. Each succeeds or fails by itself. */
    decideAll: async (answers: ({ toolCallId: string } & Answer)[]): Promise<BatchItem[]> => {
      const decisions = answers.map(({ toolCallId, ...answer }) => decision(toolCallId, answer));
      const body = `{"decisions":[${decisions.join(',')}]}`;
      return (await requestText<Results<BatchItem>>('POST', '/qa/validate_tools', body)).results;
    },

    /**
     * Asks what a held call would do with other inputs. Show the answer, and send its hash with the approval of these
     * inputs: the server refuses the approval if the preview has changed since then.
     */
    preview: (toolCallId: string, { input, inputText }: Pick<Answer, 'input' | 'inputText'>): Promise<EditPreview> => {
      const inputs = inputText === undefined ? JSON.stringify(input) : checked(inputText);
      return requestText('POST', `/tool_calls/${encodeURIComponent(toolCallId)}/preview`, `{"validated_inputs":${inputs}}`);
    },

    /**
     * Reads the secret inputs of a held call, which a card has as `•••`. The server records who did. Pass them to
     * `cardSections`.
     */
    reveal: (toolCallId: string): Promise<RevealedInputs> =>
      request('POST', `/tool_calls/${encodeURIComponent(toolCallId)}/reveal`),

    /** A tool, with the JSON Schema of its inputs. */
    tool: (name: string): Promise<Tool> => request('GET', `/tools/${encodeURIComponent(name)}`),

    /**
     * Reads the events of a thread, in any tab or process: calls that are held, decided and finished, runs that start
     * and end. Returns a function that ends the subscription. It connects again by itself, and misses nothing. The
     * thread has to exist: a chat id that no message was posted under is refused.
     */
    subscribe: (threadId: string, subscription: Subscription): (() => void) =>
      subscribe(
        async (after, signal) => {
          const response = await send(server + withQuery('/events/stream', { thread_id: threadId, after }), {
            headers: { ...(await ownHeaders()), accept: 'text/event-stream' },
            cache: 'no-store',
            signal,
          });
          if (!response.ok || !isOf(response, 'text/event-stream')) throw await HoldpointError.from(response);
          return response;
        },
        subscription,
      ),
  };
}

// A development server answers with its own page where it forwards nothing.
const isOf = (response: Response, type: string): boolean =>
  response.headers.get('content-type')?.startsWith(type) === true;

// The JSON of a decision. A text of inputs stays as it is, because JavaScript would round its large numbers.
function decision(toolCallId: string, { approved, input, inputText, ...rest }: Answer): string {
  if (inputText === undefined) {
    return JSON.stringify({ toolCallId, isValidated: approved, validatedInputs: input, ...rest });
  }
  return `{"validatedInputs":${checked(inputText)},${JSON.stringify({ toolCallId, isValidated: approved, ...rest }).slice(1)}`;
}

function checked(json: string): string {
  JSON.parse(json);
  return json;
}

function withQuery(path: string, query: Record<string, string | number | undefined>): string {
  const given = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, `${value}`]]));
  return given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
}
