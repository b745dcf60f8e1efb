//! Blocks: owned pieces of system memory, which the pool keeps and buffers use, and kernels' scratch.
//!
//! Guarantees that every byte of a block is initialised from the start: fresh memory is asked for already zeroed, which
//! for large sizes means untouched pages and no `memset`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

#[cfg(all(target_os = "linux", not(miri)))]
use crate::chunk::Part;
use crate::dtype::Element;

/// The alignment of the pool's blocks: one cache line, and the widest vector register.
pub(crate) const ALIGN: usize = 64;

/// The alignment that every system allocator gives without extra work; beyond it, `alloc_zeroed` would clear the bytes
/// itself. All buffers have at least this alignment, which suffices for every element.
pub(crate) const SYSTEM_ALIGN: usize = 16;

/// From this size on, blocks are mappings of their own, in huge pages where the system has them: the first touch of
/// fresh memory costs a fault per page, and the walk over it a translation per page.
#[cfg(all(target_os = "linux", not(miri)))]
const MAPPED: usize = 4 << 20;

/// From this size on, blocks that have no mapping of their own share one with others.
#[cfg(all(target_os = "linux", not(miri)))]
const SHARED: usize = 64 << 10;

/// One owned piece of system memory: of a size class, which the pool keeps, or a vector's. Thin, since the pool moves
/// it about.
pub(crate) struct Block(Box<Piece>);

/// The bytes of a block.
///
/// Invariant: the `bytes` bytes from `start` on are inside `memory`, aligned and initialised.
struct Piece {
    memory: Memory,
    start: NonNull<u8>,
    bytes: usize,
}

/// Where a block's bytes are.
enum Memory {
    /// At this address from the allocator, with `Block::layout`.
    Heap(NonNull<u8>),
    /// In these pages, which are unmapped when this is dropped.
    #[cfg(all(target_os = "linux", not(miri)))]
    Mapped { _pages: memmap2::MmapMut },
    /// In a chunk.
    #[cfg(all(target_os = "linux", not(miri)))]
    Shared { _part: Part },
    /// In an emptied `Vec<T>`, which gives them back to its allocator, with its layout, when this is dropped.
    Adopted { _vec: Box<dyn Send + Sync> },
}

// SAFETY: a block owns its memory alone, and memory has no thread.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out no access to its memory.
unsafe impl Sync for Block {}
// Bytes are as good after a panic as before it, and an emptied vector has nothing to be broken.
impl UnwindSafe for Block {}
impl RefUnwindSafe for Block {}

impl Block {
    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(ALIGN - SYSTEM_ALIGN)?, SYSTEM_ALIGN).ok()
    }

    /// A zeroed block of `bytes > 0` bytes, unless the system has no such block.
    pub(crate) fn fresh(bytes: usize) -> Option<Block> {
        #[cfg(all(target_os = "linux", not(miri)))]
        if bytes >= MAPPED {
            return Block::mapped(bytes);
        } else if bytes >= SHARED
            && let Some(part) = Part::cut(bytes.next_multiple_of(ALIGN))
        {
            return Some(Block(Box::new(Piece { start: part.start(), memory: Memory::Shared { _part: part }, bytes })));
        }
        let layout = Block::layout(bytes)?;
        // SAFETY: the layout's size is at least `ALIGN - SYSTEM_ALIGN`, so not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = base.as_ptr().align_offset(ALIGN);
        debug_assert!(skip <= ALIGN - SYSTEM_ALIGN);
        // SAFETY: `base` is a multiple of `SYSTEM_ALIGN`, so at most `ALIGN - SYSTEM_ALIGN` bytes are skipped, and the
        // layout has that many besides `bytes`.
        let start = unsafe { base.add(skip) };
        Some(Block(Box::new(Piece { memory: Memory::Heap(base), start, bytes })))
    }

    /// A block in pages of its own, which are zero until they are written.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn mapped(bytes: usize) -> Option<Block> {
        let mut pages = memmap2::MmapMut::map_anon(bytes).ok()?;
        // Without huge pages it is slower, and right all the same.
        let _ = pages.advise(memmap2::Advice::HugePage);
        let start = NonNull::new(pages.as_mut_ptr())?;
        Some(Block(Box::new(Piece { memory: Memory::Mapped { _pages: pages }, start, bytes })))
    }

    /// The memory of a vector that has some, elements first, then zeros.
    pub(crate) fn adopted<T: Element>(mut values: Vec<T>) -> Block {
        let bytes = values.capacity() * size_of::<T>();
        values.resize(values.capacity(), T::from_f64(0.0));
        // The bytes stay as they are. From now on the vector says nothing of them: bytes written there need be no `T`.
        values.clear();
        let start = NonNull::new(values.as_mut_ptr().cast::<u8>()).expect("a vector's pointer is not null");
        Block(Box::new(Piece { memory: Memory::Adopted { _vec: Box::new(values) }, start, bytes }))
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// The size of the block.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Whether the memory is a vector's, so that the pool must not keep it.
    pub(crate) fn is_adopted(&self) -> bool {
        matches!(self.0.memory, Memory::Adopted { .. })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        match self.memory {
            Memory::Heap(base) => {
                let layout = Block::layout(self.bytes).expect("the layout that the piece was allocated with is valid");
                // SAFETY: `base` was allocated with this layout; the piece owns it and is not used again.
                unsafe { dealloc(base.as_ptr(), layout) }
            }
            // The pages go with the field.
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Mapped { .. } | Memory::Shared { .. } => {}
            // So does the vector, whose drop is the one that it would have had anyhow.
            Memory::Adopted { .. } => {}
        }
    }
}

/// Lets the mapping that blocks are cut from go with the last of them.
pub(crate) fn close_chunk() {
    #[cfg(all(target_os = "linux", not(miri)))]
    crate::chunk::close();
}

/// Memory that a kernel needs beside its operands: zeroed when it is fresh, in huge pages where it is large, of the
/// system and not of the pool, and not counted as live.
pub struct Scratch(Block);

impl Scratch {
    /// `bytes` bytes, or one if that is zero, at a multiple of 64; `None` if the system has no such memory.
    pub fn zeroed(bytes: usize) -> Option<Scratch> {
        Block::fresh(bytes.max(1)).map(Scratch)
    }

    /// All bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the block owns its bytes, which are initialised, and is borrowed as long as they are.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr(), self.0.bytes()) }
    }
}
