//! Who may call which operation.
//!
//! Each file of routes has its table beside its operations, and [`BESIDE`] is the table of the paths that the document
//! leaves out. From them come the route table and the table of callers in `docs/http.md` (`cargo xtask docs --write`),
//! the paths that need no token, and what `tests/api/auth/routes.rs` expects of each caller.

/// A relation of a caller to what a request is about, always within one tenant. The comment of each is its row in
/// `docs/http.md`: its name there, and its definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum CallerKind {
    /// everyone: any request, without a token
    Everyone,
    /// every user: a user with a valid token, cookie or ticket; the answer has the rows of this user alone, or those that
    /// the operation names
    User,
    /// owner: the user that made the thread
    Owner,
    /// approver: has one of the `approve_roles` of the tool of a held call, or of the roles that the call is escalated to
    Approver,
    /// delegate: the user that an approver lets [decide a held call](#post-approvalstool_call_iddelegate)
    Delegate,
    /// granter: the user whose approval is remembered
    Granter,
    /// operator: has one of `auth.operator_roles`
    Operator,
    /// operator or the one user: an operator; in mode `none` the one user
    OperatorOrOneUser,
    /// accepter of definitions: has one of `auth.accept_roles`, by default of `auth.operator_roles`; in mode `none` the
    /// one user
    DefinitionAccepter,
    /// worker: has one of `auth.worker_roles`; in mode `none` the one user
    Worker,
    /// worker with the permit: the worker that claimed the call, with the permit of its claim
    PermitHolder,
    /// service of the tool: has the `callback_url` of the call, and signs its request
    ToolService,
    /// person of the link: the user for whom the message with the link was made
    LinkPerson,
    /// user of the sign-in: the user that signed in
    SignedInUser,
}

/// The operations of one file of routes, by their ids, and who may call each.
pub(in crate::http) type Access = &'static [(&'static str, &'static [CallerKind])];

/// The paths that are read and are not in the OpenAPI document, and who may read each. Slack, the files of the console
/// and the steps of a sign-in have paths besides these.
pub(in crate::http) const BESIDE: &[(&str, CallerKind)] = &[
    ("/", CallerKind::Everyone),
    ("/healthz", CallerKind::Everyone),
    ("/readyz", CallerKind::Everyone),
    ("/metrics", CallerKind::Everyone),
    ("/openapi.json", CallerKind::Everyone),
    ("/docs", CallerKind::Everyone),
    #[cfg(feature = "websocket")]
    ("/ws", CallerKind::User),
];

/// Whether every request may read this path, without a token. Only whole paths match.
pub(in crate::http) fn is_for_everyone(path: &str) -> bool {
    BESIDE.contains(&(path, CallerKind::Everyone))
}

/// Whether requests of these callers have credentials of their own in place of a token.
pub(in crate::http) fn has_own_credentials(callers: &[CallerKind]) -> bool {
    callers == [CallerKind::ToolService]
}
