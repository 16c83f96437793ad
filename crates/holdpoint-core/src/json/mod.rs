//! JSON as tools and callers write it: strict, canonical, bounded.

pub mod canonical;
pub mod hex;
pub mod nesting;
pub mod pointer;
pub mod strict_json;
pub mod surrogates;
