//! Runs, their turns and steps.

pub(crate) mod drafts;
pub(crate) mod held_turn;
pub(crate) mod resumable_runs;
pub(crate) mod run_transitions;
pub(crate) mod runs;
pub(crate) mod steps;
pub(crate) mod sub_agents;
pub(crate) mod turn_progress;
pub(crate) mod turns;
