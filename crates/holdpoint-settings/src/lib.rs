//! What all sections of the configuration share: the sources of values, the forms of values, the error, and
//! the display without secrets.
//!
//! A section is a struct in the module or crate that uses it. It has a `check` for what its types cannot say.
//! This crate alone reads the environment.

#![warn(missing_docs)]

pub mod environment;
mod error;
pub mod forms;
mod headers;
mod lenient;
pub mod shown;
mod sources;
mod urls;

pub use error::{ConfigError, wrong};
pub use forms::{check_duration, check_some_duration, is_plain_name, text_of_file};
pub use headers::{headers, with_files};
pub use sources::{SecretKey, Sources};
pub use urls::is_safe;
