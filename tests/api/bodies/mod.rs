//! Bodies of requests: their forms, what a chat makes of them, and the memory that they take.

mod forms;
mod in_flight;
mod memory;
mod posted_histories;
mod refused_messages;
mod repeated_posts;
