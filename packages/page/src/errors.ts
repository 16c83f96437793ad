import type { ToolDecision } from './parts.js';

/** A refusal of the server, or a response of another server. */
export class HoldpointError extends Error {
  override readonly name = 'HoldpointError';
  /** The status of the response. */
  readonly status: number;
  /** The word for programs, such as `already_decided`. Absent if another server answered. */
  readonly code: string | undefined;
  /** Further facts about some refusals. */
  readonly details: unknown;
  /** The decision in force, if an answer came too late (`already_decided`, `expired`, `cancelled`). */
  readonly decision: Omit<ToolDecision, 'toolCallId'> | undefined;
  /** The seconds after which a repetition makes sense, of 429 and 503. */
  readonly retryAfter: number | undefined;
  /** Finds the request in the log of the server. */
  readonly requestId: string | undefined;

  private constructor(response: Response, text: string) {
    const refusal = refusalIn(text);
    const type = response.headers.get('content-type')?.split(';')[0] ?? 'nothing';
    super(refusal?.message ?? `Not an answer of the server: status ${response.status}, ${type}.`);
    const header = (name: string) => response.headers.get(name) ?? undefined;
    const seconds = Number(header('retry-after') ?? NaN);
    this.status = response.status;
    this.code = refusal?.code;
    this.details = refusal?.details;
    this.decision = refusal?.details?.decision;
    this.retryAfter = Number.isFinite(seconds) ? seconds : undefined;
    this.requestId = header('x-request-id');
  }

  /** Reads an unexpected response. */
  static async from(response: Response): Promise<HoldpointError> {
    return new HoldpointError(response, await response.text());
  }
}

/**
 * What an error says: the `error` of `useChat`, one that a method of the client threw, or any other.
 *
 * `code` is the word of the server for it, and `requestId` finds the request in its log.
 */
export function errorOf(error: unknown): { message: string; code?: string; requestId?: string } {
  if (error instanceof HoldpointError) {
    const { message, code, requestId } = error;
    return { message, ...(code !== undefined && { code }), ...(requestId !== undefined && { requestId }) };
  }
  const text = error instanceof Error ? error.message : String(error);
  // A refused request: the SDK has the body of the response as the text of its error.
  const refusal = refusalIn(text);
  if (refusal) return { code: refusal.code, message: refusal.message };
  // A failure in the stream.
  const [, code, message, requestId] = /^([a-z_]+): (.+) \(request ([\w-]+)\)$/s.exec(text) ?? [];
  if (code !== undefined && message !== undefined && requestId !== undefined) return { code, message, requestId };
  return { message: text };
}

/** What an error says, as a sentence for people. */
export const errorText = (error: unknown): string => errorOf(error).message;

type Refusal = { code: string; message: string; details?: { decision?: Omit<ToolDecision, 'toolCallId'> } };

function refusalIn(text: string): Refusal | undefined {
  try {
    const { error } = JSON.parse(text);
    return typeof error.code === 'string' && typeof error.message === 'string' ? error : undefined;
  } catch {
    return undefined;
  }
}
