// The data parts of held calls. These are types, not interfaces, because the AI SDK requires an index signature.

import type { components } from './openapi.js';

type Schemas = components['schemas'];

/** What a call would do, or why the tool could not say it. In the second case the call can be decided all the same. */
export type ToolPreview = { text: string; failed?: never } | { failed: string; text?: never };

/** A tool of an MCP server. */
export type McpTool = Schemas['McpTool'];

/** What an MCP server says about its tool, and how that differs from what an operator accepted. */
export type UnacceptedDefinition = Schemas['UnacceptedDefinition'];

/** A part of a card. The hash of an approval covers all parts of a complete card. */
export type CardPart = 'inputs' | 'secrets' | 'constants' | 'preview' | 'definition';

/** A piece of a headline: words of the operator, or a value of the model. Show the values apart from the words. */
export type HeadlinePart = { text: string; value?: never } | { value: string; text?: never };

/** Why the server would refuse an approval of this user now. */
export type CannotApprove = {
  /** With `invalid_inputs` other inputs may be approved. */
  code: 'forbidden' | 'blocked' | 'unreadable' | 'tool_unavailable' | 'invalid_inputs' | 'already_approved';
  /** A sentence for people. */
  message: string;
};

/** The data of a part `data-tool-hold`: what a person needs to decide on a held call. */
export type ToolHold = {
  toolCallId: string;
  toolName: string;
  /** The name of the tool in words. */
  title: string;
  /** What the tool does. Absent if the tool no longer exists. */
  description?: string;
  /** A question with inputs in it, such as `Delete notes.txt?`. Show it beside the inputs, not in their place. */
  headline?: string;
  /** The pieces of `headline`. */
  headlineParts?: HeadlinePart[];
  /** The parts that a card has to show whole before it offers an approval: see `mayApprove`. */
  cardParts: CardPart[];
  /** The inputs as the model proposed them, also after an edit, with `•••` in place of each secret. */
  input: unknown;
  /** The JSON Pointers of the secrets. `reveal` of the client returns their values. Absent without secrets. */
  secretInputs?: string[];
  /** Where the tool is, if an MCP server has it: the server, and the name of the tool there. */
  mcp?: McpTool;
  /** Inputs that the operator sets, and that the tool adds. Show them too. */
  constants?: Record<string, unknown>;
  /** What the tool says that the call would do. Plain text. Absent if the tool says nothing before it runs. */
  preview?: ToolPreview;
  risk: 'low' | 'medium' | 'high';
  /** Why the call is held. */
  reason?: string;
  /** When the time to decide ends (RFC 3339). */
  expiresAt: string;
  /** For `inputHash` of a decision: the server refuses the decision if the tool has changed meanwhile. It covers `preview`. */
  inputHash: string;
  /** The user of the thread, such as `user:ada`. */
  requestedBy: string;
  /** Whether this user may approve the call with other inputs. If not, offer a rejection only. */
  canEdit: boolean;
  /** Why an approval of this user would be refused now. Then offer none, and show the message. */
  cannotApprove?: CannotApprove;
  /** Whether an approval of this user may be remembered for the session. */
  canRemember: boolean;
  /** How many people have to approve. */
  approvalsNeeded: number;
  /** What an MCP server says about the tool, if no operator has accepted that. Show how it differs. */
  unacceptedDefinition?: UnacceptedDefinition;
};

/** The data of a part `data-tool-decision`: the decision in force about a held call. */
export type ToolDecision = {
  toolCallId: string;
  decision: 'approve' | 'reject' | 'expire' | 'cancel';
  /** Such as `user:bob`, `handler:desk` or `system:expiry`. */
  by: string;
  /** RFC 3339. */
  at: string;
  /** Whether other inputs than the proposed ones were approved. */
  edited: boolean;
  /** The approved inputs, if they were edited. */
  input?: unknown;
  reason?: string;
  /** This page answered too, after the decision. */
  late?: true;
};

/** The data of a part `data-tool-validation`: the state of a held call, on `ui-v5` alone. */
export type ToolValidation = {
  toolCallId: string;
  validated: 'pending' | 'approved' | 'rejected' | 'expired' | 'cancelled' | 'interrupted';
};

/** The data parts of a message: `UIMessage<HoldpointMetadata, HoldpointDataParts>`. */
export type HoldpointDataParts = {
  'tool-hold': ToolHold;
  'tool-decision': ToolDecision;
  'tool-validation': ToolValidation;
};

/** The metadata of a message: `UIMessage<HoldpointMetadata, HoldpointDataParts>`. */
export type HoldpointMetadata = {
  usage?: { inputTokens: number; outputTokens: number };
};
