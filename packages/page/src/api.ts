// What the routes of the server take and give, as far as a page uses them.

import type { McpTool, ToolPreview, UnacceptedDefinition } from './parts.js';

/** The stream of one generation of the AI SDK: 4, 5, 6, 7. A page on AI SDK 7 may use `ui-v6` too. */
export type Dialect = 'data-v1' | 'ui-v5' | 'ui-v6' | 'ui-v7';

/** One part of a list. `next_cursor` leads to the next one. */
export type Results<T> = { results: T[]; has_more: boolean; next_cursor?: string };

/** A conversation of one user. */
export type Thread = {
  thread_id: string;
  session_id: string;
  parent_id?: string;
  client_id?: string;
  title: string;
  created_at: string;
  updated_at: string;
  active_run_id?: string;
  /** How full the model's context is, in tokens; only in the answer about one thread. */
  context_tokens?: number;
  /** The most tokens of a request to the model, if known. */
  context_limit?: number;
  pending_count: number;
};

/** A tool. `input_schema` is the JSON Schema of its inputs. */
export type Tool = {
  tool_name: string;
  description: string;
  hil: boolean;
  idempotent: boolean;
  risk_level: 'low' | 'medium' | 'high';
  /** Whether the tool says what a call would do before it is decided: `preview` of the card. */
  preview: boolean;
  input_schema: Record<string, unknown>;
  /** Where the tool is, if an MCP server has it. */
  mcp?: McpTool;
  /** What the server says about the tool, if no operator has accepted that. */
  unaccepted_definition?: UnacceptedDefinition;
  /** Whether the caller may accept it. */
  can_accept: boolean;
};

/** The inputs of a call without masks. */
export type RevealedInputs = {
  tool_call_id: string;
  input: Record<string, unknown>;
  validated_inputs?: Record<string, unknown>;
  /** The JSON Pointers of the secrets in both. */
  secret_inputs: string[];
  input_hash: string;
};

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

export type ToolCallState =
  | 'pending'
  | 'approved'
  | 'executing'
  | 'succeeded'
  | 'failed'
  | 'interrupted'
  | 'rejected'
  | 'expired'
  | 'cancelled'
  | 'invalid';

/** The result of a decision. */
export type Decided = {
  toolCallId: string;
  /** `executing`: approved, and not ended yet. `pending`: approved, and more people have to approve. */
  state: ToolCallState;
  /** Whether the call was rejected by this decision, or ran and succeeded. */
  success: boolean;
  /** The text that the model reads. */
  result: string;
  /** Whether the run continues with the next request of its page. If not, the server resumes it. */
  waitsForPage: boolean;
  /** The inputs that ran, if they were edited. */
  validatedInputs?: Record<string, unknown>;
  /** The grant that the approval left, if it was remembered. */
  remembered?: Remembered;
};

/** The grant that an approval left, and the waiting calls of `waiting`. */
export type Remembered = {
  /** Its id, to revoke it. */
  grant: string;
  /** The calls that were approved with the decision. */
  approved: string[];
  /** The calls that were not: they have changed, are not covered, or do not wait any more. */
  left: string[];
};

/** The result of one decision of several: `Decided` with a `status` below 300, `error` otherwise. */
export type BatchItem = { toolCallId: string; status: number } & (
  | (Decided & { idempotentReplayed?: true; error?: never })
  | { error: { code: string; message: string; details?: unknown }; retryAfter?: number }
);

export type EventType =
  | 'tool.called'
  | 'tool.requires_approval'
  | 'tool.blocked'
  | 'tool.approved'
  | 'tool.rejected'
  | 'tool.decision_refused'
  | 'tool.extended'
  | 'tool.delegated'
  | 'tool.inputs_revealed'
  | 'tool.reminded'
  | 'tool.voted'
  | 'tool.escalated'
  | 'tool.expired'
  | 'tool.cancelled'
  | 'tool.started'
  | 'tool.accepted'
  | 'tool.progressed'
  | 'tool.input_requested'
  | 'tool.input_proposed'
  | 'tool.input_ended'
  | 'tool.succeeded'
  | 'tool.failed'
  | 'tool.interrupted'
  | 'run.started'
  | 'run.waiting'
  | 'run.resumed'
  | 'run.completed'
  | 'run.failed'
  | 'run.cancelled';

/** One change of a call or a run. */
export type HoldpointEvent = {
  seq: number;
  type: EventType;
  at: string;
  actor: string;
  session_id: string;
  thread_id: string;
  run_id?: string;
  tool_call_id?: string;
  data: Record<string, unknown>;
};
