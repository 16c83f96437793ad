//! Requests of tools while they run, and the answers of people.

mod agreed_answers;
mod custom_requests;
