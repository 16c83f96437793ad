//! Lists: their pages, and what a page costs.

mod cost;
mod pages;
mod statements;
