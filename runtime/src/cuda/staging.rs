//! Copies from the host that need not be waited for: through a ring of pinned memory.
//!
//! Guarantees that the source of a copy may be freed as soon as the call returns. The ring has a few parts; copies fill
//! one after the other, and a part is filled again when the stream has passed an event that was queued behind its last
//! copy. So small copies cost no event each, and a large one goes through the parts in turn.

use super::api::Failure;
use super::driver::{Driver, Event, Pinned};

const N_PARTS: usize = 4;
const PART: usize = 2 << 20;

/// The ring of one device.
#[derive(Debug, Default)]
pub(super) struct Staging {
    ring: Option<Ring>,
    /// Pinned memory was refused.
    is_refused: bool,
}

#[derive(Debug)]
struct Ring {
    memory: Pinned,
    /// Queued behind the last copy out of each part.
    events: [Event; N_PARTS],
    /// The part that is being filled, and how far it is.
    part: usize,
    filled: usize,
}

impl Ring {
    fn new(driver: &Driver) -> Result<Ring, Failure> {
        let event = || driver.event(false);
        let events = [event()?, event()?, event()?, event()?];
        Ok(Ring { memory: driver.pinned(N_PARTS * PART)?, events, part: 0, filled: 0 })
    }

    /// Makes room in the ring; returns where.
    fn room(&mut self, driver: &Driver) -> Result<usize, Failure> {
        if self.filled == PART {
            driver.record(&self.events[self.part])?;
            let next = (self.part + 1) % N_PARTS;
            driver.wait(&self.events[next])?;
            (self.part, self.filled) = (next, 0);
        }
        Ok(self.part * PART + self.filled)
    }

    fn send(&mut self, driver: &Driver, bytes: &[u8], to: u64) -> Result<(), Failure> {
        let mut sent = 0;
        while sent < bytes.len() {
            let at = self.room(driver)?;
            let n = (bytes.len() - sent).min(PART - self.filled);
            // SAFETY: the range is inside one part. No copy that is queued reads it: it lies beyond what was filled
            // since the last wait for the part's event, behind which no copy was queued.
            unsafe { driver.send_through(&self.memory, at, &bytes[sent..sent + n], to + sent as u64)? };
            sent += n;
            // The next copy begins on a cache line of its own.
            self.filled = (self.filled + n).next_multiple_of(64).min(PART);
        }
        Ok(())
    }
}

impl Staging {
    /// Queues a copy to the device; the bytes are not needed any more when this returns.
    pub(super) fn send(&mut self, driver: &Driver, bytes: &[u8], to: u64) -> Result<(), Failure> {
        if self.ring.is_none() && !self.is_refused {
            self.ring = Ring::new(driver).ok();
            self.is_refused = self.ring.is_none();
        }
        match &mut self.ring {
            Some(ring) => ring.send(driver, bytes, to),
            None => driver.send(bytes, to),
        }
    }
}
