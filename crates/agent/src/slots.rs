//! The slots of a node: how many transfers run at the same time, and how many share its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The slots of a node.
#[derive(Debug)]
pub(crate) struct Slots {
    permits: Arc<Semaphore>,
    count: usize,
    /// The transfers that have a slot or wait for one.
    demand: Arc<AtomicUsize>,
}

/// A request for a slot, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct SlotRequest {
    permits: Arc<Semaphore>,
    demand: Arc<AtomicUsize>,
}

/// A slot, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
    _request: SlotRequest,
}

impl Slots {
    /// This many slots, at least one.
    pub(crate) fn new(count: usize) -> Self {
        let count = count.max(1);
        Self { permits: Arc::new(Semaphore::new(count)), count, demand: Arc::default() }
    }

    /// Asks for a slot.
    pub(crate) fn request(&self) -> SlotRequest {
        self.demand.fetch_add(1, Ordering::Relaxed);
        SlotRequest { permits: self.permits.clone(), demand: self.demand.clone() }
    }

    /// The number of transfers that share the memory of the node: those that run, and those that run as soon as they may.
    pub(crate) fn sharing(&self) -> usize {
        self.demand.load(Ordering::Relaxed).clamp(1, self.count)
    }
}

impl SlotRequest {
    /// The slot, if one is free now.
    pub(crate) fn try_acquire(self) -> Result<Slot, Self> {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Ok(Slot { _permit: permit, _request: self }),
            Err(_) => Err(self),
        }
    }

    /// Waits for a slot.
    pub(crate) async fn acquire(self) -> Result<Slot, AcquireError> {
        let permit = self.permits.clone().acquire_owned().await?;
        Ok(Slot { _permit: permit, _request: self })
    }
}

impl Drop for SlotRequest {
    fn drop(&mut self) {
        self.demand.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_that_run_or_wait_share_the_memory_up_to_the_number_of_slots() {
        let slots = Slots::new(2);
        assert_eq!(slots.sharing(), 1, "at least one");
        let first = slots.request().try_acquire().expect("free");
        assert_eq!(slots.sharing(), 1);
        let second = slots.request().try_acquire().expect("free");
        let third = slots.request().try_acquire().expect_err("none is free");
        assert_eq!(slots.sharing(), 2, "no more than run at a time");
        drop((first, second));
        assert_eq!(slots.sharing(), 1, "the one that waits");
        drop(third.try_acquire().expect("free again"));
        assert_eq!(slots.demand.load(Ordering::Relaxed), 0);
    }
}
