//! What deadlines and crashes leave open.

pub(crate) mod due;
pub(crate) mod sweep_work;
