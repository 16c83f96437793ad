export { createClient } from './client.js';
export type { Client, ClientOptions } from './client.js';
export type {
  Answer,
  BatchItem,
  Decided,
  Dialect,
  EditPreview,
  EventType,
  HoldpointEvent,
  Remember,
  RememberCondition,
  Remembered,
  Results,
  RevealedInputs,
  Thread,
  Tool,
  ToolCallState,
} from './api.js';
export type { Subscription } from './events.js';
export { cardSections, completeCard, mayApprove, missingParts, rowsOf } from './complete.js';
export type { CardRow, CardSection } from './complete.js';
export { HoldpointError, errorOf, errorText } from './errors.js';
export { decisionOf, heldCalls, holdOf, lateAnswers, needsReload, pendingCalls, withStored } from './messages.js';
export type { AnyMessage, HeldCall } from './messages.js';
export type {
  CannotApprove,
  CardPart,
  HeadlinePart,
  HoldpointDataParts,
  HoldpointMetadata,
  McpTool,
  ToolDecision,
  ToolHold,
  ToolPreview,
  ToolValidation,
  UnacceptedDefinition,
} from './parts.js';
export { excerpt, mixedScripts, pieces, visible } from './text.js';
export type { Excerpt, Piece } from './text.js';
