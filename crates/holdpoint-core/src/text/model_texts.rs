//! The texts that the model reads for calls without an output of their own.

/// The result of an interrupted call.
pub const INTERRUPTED: &str = "The outcome is unknown: the tool may have run, wholly or in part. Do \
    not repeat it without asking the user.";
/// The result of an expired call.
pub const EXPIRED: &str = "Nobody approved this in time, it expired. The tool did not run.";
/// The result of a cancelled call.
pub const CANCELLED: &str = "Cancelled, the tool did not run.";
/// The beginning of the result of a call that the policy forbids; the reason follows.
pub const BLOCKED: &str = "The policy of this server forbids the call, the tool did not run.";
/// The beginning of the result of an approved call that the policy forbids at the claim; the reason
/// follows.
pub const BLOCKED_LATER: &str =
    "Approved by a person, but the policy of this server forbids the call now. The tool did not run.";
/// The result of an approved call that was not started in time.
pub const NOT_STARTED: &str = "Approved by a person, but not begun in time. The tool did not run.";
/// The error of an interrupted call whose tool later reports that it had no effect and will have none.
pub const NEVER_HAPPENED: &str =
    "it was cut off. Asked about it later, it says that nothing happened and nothing will.";
/// The placeholder for a pending call.
pub const AWAITING: &str = "Awaiting approval by a person. The tool has not run. Its outcome will \
    be told later; do not repeat the call.";
/// The result of a call that repeats a pending call.
pub const DUPLICATE: &str = "Already awaiting approval: the same call was made before and waits for \
    a person. This one was not asked about and did not run. The outcome of the first will be told later; \
    do not repeat the call.";
/// The placeholder for an approved call that has not ended.
pub const IN_PROGRESS: &str =
    "Approved by a person and under way. Its outcome will be told later; do not repeat the call.";
/// The text between [`INTERRUPTED`] and the error of a repeated attempt.
pub const FAILED_AGAIN: &str = "Begun again, the tool failed:";
/// The beginning of the result of a failed call.
pub const FAILED: &str = "The tool failed:";
/// The beginning of the result of a call with edited inputs.
pub const EDITED: &str = "A person changed the inputs from";
/// The end of the sentence about the edit; the result of the call follows.
pub const EDITED_END: &str = " before approving. ";
/// The beginning of the result of a call that a person approved with a note; the note and the result follow.
pub const NOTED: &str = "A person approved the call and noted: ";
/// The result of a call that repeats an expired call of the same run, in which no person has acted since.
pub const EXPIRED_BEFORE: &str = "Not asked again: the same call was made before, and nobody approved it \
    in time. The tool did not run. Do not repeat the call before the user says something.";
/// The result of a call that repeats a call which a person rejected in the same run; the reason of the person follows.
pub const REJECTED_BEFORE: &str = "Tool execution rejected by user: the same call was rejected before, so \
    no person was asked again. The tool did not run. Do not repeat the call before the user says something.";
/// The placeholder for a running call that was not held.
pub const RUNNING: &str =
    "Under way, or cut off: the outcome is not known yet. It will be told later; do not repeat the call.";
/// The result of a rejected call.
pub const REJECTED: &str = "Tool execution rejected by user.";
/// The text before the reason of a decider or an operator, if there is one.
pub const REASON: &str = "Reason: ";
/// The error of a call whose sub-agent started and did not complete; the reason follows.
pub const CHILD_FAILED: &str = "the sub-agent broke off, and part of its task may have been done:";
/// The error of a call that was stopped before its sub-agent started.
pub const CHILD_UNWANTED: &str = "it was stopped before the sub-agent began; nothing was done";
/// The error of a call whose sub-agent would exceed the depth limit.
pub const TOO_DEEP: &str =
    "sub-agents may not be nested any deeper here (limits.agent_depth); nothing was begun";
/// The error of a call whose run has started the maximum number of sub-agents.
pub const TOO_MANY: &str = "this run may begin no more sub-agents (limits.agents_per_run); nothing was begun";
/// The result of a call that an operator resolved as succeeded; the output follows if it is known.
pub const ESTABLISHED: &str = "An operator established that the tool ran and succeeded.";
/// The text between [`ESTABLISHED`] and the output.
pub const OUTPUT: &str = " Its output:";
/// The result of a call that an operator resolved as failed; the reason follows.
pub const ESTABLISHED_FAILED: &str = "An operator established that the tool failed:";
/// The result of a call that was open in a database that lost commits.
pub const FENCED: &str = "Cancelled, because the server's database was set back to an earlier time. \
    Whether the tool ran in the time that was lost is not known. Do not repeat it without asking the user.";
/// The reason of the fence's decision, for people.
pub const FENCE: &str = "The database was set back to an earlier time; what ran since is not known.";
/// The text that replaces a stored output that cannot be read, because an earlier version or a manual
/// edit wrote it.
pub const UNREADABLE_OUTPUT: &str = "The stored output cannot be read.";
/// The text that replaces the text of a step that cannot be read.
pub const UNREADABLE_PARTS: &str = "[What was said here cannot be read.]";
/// The words of the model between two user messages, and between an answer to a call and a user message, where the
/// model said nothing. Many servers refuse a conversation in which nothing is between them.
pub const NO_REPLY: &str = "(no reply)";
/// The description of a tool that a request names only because the conversation has calls of it.
pub const NOT_OFFERED: &str = "Not available now.";
/// The message in the place of the oldest turns of a conversation that is longer than the model may get.
pub const LEFT_OUT: &str = "[Earlier messages of this conversation were left out.]";
/// The end of a shortened result of a call.
pub const SHORTENED: &str = " […shortened]";
/// The beginning of a user message that the server writes: a note about an outcome that arrived after the
/// answer to its call. The tool, the call's id and the outcome follow.
pub const NOTE: &str = "[tool outcome]";
/// The text that replaces [`NOTE`] in text that the server did not write.
pub const QUOTED_NOTE: &str = "[quoted tool outcome]";
