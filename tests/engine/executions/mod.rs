//! Executions of calls: their ends, cancels, repetitions and verification.

mod cancel;
mod cancel_around_hold;
mod cancellation;
mod idempotent;
mod repair;
mod sweeper;
mod verify;
