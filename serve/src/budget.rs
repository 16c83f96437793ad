//! A budget for the bytes of request bodies in the memory of this process.

use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The byte budget that the bodies of all requests share.
#[derive(Debug)]
pub struct Budget(Arc<Semaphore>);

/// The share of one body in the budget. It is released on drop.
#[derive(Debug)]
pub struct Reserved {
    of: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

/// The budget has too few bytes left.
#[derive(Debug)]
pub(crate) struct Exhausted;

/// A body with its share of the budget.
struct Held {
    body: Bytes,
    _reserved: Reserved,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Budget {
    /// A budget of `bytes` for all bodies together.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Returns an empty share for one body.
    pub fn part(&self) -> Reserved {
        Reserved { of: self.0.clone(), permit: None }
    }
}

impl Reserved {
    /// Grows the share to at least `bytes`.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let has = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = u32::try_from(bytes.saturating_sub(has)).map_err(|_| Exhausted)?;
        let more = self.of.clone().try_acquire_many_owned(missing).map_err(|_| Exhausted)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }

    /// Ties the share to its body. The bytes are released when the last reference to the body is dropped.
    pub(crate) fn hold(self, body: Bytes) -> Bytes {
        Bytes::from_owner(Held { body, _reserved: self })
    }
}
