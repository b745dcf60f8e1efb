//! The threads that touched each byte of global memory, and whether two of them race.
//!
//! Blocks of a launch are never ordered: no block may touch bytes that another one wrote, except by atomics. Warps of a
//! block are ordered by barriers, whose times the shadow of shared memory keeps.

use crate::fault::{Stop, stop};
use crate::lanes::lanes;
use crate::shared::Clock;

/// The last thread that touched some bytes. A block is known by a serial number that counts over all launches.
///
/// An array, so that those of a great allocation are made without touching them.
pub(crate) type Tag = [u32; 5];

/// The tag of bytes that nobody touched.
pub(crate) const UNTOUCHED: Tag = [0; 5];

/// The block that wrote: zero is nobody, one is the host or a copy.
pub(crate) const WRITER: usize = 0;

/// The block that read.
pub(crate) const READER: usize = 1;

/// The time of the write within its block, times 32, and the warp.
const WROTE: usize = 2;

/// The time of the last read that may still race, within its block.
const READ: usize = 3;

/// The warps that read then or later.
const READERS: usize = 4;

/// Written by the host.
pub(crate) const HOST: u32 = 1;

/// The tag is that of four single bytes, in the fine table.
pub(crate) const FINE: u32 = 2;

/// Serial numbers of blocks begin behind this.
pub(crate) const FIRST_SERIAL: u32 = 16;

/// Set in a writer that used an atomic instruction.
const ATOMIC: u32 = 1 << 31;

/// The block that runs and the launch it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// Stands for several blocks of the launch; its blocks have the numbers behind it.
    pub(crate) launch: u32,
    pub(crate) block: u32,
}

/// A warp that touches memory.
#[derive(Clone, Copy)]
pub(crate) struct Visitor<'c> {
    pub(crate) owner: Owner,
    pub(crate) clock: Clock<'c>,
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    /// A read of what must not change while the kernel runs: `ld.global.nc`.
    ConstantRead,
    Write,
    /// A read or write that is ordered against others.
    StrongRead,
    StrongWrite,
    Atomic,
}

/// Checks an access against those before, and notes it.
#[inline(always)]
pub(crate) fn check(tag: &mut Tag, touch: Touch, visitor: Visitor<'_>, is_strict: bool) -> Result<(), Stop> {
    let Visitor { owner: Owner { launch, block }, clock } = visitor;
    let writer = tag[WRITER] & !ATOMIC;
    // The writer's serial number is within this launch, and another one than that of this block.
    let is_foreign = writer >= launch && writer != block;
    let was_atomic = tag[WRITER] & ATOMIC != 0;
    if writer == block && !clock.follows(tag[WROTE] & 31, tag[WROTE] >> 5) {
        let is_ordered = match touch {
            Touch::StrongRead => true,
            Touch::Atomic | Touch::StrongWrite => was_atomic,
            Touch::Read | Touch::ConstantRead | Touch::Write => false,
        };
        if !is_ordered {
            return race_of_warps(tag[WROTE] & 31, "wrote", visitor, touch);
        }
    }
    match touch {
        Touch::Read | Touch::ConstantRead | Touch::StrongRead => {
            if writer == 0 && is_strict {
                return stop("global memory read that nobody wrote");
            }
            if touch == Touch::StrongRead {
                return Ok(());
            }
            if touch == Touch::ConstantRead && writer == block {
                return stop("ld.global.nc of memory that this launch writes");
            }
            if is_foreign {
                return race(writer, "wrote", visitor, touch);
            }
            note_read(tag, visitor);
        }
        Touch::Write | Touch::StrongWrite | Touch::Atomic => {
            if touch == Touch::Atomic && writer == 0 && is_strict {
                return stop("atomic on global memory that nobody wrote");
            }
            if is_foreign && (touch == Touch::Write || !was_atomic) {
                return race(writer, "wrote", visitor, touch);
            }
            if tag[READER] >= launch {
                check_readers(tag, touch, visitor)?;
            }
            let now = clock.epoch << 5 | clock.warp;
            *tag = match touch {
                Touch::Write => [block, 0, now, 0, 0],
                _ => [ATOMIC | if is_foreign { launch } else { block }, 0, now, 0, 0],
            };
        }
    }
    Ok(())
}

/// Notes a read, beside those that are not ordered before it.
#[inline(always)]
fn note_read(tag: &mut Tag, visitor: Visitor<'_>) {
    let Visitor { owner: Owner { launch, block }, clock } = visitor;
    if tag[READER] >= launch && tag[READER] != block {
        tag[READER] = launch;
        return;
    }
    let own = 1 << clock.warp;
    let others = tag[READERS] & !own;
    if tag[READER] != block || others == 0 || lanes(others).all(|warp| clock.follows(warp as u32, tag[READ])) {
        *tag = [tag[WRITER], block, tag[WROTE], clock.epoch, own];
    } else {
        tag[READERS] |= own;
    }
}

/// Checks a write against the reads of this launch.
#[inline(always)]
fn check_readers(tag: &Tag, touch: Touch, visitor: Visitor<'_>) -> Result<(), Stop> {
    if tag[READER] != visitor.owner.block {
        return race(tag[READER], "read", visitor, touch);
    }
    let others = tag[READERS] & !(1 << visitor.clock.warp);
    match lanes(others).find(|warp| !visitor.clock.follows(*warp as u32, tag[READ])) {
        Some(warp) => race_of_warps(warp as u32, "read", visitor, touch),
        None => Ok(()),
    }
}

impl Touch {
    /// The verb for a warp that touches memory so.
    fn verb(self) -> &'static str {
        match self {
            Touch::Read | Touch::ConstantRead | Touch::StrongRead => "reads",
            Touch::Write | Touch::StrongWrite => "writes",
            Touch::Atomic => "has an atomic",
        }
    }
}

#[cold]
fn race(other: u32, did: &str, visitor: Visitor<'_>, touch: Touch) -> Result<(), Stop> {
    let owner = visitor.owner;
    let name = |serial: u32| match serial - owner.launch {
        0 => "several blocks".to_owned(),
        n => format!("block {}", n - 1),
    };
    let (other, own, does) = (name(other), name(owner.block), touch.verb());
    stop(format!("global-memory race: {other} {did} what {own} {does} in one launch"))
}

#[cold]
fn race_of_warps(other: u32, did: &str, visitor: Visitor<'_>, touch: Touch) -> Result<(), Stop> {
    let (own, does) = (visitor.clock.warp, touch.verb());
    stop(format!("global-memory race: warp {other} {did} what warp {own} {does} with no barrier between"))
}
