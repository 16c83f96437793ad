//! The build that the steps share.

/// The build of the programs that steps and tests start. As part of the workspace and with the examples, which use the
/// dependencies of tests, in the profile of tests, so that every step has the same features and the library is built once.
pub(crate) const PROGRAMS: [&str; 14] = [
    "build",
    "--profile",
    "test",
    "--workspace",
    "--locked",
    "--examples",
    "--bin",
    "holdpoint",
    "--bin",
    "holdpoint-torture",
    "--bin",
    "holdpoint-torture-server",
    "--bin",
    "holdpoint-torture-remote",
];

/// Every feature, in one build for all steps: what is off by default is tested too.
pub(crate) const WITH_ALL: [&str; 2] = ["--features", "holdpoint/bench,holdpoint/otel"];

/// The test programs over `tests/kit`. They run one after the other: each uses all cores.
pub(crate) const FROM_OUTSIDE: [&str; 6] = ["--test", "api", "--test", "engine", "--test", "outside"];
