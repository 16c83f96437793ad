//! What the project publishes beside the program, and that it holds.

mod deployment_files;
mod examples;
mod openapi;
mod readme;
