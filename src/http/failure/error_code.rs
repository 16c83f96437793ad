//! The codes of errors.

use poem_openapi::Enum;

/// Why a request failed, for programs.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case")]
pub(in crate::http) enum ErrorCode {
    /// 400: the request is malformed. The message names the field and the expected value.
    BadRequest,
    /// 401: no valid token.
    Unauthenticated,
    /// 403: visible to the caller, but not allowed.
    Forbidden,
    /// 404: unknown, or not visible to the caller.
    NotFound,
    /// 405: the resource has no such method.
    MethodNotAllowed,
    /// 409: a decision about the call is in force already.
    AlreadyDecided,
    /// 409: the call has another outcome.
    AlreadySettled,
    /// 409: calls of the thread wait for a decision.
    AwaitingApproval,
    /// 409: the call was cancelled.
    Cancelled,
    /// 409: the execution that the worker had claimed is over.
    ExecutionOver,
    /// 409: the call expired without a decision.
    Expired,
    /// 409: the id of the message, or the key of the request, names a stored message with another text.
    NameUsed,
    /// 409: the outcome of the call is not unknown.
    NotInterrupted,
    /// 409: the thread has nothing that a turn could continue.
    NothingToContinue,
    /// 409: the request of the tool has another answer, or has ended.
    RequestClosed,
    /// 409: the run does not wait for a decision.
    RunNotWaiting,
    /// 409: the call has changed since it was shown, or has started again.
    Stale,
    /// 409: the thread takes no further message.
    ThreadFull,
    /// 409: the tool of the call is not available now.
    ToolUnavailable,
    /// 409: a turn of the thread is running.
    TurnInProgress,
    /// 409: the stored inputs of the call cannot be read.
    Unreadable,
    /// 413: the body, or a message in it, is too long.
    BodyTooLarge,
    /// 415: the body is not plain JSON.
    UnsupportedMediaType,
    /// 422: the inputs do not match the schema of the tool.
    InvalidInputs,
    /// 422: the call cannot be delegated like this.
    NotDelegated,
    /// 422: the call waits as long already, or would wait too long.
    NotExtended,
    /// 422: the approval cannot be remembered.
    NotRemembered,
    /// 422: no model has this id.
    UnknownModel,
    /// 422: no tool has this name.
    UnknownTool,
    /// 422: the message has a part that the server does not take.
    UnsupportedPart,
    /// 429: the caller exceeded a limit.
    RateLimited,
    /// 500: the server failed.
    Internal,
    /// 503: the server, its database or the issuer of tokens is unavailable.
    Unavailable,
}
