//! Shared memory of a block: bytes, and a shadow that knows who wrote and read them since which barrier.
//!
//! Time is an epoch that grows with each barrier. `seen[w][u]` is the last epoch whose accesses of warp `u` are ordered
//! before what warp `w` does now. An access that is not ordered after another one of the same bytes is a race.
//! Lanes of a warp run in lock step here, but the machine does not promise it: they too need a barrier between them.

use crate::fault::{Stop, stop};

/// A warp of a block at most has this number.
const MAX_WARPS: usize = 32;

/// Times begin anew with the first block behind this one; with a warp's number they have 32 bits.
const MAX_EPOCH: u32 = 1 << 26;

/// The last thread that touched some bytes.
#[derive(Clone, Copy, Default)]
struct Tag {
    /// The epoch in which they were written; zero if never in any block.
    written: u32,
    /// The epoch of the oldest read that may still race, and the warps that read since.
    read: u32,
    readers: u32,
    writer: u8,
    /// The lane that wrote them.
    lane: u8,
    /// The lane that read, if it was one.
    reader: u8,
    how: How,
}

/// The kind of the last write to some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum How {
    #[default]
    Store,
    Atomic,
    /// An asynchronous copy that is under way.
    InFlight,
    /// An asynchronous copy that was waited for: only its lane may read before a barrier.
    Landed,
}

/// More than one lane.
const MANY_LANES: u8 = 255;

/// The time of a warp, and the times of the others of its block that it has seen.
#[derive(Clone, Copy)]
pub(crate) struct Clock<'c> {
    pub(crate) warp: u32,
    pub(crate) epoch: u32,
    seen: &'c [u32; MAX_WARPS],
}

impl Clock<'_> {
    /// Whether what a warp did at a time is ordered before what this one does now.
    #[inline(always)]
    pub(crate) fn follows(&self, warp: u32, epoch: u32) -> bool {
        warp == self.warp || self.seen[(warp & 31) as usize] >= epoch
    }
}

/// The shared memory of the block that runs.
#[derive(Default)]
pub(crate) struct Shared {
    bytes: Vec<u8>,
    tags: Vec<Tag>,
    /// Bytes for which there is one tag, as a power of two.
    grain: u32,
    epoch: u32,
    /// The epoch in which this block began.
    first: u32,
    seen: Vec<[u32; MAX_WARPS]>,
}

impl Shared {
    /// Makes the memory of the next block: nobody has written anything.
    pub(crate) fn begin(&mut self, bytes: usize, grain_bytes: u32, warps: usize) {
        let grain = grain_bytes.trailing_zeros();
        self.bytes.resize(bytes, 0);
        let tags = bytes.div_ceil(1 << grain);
        if grain != self.grain || self.epoch > MAX_EPOCH {
            self.tags.clear();
            self.epoch = 0;
            self.grain = grain;
        }
        self.tags.resize(tags, Tag::default());
        self.epoch += 1;
        self.first = self.epoch;
        self.seen.clear();
        self.seen.resize(warps.min(MAX_WARPS), [0; MAX_WARPS]);
    }

    /// The time of a warp.
    #[inline(always)]
    pub(crate) fn clock(&self, warp: usize) -> Clock<'_> {
        Clock { warp: warp as u32, epoch: self.epoch, seen: &self.seen[warp] }
    }

    /// A barrier of these warps: each has seen what all of them did.
    pub(crate) fn barrier(&mut self, warps: u32) {
        let mut all = [0; MAX_WARPS];
        for warp in crate::lanes::lanes(warps) {
            for (all, seen) in all.iter_mut().zip(self.seen[warp]) {
                *all = seen.max(*all);
            }
        }
        for warp in crate::lanes::lanes(warps) {
            all[warp] = self.epoch;
        }
        for warp in crate::lanes::lanes(warps) {
            self.seen[warp] = all;
        }
        self.epoch += 1;
    }

    /// `bar.warp.sync`: the lanes of a warp see what each other did.
    pub(crate) fn warp_barrier(&mut self, warp: usize) {
        self.seen[warp][warp] = self.epoch;
        self.epoch += 1;
    }

    /// The bytes and tags of an access.
    #[inline(always)]
    fn tags_of(&self, at: u64, len: usize) -> Result<std::ops::Range<usize>, Stop> {
        if at > self.bytes.len() as u64 || len as u64 > self.bytes.len() as u64 - at {
            return stop(format!("shared access out of bounds: {len} bytes at {at} of {}", self.bytes.len()));
        }
        let at = at as usize;
        Ok(at >> self.grain..((at + len - 1) >> self.grain) + 1)
    }

    /// Bytes that a lane reads.
    #[inline(always)]
    pub(crate) fn read(&mut self, at: u64, len: usize, warp: usize, lane: usize) -> Result<&[u8], Stop> {
        let (first, epoch) = (self.first, self.epoch);
        let range = self.tags_of(at, len)?;
        let seen = &self.seen[warp];
        for tag in &mut self.tags[range] {
            if tag.written < first {
                return stop(format!("shared memory read before it is written, at byte {at}"));
            }
            if tag.how == How::InFlight {
                return stop(format!("shared memory read at byte {at} while a cp.async to it is under way"));
            }
            let writer = usize::from(tag.writer);
            if seen[writer] < tag.written {
                if writer != warp {
                    return race(at, writer, "wrote", warp, "reads");
                }
                if tag.how == How::Landed && usize::from(tag.lane) != lane {
                    return stop(format!(
                        "shared memory at byte {at} was copied by cp.async of lane {}, and lane {lane} reads it with no barrier between",
                        tag.lane
                    ));
                }
                if usize::from(tag.lane) != lane {
                    return race_of_lanes(at, tag.lane, "wrote", lane, "reads");
                }
            }
            let others = tag.readers & !(1 << warp);
            let is_new = tag.read < first || is_seen(tag, seen);
            if is_new || others == 0 {
                let reader = if is_new { lane as u8 } else { joined(tag.reader, lane) };
                *tag = Tag { read: epoch, readers: 1 << warp, reader, ..*tag };
            } else {
                tag.readers |= 1 << warp;
                tag.reader = joined(tag.reader, lane);
            }
        }
        Ok(&self.bytes[at as usize..at as usize + len])
    }

    /// Bytes that a lane writes.
    #[inline(always)]
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8], warp: usize, lane: usize) -> Result<(), Stop> {
        let range = self.claim(at, bytes.len(), warp, lane)?;
        let (first, epoch) = (self.first, self.epoch);
        let seen = &self.seen[warp];
        for tag in &mut self.tags[range] {
            let is_racing = tag.written >= first && usize::from(tag.lane) != lane && seen[warp] < tag.written;
            // Lanes may write one value to one place, as those of an instruction do.
            if is_racing && self.bytes[at as usize..at as usize + bytes.len()] != *bytes {
                return race_of_lanes(at, tag.lane, "wrote", lane, "writes");
            }
            *tag = Tag { written: epoch, writer: warp as u8, lane: lane as u8, ..Tag::default() };
        }
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Bytes that an atomic of a lane reads and writes; atomics do not race with each other.
    pub(crate) fn atomic(&mut self, at: u64, len: usize, warp: usize, lane: usize) -> Result<&mut [u8], Stop> {
        let (first, epoch) = (self.first, self.epoch);
        let range = self.tags_of(at, len)?;
        let seen = self.seen[warp];
        for tag in &mut self.tags[range] {
            if tag.written < first {
                return stop(format!("shared memory read before it is written, at byte {at}"));
            }
            let writer = usize::from(tag.writer);
            let was_atomic = tag.how == How::Atomic;
            if tag.how == How::InFlight || !was_atomic && writer != warp && seen[writer] < tag.written {
                return race(at, writer, "wrote", warp, "has an atomic");
            }
            if !was_atomic && usize::from(tag.lane) != lane && seen[warp] < tag.written {
                return race_of_lanes(at, tag.lane, "wrote", lane, "has an atomic");
            }
            let lane = if was_atomic && seen[writer] < tag.written { joined(tag.lane, lane) } else { lane as u8 };
            *tag = Tag { written: epoch, writer: warp as u8, lane, how: How::Atomic, ..*tag };
        }
        Ok(&mut self.bytes[at as usize..at as usize + len])
    }

    /// Marks bytes that an asynchronous copy of a lane will write.
    pub(crate) fn begin_copy(&mut self, at: u64, len: usize, warp: usize, lane: usize) -> Result<(), Stop> {
        let range = self.claim(at, len, warp, lane)?;
        let epoch = self.epoch;
        for tag in &mut self.tags[range] {
            let (writer, lane) = (warp as u8, lane as u8);
            *tag = Tag { written: epoch, writer, lane, how: How::InFlight, ..Tag::default() };
        }
        Ok(())
    }

    /// Lands an asynchronous copy.
    pub(crate) fn land(&mut self, at: u64, bytes: &[u8]) {
        let (at, epoch) = (at as usize, self.epoch);
        for tag in &mut self.tags[at >> self.grain..((at + bytes.len() - 1) >> self.grain) + 1] {
            tag.how = How::Landed;
            tag.written = epoch;
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Checks that these bytes may be written now.
    #[inline(always)]
    fn claim(&self, at: u64, len: usize, warp: usize, lane: usize) -> Result<std::ops::Range<usize>, Stop> {
        let range = self.tags_of(at, len)?;
        let seen = &self.seen[warp];
        for tag in &self.tags[range.clone()] {
            if tag.written < self.first {
                continue;
            }
            let writer = usize::from(tag.writer);
            if tag.how == How::InFlight {
                return stop(format!("shared memory written at byte {at} while a cp.async to it is under way"));
            }
            if writer != warp && seen[writer] < tag.written {
                return race(at, writer, "wrote", warp, "writes");
            }
            if tag.read < self.first {
                continue;
            }
            let others = tag.readers & !(1 << warp);
            if let Some(reader) = crate::lanes::lanes(others).find(|reader| seen[*reader] < tag.read) {
                return race(at, reader, "read", warp, "writes");
            }
            let is_own = tag.readers != others && seen[warp] < tag.read;
            if is_own && usize::from(tag.reader) != lane {
                return race_of_lanes(at, tag.reader, "read", lane, "writes");
            }
        }
        Ok(range)
    }
}

/// The lane that reads, if it is the one that read.
const fn joined(reader: u8, lane: usize) -> u8 {
    if reader as usize == lane { reader } else { MANY_LANES }
}

/// Whether all reads noted in a tag are ordered before what a warp does now.
fn is_seen(tag: &Tag, seen: &[u32; MAX_WARPS]) -> bool {
    crate::lanes::lanes(tag.readers).all(|reader| seen[reader] >= tag.read)
}

#[cold]
fn race<T>(at: u64, other: usize, did: &str, warp: usize, does: &str) -> Result<T, Stop> {
    stop(format!("shared-memory race at byte {at}: warp {other} {did}, warp {warp} {does} with no barrier between"))
}

#[cold]
fn race_of_lanes<T>(at: u64, other: u8, did: &str, lane: usize, does: &str) -> Result<T, Stop> {
    let other = if other == MANY_LANES { "another lane".to_owned() } else { format!("lane {other}") };
    stop(format!(
        "shared-memory race at byte {at}: {other} {did}, lane {lane} of its warp {does} with no barrier between"
    ))
}
