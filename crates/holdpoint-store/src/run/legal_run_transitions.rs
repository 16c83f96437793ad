// All transitions of a run. `run_transitions.rs` turns this list into types, and the tests compare the list with
// both databases.
legal_runs! {
    Running => Waiting;
    Running => Completed;
    Running => Failed;
    Running => Cancelled;
    Waiting => Running;
    Waiting => Completed;
    Waiting => Cancelled;
    Failed => Running;
    Failed => Cancelled;
}
