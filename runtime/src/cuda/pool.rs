//! The numbers and free lists behind a GPU's memory: reuse of freed blocks by size.
//!
//! Guarantees that a block wastes at most a quarter of what was asked for (or under 256 bytes), that held memory stays
//! under the limit, and that live, idle and peak bytes are exact. Knows no driver: it only keeps addresses.

use std::collections::BTreeMap;

/// The unit of block sizes: every block is a multiple of it.
const GRAIN: usize = 256;
/// Blocks from four times this size on are multiples of it: the size of a page of the device.
const PAGE: usize = 2 << 20;
const LARGE: usize = 4 * PAGE;

/// The numbers of a GPU's memory. Bytes are those of blocks, which are up to a quarter larger than their buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory {
    /// In buffers that exist.
    pub live_bytes: usize,
    /// Kept for reuse.
    pub idle_bytes: usize,
    /// The most that `live_bytes` was since it was last reset.
    pub peak_bytes: usize,
    /// Blocks asked of the driver.
    pub fresh: u64,
    /// Blocks that were there already.
    pub reused: u64,
}

/// Memory of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceBlock {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

/// The size of a block that may serve other requests, too; `None` if no memory is so large.
fn class(len: usize) -> Option<usize> {
    let len = len.max(2);
    // Four sizes between powers of two, for those that are not large.
    let quarter = (1_usize << (len - 1).ilog2()) / 4;
    let grain = quarter.clamp(GRAIN, PAGE);
    len.checked_next_multiple_of(grain).filter(|&bytes| bytes <= isize::MAX as usize)
}

/// Blocks, and how many bytes there are.
#[derive(Debug)]
pub(super) struct Pool {
    /// Addresses of free blocks by size; the one that was freed last is used first.
    idle: BTreeMap<usize, Vec<u64>>,
    numbers: GpuMemory,
    /// The most bytes that may be held.
    pub(super) limit: usize,
    /// Blocks are as large as what was asked for, and none is kept.
    pub(super) is_exact: bool,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool { idle: BTreeMap::new(), numbers: GpuMemory::default(), limit: usize::MAX, is_exact: false }
    }

    pub(super) fn numbers(&self) -> GpuMemory {
        self.numbers
    }

    pub(super) fn reset_peak(&mut self) {
        self.numbers.peak_bytes = self.numbers.live_bytes;
    }

    /// The size of the block for a request; `None` if no memory is so large.
    pub(super) fn size_for(&self, len: usize) -> Option<usize> {
        class(len).map(|bytes| if self.is_exact { len } else { bytes })
    }

    /// A free block for a request of this class: of its very size, or of one that is little larger.
    pub(super) fn take(&mut self, bytes: usize) -> Option<DeviceBlock> {
        if self.is_exact {
            return None;
        }
        let most = if bytes < LARGE { bytes } else { bytes + bytes / 8 };
        let (&size, addresses) = self.idle.range_mut(bytes..=most).next()?;
        let address = addresses.pop()?;
        if addresses.is_empty() {
            self.idle.remove(&size);
        }
        self.numbers.idle_bytes -= size;
        self.numbers.reused += 1;
        self.numbers.live_bytes += size;
        self.note_peak();
        Some(DeviceBlock { address, bytes: size })
    }

    /// Counts a block that the driver is about to be asked for, unless the limit forbids it.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        let held = self.numbers.live_bytes + self.numbers.idle_bytes;
        if held.checked_add(bytes).is_none_or(|held| held > self.limit) {
            return false;
        }
        self.numbers.live_bytes += bytes;
        true
    }

    /// Counts the block that the driver gave after [`reserve`](Pool::reserve), or forgets the one it refused.
    pub(super) fn settle(&mut self, bytes: usize, is_given: bool) {
        match is_given {
            true => {
                self.numbers.fresh += 1;
                self.note_peak();
            }
            false => self.numbers.live_bytes -= bytes,
        }
    }

    fn note_peak(&mut self) {
        self.numbers.peak_bytes = self.numbers.peak_bytes.max(self.numbers.live_bytes);
    }

    /// Keeps a block that no buffer uses any more, or says that it is not kept.
    pub(super) fn give_back(&mut self, block: DeviceBlock) -> bool {
        self.numbers.live_bytes -= block.bytes;
        if self.is_exact {
            return false;
        }
        self.numbers.idle_bytes += block.bytes;
        self.idle.entry(block.bytes).or_default().push(block.address);
        true
    }

    /// Gives up all free blocks; returns their addresses.
    pub(super) fn clear(&mut self) -> Vec<u64> {
        self.numbers.idle_bytes = 0;
        std::mem::take(&mut self.idle).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_a_quarter() {
        let lens = (1..9000).chain((13..40).flat_map(|k| [(1 << k) - 1, 1 << k, (1 << k) + 1, (1 << k) * 11 / 8]));
        for len in lens {
            let bytes = class(len).unwrap();
            assert!(bytes >= len && bytes.is_multiple_of(GRAIN), "{len} in {bytes}");
            assert!(bytes - len < GRAIN || 4 * (bytes - len) <= len, "{len} in {bytes}");
            assert_eq!(class(bytes), Some(bytes), "{len}");
        }
        assert_eq!(class(0), Some(GRAIN));
        assert_eq!(class(9 << 20), Some(10 << 20));
        assert_eq!(class(usize::MAX), None);
    }

    #[test]
    fn freed_blocks_come_back_by_size() {
        let mut pool = Pool::new();
        for (n, bytes) in [256, 1024, 16 << 20].into_iter().enumerate() {
            assert!(pool.reserve(bytes));
            pool.settle(bytes, true);
            assert!(pool.give_back(DeviceBlock { address: n as u64, bytes }));
        }
        assert_eq!(pool.take(512), None, "small blocks fit exactly");
        assert_eq!(pool.take(10 << 20), None, "too large");
        assert_eq!(pool.take(15 << 20), Some(DeviceBlock { address: 2, bytes: 16 << 20 }));
        assert_eq!(pool.take(1024), Some(DeviceBlock { address: 1, bytes: 1024 }));
        assert_eq!(pool.take(1024), None);
        let numbers = pool.numbers();
        assert_eq!((numbers.live_bytes, numbers.idle_bytes), ((16 << 20) + 1024, 256));
        assert_eq!((numbers.fresh, numbers.reused, numbers.peak_bytes), (3, 2, (16 << 20) + 1024));
        assert_eq!(pool.clear(), [0]);
        assert_eq!(pool.numbers().idle_bytes, 0);
    }

    #[test]
    fn exact_blocks_are_not_kept() {
        let mut pool = Pool::new();
        assert!(pool.reserve(256));
        pool.settle(256, true);
        assert!(pool.give_back(DeviceBlock { address: 1, bytes: 256 }));
        pool.is_exact = true;
        assert_eq!((pool.size_for(3), pool.size_for(usize::MAX)), (Some(3), None));
        assert_eq!(pool.take(256), None, "what is idle stays so");
        assert!(pool.reserve(3));
        pool.settle(3, true);
        assert!(!pool.give_back(DeviceBlock { address: 2, bytes: 3 }));
        assert_eq!((pool.numbers().live_bytes, pool.numbers().idle_bytes), (0, 256));
    }

    #[test]
    fn the_limit_counts_what_is_held() {
        let mut pool = Pool::new();
        pool.limit = 1000;
        assert!(pool.reserve(768));
        assert!(!pool.reserve(256));
        pool.settle(768, false);
        assert_eq!(pool.numbers().live_bytes, 0);
        assert!(pool.reserve(256));
        assert!(!pool.reserve(usize::MAX));
    }
}
