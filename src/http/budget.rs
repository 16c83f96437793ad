//! How many bytes of bodies this process holds at once.

use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many bytes for the bodies of all requests.
#[derive(Debug)]
pub(super) struct Budget(Arc<Semaphore>);

/// A part of the budget, for one body. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    of: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

/// The budget has no more bytes for now.
#[derive(Debug)]
pub(super) struct Exhausted;

/// A body with its part of the budget.
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
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// A part for one body, without any bytes.
    pub(super) fn part(&self) -> Reserved {
        Reserved { of: self.0.clone(), permit: None }
    }
}

impl Reserved {
    /// Has at least so many bytes.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let has = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = u32::try_from(bytes.saturating_sub(has)).map_err(|_| Exhausted)?;
        let more = self.of.clone().try_acquire_many_owned(missing).map_err(|_| Exhausted)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }

    /// The body that this was reserved for: the bytes are given back when the last of it is dropped.
    pub(super) fn hold(self, body: Bytes) -> Bytes {
        Bytes::from_owner(Held { body, _reserved: self })
    }
}
