// What the routes of the server take and give, as far as a page uses them. The types of `Schemas` are those of the
// OpenAPI document; the others are narrower than it can say.

import type { components } from './openapi.js';
import type { ToolPreview } from './parts.js';

type Schemas = components['schemas'];

/** The stream that a page reads, by the version of its AI SDK. A page on AI SDK 7 may use `ui-v6` too. */
export type Dialect = Schemas['Protocol'];

/** One part of a list. `next_cursor` leads to the next one. */
export type Results<T> = { results: T[]; has_more: boolean; next_cursor?: string };

/** A conversation of one user. */
export type Thread = Schemas['ChatThread'];

/** A tool. `input_schema` is the JSON Schema of its inputs. */
export type Tool = Schemas['Tool'];

/** The inputs of a call without masks. */
export type RevealedInputs = Schemas['RevealedInputs'];

/** The decision of a person about a held call. */
export type Answer = {
  approved: boolean;
  /** For the model and the record, at most 2,000 characters. */
  reason?: string;
  /** `inputHash` of the card that the person saw. */
  inputHash?: string;
  /** Whether the server continues the run. If not, the next request of a page does. */
  resume?: boolean;
  /** Inputs to run in place of the proposed ones. Ignored in a rejection. `•••` leaves a secret as it was proposed. */
  input?: object;
  /** The same as JSON, in place of `input`: its numbers keep all their digits. */
  inputText?: string;
  /** `preview_hash` of the preview of these inputs. Required with inputs if the tool has previews. */
  previewHash?: string;
  /** What the approval covers beyond the call. Refused in a rejection. */
  remember?: Remember;
};

/** One condition on an argument of a remembered approval: a JSON pointer and exactly one test. */
export type RememberCondition = { argument: string } & (
  | { above: number }
  | { below: number }
  | { equal: unknown }
  | { in: unknown[] }
  /** A path below this folder. */
  | { under: string }
  /** An address of this origin, such as `https://api.example.com`. */
  | { origin: string }
);

/**
 * Which later calls of the tool in the session run without a question. `session`: all of them, and all that wait now. An object
 * says it in facts.
 */
export type Remember =
  | 'session'
  | (({ inputs: 'equal' | 'any' } | { when: RememberCondition[]; free?: string[] }) & {
      /** The time from which no call is covered, as RFC 3339 writes it. */
      until?: string;
      /** How many later calls. */
      uses?: number;
      /** Waiting calls to approve with this one: for each its id, and its `inputHash` as shown. */
      waiting?: Record<string, string>;
    });

/** What a call would do with other inputs. */
export type EditPreview = {
  /** Absent if the tool has no previews. */
  preview?: ToolPreview;
  /** For `previewHash` of an approval with these inputs. */
  preview_hash: string;
};

export type ToolCallState = Schemas['ToolCallState'];

/** The result of a decision. `executing`: approved, and not ended yet. `pending`: more people have to approve. */
export type Decided = Schemas['ValidateToolResult'];

/** The grant that an approval left, and the waiting calls of `waiting`. */
export type Remembered = Schemas['RememberedApproval'];

/** The result of one decision of several: `Decided` with a `status` below 300, `error` otherwise. */
export type BatchItem = { toolCallId: string; status: number } & (
  | (Decided & { idempotentReplayed?: true; error?: never })
  | { error: { code: string; message: string; details?: unknown }; retryAfter?: number }
);

export type EventType = Schemas['EventType'];

/** One change of a call or a run. */
export type HoldpointEvent = Schemas['Event'];
