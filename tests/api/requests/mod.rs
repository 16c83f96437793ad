//! Rules for every request and every answer.

mod limits;
mod rules;
mod unread_answers;
