// All transitions of a call, each with its condition besides the state. `transitions.rs` turns this list into
// types, and the tests compare the list with both databases.
legal! {
    Pending => Approved if always;
    Pending => Executing if with_decision;
    Pending => Rejected if always;
    Pending => Expired if always;
    Pending => Cancelled if always;
    Approved => Executing if startable;
    Approved => Cancelled if never_claimed;
    Approved => Failed if never_claimed;
    Approved => Interrupted if claimed_before;
    Executing => Succeeded if always;
    Executing => Failed if always;
    Executing => Interrupted if always;
    Executing => Approved if repeatable;
    Interrupted => Succeeded if always;
    Interrupted => Failed if always;
}
