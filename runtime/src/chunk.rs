//! Chunks: mappings in huge pages, from which blocks of medium size are cut.
//!
//! Guarantees that each byte is handed out once, and as a zero.
//!
//! Why: the first touch of fresh memory costs a fault per page, and the first run of a step touches all the memory that it
//! needs. A virtual machine takes a microsecond and more for a fault, whether the page has 4 KiB or 2 MiB; and a block
//! that has an allocation of its own gets small pages unless it is as large as several huge ones. Pages of a block that
//! is dropped go back to the system at once; addresses are not used again until all blocks of their chunk are gone.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

use crate::lock::lock;

/// Bytes that are cut from one chunk.
const CHUNK: usize = 8 << 20;

/// The size of a huge page. Kernels before 6.7 do not align mappings to it.
const HUGE_PAGE: usize = 2 << 20;

/// No page that a system has without being asked is larger.
const LARGEST_PAGE: usize = 64 << 10;

/// The chunk that is being cut, and where its next part begins.
static CURRENT: Mutex<Option<(Arc<MmapRaw>, usize)>> = Mutex::new(None);

/// Some bytes of a chunk, which alone its owner may access. The pages that lie within them are freed when it is dropped.
pub(crate) struct Part {
    chunk: Arc<MmapRaw>,
    offset: usize,
    bytes: usize,
}

impl Part {
    /// The next `bytes <= CHUNK` bytes, a multiple of the alignment that the part is to have; `None` if the system has
    /// no more.
    pub(crate) fn cut(bytes: usize) -> Option<Part> {
        let mut current = lock(&CURRENT);
        let end = |offset: usize| offset + bytes;
        let (chunk, offset) = match current.take() {
            Some((chunk, offset)) if end(offset) <= chunk.len() => (chunk, offset),
            _ => fresh()?,
        };
        *current = Some((Arc::clone(&chunk), end(offset)));
        Some(Part { chunk, offset, bytes })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: the offset is within the chunk, whose address is not null.
        unsafe { NonNull::new_unchecked(self.chunk.as_mut_ptr().add(self.offset)) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let [start, end] =
            [self.offset.next_multiple_of(LARGEST_PAGE), (self.offset + self.bytes) & !(LARGEST_PAGE - 1)];
        if start < end {
            // A system that refuses keeps the pages until the chunk goes.
            // SAFETY: the pages are this part's alone, as a chunk starts at a page and both ends are multiples of any
            // page's size; nothing reads or writes them any more.
            let _ = unsafe { self.chunk.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
}

/// A chunk, and the offset of its first huge page.
fn fresh() -> Option<(Arc<MmapRaw>, usize)> {
    let pages = MmapMut::map_anon(CHUNK + HUGE_PAGE).ok()?;
    // Without huge pages it is slower, and right all the same.
    let _ = pages.advise(Advice::HugePage);
    let offset = pages.as_ptr().align_offset(HUGE_PAGE);
    Some((Arc::new(MmapRaw::from(pages)), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(part: &mut Part) -> &mut [u8] {
        // SAFETY: the part owns its bytes, which are mapped and initialised.
        unsafe { std::slice::from_raw_parts_mut(part.start().as_ptr(), part.bytes) }
    }

    #[test]
    fn parts_are_zero_and_apart() {
        let lens = [64, CHUNK, 70_016, 3 << 20, 3 << 20, 3 << 20, 128, CHUNK - 64];
        let mut parts: Vec<Part> = lens.iter().map(|&len| Part::cut(len).unwrap()).collect();
        for (n, part) in parts.iter_mut().enumerate() {
            assert_eq!((part.bytes, part.start().align_offset(64)), (lens[n], 0));
            assert!(bytes(part).iter().all(|&byte| byte == 0), "{n}");
            bytes(part).fill(n as u8 + 1);
        }
        for (n, part) in parts.iter_mut().enumerate() {
            assert!(bytes(part).iter().all(|&byte| byte == n as u8 + 1), "{n}");
        }
    }

    #[test]
    fn pages_go_back_when_their_part_is_dropped_and_no_others() {
        let mut part = Part::cut(3 << 20).unwrap();
        bytes(&mut part).fill(7);
        let (chunk, start, len) = (Arc::clone(&part.chunk), part.offset, part.bytes);
        drop(part);
        // SAFETY: the chunk is mapped as long as `chunk` is held, and no other part has these bytes.
        let bytes = unsafe { std::slice::from_raw_parts(chunk.as_mut_ptr().add(start), len) };
        let is_whole_page = |at: usize| {
            let page = (start + at) / LARGEST_PAGE * LARGEST_PAGE;
            page >= start && page + LARGEST_PAGE <= start + len
        };
        // A page that went back reads as zeros; one that others may use as well is left as it is.
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == if is_whole_page(at) { 0 } else { 7 }));
    }
}
