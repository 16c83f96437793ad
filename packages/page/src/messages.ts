// Pure functions over the messages of `useChat`, AI SDK 5 to 7. The types are what the three have in common, so that
// one build serves them all.
import type { ToolDecision, ToolHold } from './parts.js';

/** A message of AI SDK 5, 6 or 7, as far as the functions read it. */
export type AnyMessage = {
  readonly id: string;
  readonly role: string;
  readonly parts: readonly { readonly type: string }[];
};

/** A part, with the fields that the functions look for. */
type AnyPart = {
  readonly type: string;
  readonly id?: string;
  readonly data?: unknown;
  readonly toolCallId?: string;
  readonly state?: string;
  readonly approval?: { readonly approved?: boolean };
};

/** A held call, as the messages of a page show it. */
export type HeldCall = {
  hold: ToolHold;
  /** The decision in force, once the page knows of it. */
  decision?: ToolDecision;
  /** Whether this page has answered (`addToolApprovalResponse`) and does not know of a decision yet. */
  answered: boolean;
};

/** The held calls of a conversation by the id of the call, in its order. Look them up in all messages at once. */
export function heldCalls(messages: readonly AnyMessage[]): Map<string, HeldCall> {
  const calls = new Map<string, HeldCall>();
  const decisions = new Map<string, ToolDecision>();
  const answered = new Set<string>();
  for (const part of partsOf(messages)) {
    // The last part about a call counts: a decision is in the message that was the newest when the page learned of it.
    if (part.type === HOLD) calls.set(part.id ?? '', { hold: part.data as ToolHold, answered: false });
    if (part.type === DECISION) decisions.set(part.id ?? '', part.data as ToolDecision);
    if (part.state === 'approval-responded' && part.toolCallId) answered.add(part.toolCallId);
  }
  for (const [id, call] of calls) {
    const decision = decisions.get(id);
    if (decision) call.decision = decision;
    else call.answered = answered.has(id);
  }
  return calls;
}

/** What a person needs to decide on a held call. Absent if the call was not held. */
export const holdOf = (messages: readonly AnyMessage[], toolCallId: string): ToolHold | undefined =>
  heldCalls(messages).get(toolCallId)?.hold;

/** The decision in force about a held call. */
export const decisionOf = (messages: readonly AnyMessage[], toolCallId: string): ToolDecision | undefined =>
  heldCalls(messages).get(toolCallId)?.decision;

/** The calls that wait for an answer of this page. */
export const pendingCalls = (messages: readonly AnyMessage[]): ToolHold[] =>
  [...heldCalls(messages).values()].flatMap(({ hold, decision, answered }) => (decision || answered ? [] : [hold]));

/** The decisions in force that this page answered too late. */
export const lateAnswers = (messages: readonly AnyMessage[]): ToolDecision[] =>
  [...heldCalls(messages).values()].flatMap(({ decision }) => (decision?.late ? [decision] : []));

/**
 * Whether a tool part contradicts the decision in force, so that the page has to load its messages. The stream cannot
 * change a part of an earlier message, and on `ui-v6` not the `approval` of any part.
 */
export function needsReload(messages: readonly AnyMessage[]): boolean {
  const calls = heldCalls(messages);
  for (const part of partsOf(messages)) {
    const decision = calls.get(part.toolCallId ?? part.id ?? '')?.decision;
    if (!decision) continue;
    if (part.approval && part.approval.approved !== (decision.decision === 'approve')) return true;
    if (part.type === VALIDATION && (part.data as { validated?: string }).validated === 'pending') return true;
  }
  return false;
}

/**
 * The messages of a page after it loaded them again: the stored ones, with what the page alone knows: older messages
 * than the loaded ones, answers about the present cards that it has not posted yet, that an answer came too late, and a new message that is not
 * stored, because the server refused it for example.
 */
export function withStored<M extends AnyMessage>(messages: readonly M[], stored: readonly M[]): M[] {
  const shown = heldCalls(messages);
  const known = heldCalls(stored);
  const answers = new Map(
    partsOf(messages).flatMap(part =>
      part.state === 'approval-responded' && part.toolCallId ? [[part.toolCallId, part] as const] : [],
    ),
  );
  const merged = stored.map(message => {
    const parts = message.parts.map((part: AnyPart) => {
      const id = part.toolCallId ?? part.id ?? '';
      const late = part.type === DECISION && shown.get(id)?.decision?.late;
      if (late) return { ...part, data: { ...(part.data as ToolDecision), late } };
      const answer = part.state === 'approval-requested' && !known.get(id)?.decision && answers.get(id);
      // An approval is about the card that the page showed. A rejection does no harm.
      const isNew = shown.get(id)?.hold.inputHash !== known.get(id)?.hold.inputHash;
      return answer && !(answer.approval?.approved && isNew) ? { ...part, state: answer.state, approval: answer.approval } : part;
    });
    return { ...message, parts } as M;
  });
  const first = messages.findIndex(message => message.id === stored[0]?.id);
  return [...messages.slice(0, Math.max(first, 0)), ...merged, ...unstored(messages, stored)];
}

/** The messages of the user at the end of a page that are not stored. */
function unstored<M extends AnyMessage>(messages: readonly M[], stored: readonly M[]): M[] {
  const ids = new Set(stored.map(message => message.id));
  const count = [...messages].reverse().findIndex(message => message.role !== 'user' || ids.has(message.id));
  return count < 0 ? [...messages] : messages.slice(messages.length - count);
}

const HOLD = 'data-tool-hold';
const DECISION = 'data-tool-decision';
const VALIDATION = 'data-tool-validation';

const partsOf = (messages: readonly AnyMessage[]): AnyPart[] => messages.flatMap(message => message.parts);
