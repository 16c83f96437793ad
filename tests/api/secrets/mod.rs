//! Secret inputs: masked for people, opened by a request that is an event, and as they are for the tool and the model.

mod edits;
mod grants;
mod masked;
mod messages;
mod reveal;
mod rows;

use holdpoint_testkit::secrets::{
    MASK, SECRETS, assert_hidden, held, input, masked, pointers, revealed, server,
};
