//! Chunks: mappings in huge pages, from which blocks of medium size are cut.
//!
//! Guarantees that each byte is handed out once, and as a zero.
//!
//! Why: the first touch of fresh memory costs a fault per page, and the first run of a step touches all the memory that it
//! needs. A virtual machine takes a microsecond and more for a fault, whether the page has 4 KiB or 2 MiB; and a block
//! that has an allocation of its own gets small pages unless it is as large as several huge ones. The pages of a block
//! that is dropped no longer count as memory of the process; the system takes them for others as soon as their huge page
//! is unused or memory is short. Addresses are not used again until all blocks of their chunk are gone.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

use crate::lock::lock;

/// Bytes that are cut from one chunk, at least.
const CHUNK: usize = 8 << 20;

/// The size of a huge page. Kernels before 6.7 do not align mappings to it, so that a chunk has room to begin at one.
const HUGE_PAGE: usize = 2 << 20;

/// The chunk that is being cut, and where its next part begins.
static CURRENT: Mutex<Option<(Arc<MmapRaw>, usize)>> = Mutex::new(None);

/// Some bytes of a chunk, which alone its owner may access. The pages that lie within them are freed when it is dropped.
pub(crate) struct Part {
    chunk: Arc<MmapRaw>,
    offset: usize,
    bytes: usize,
}

impl Part {
    /// The next `bytes` bytes, a multiple of the alignment that the part is to have; `None` if the system has no more, or
    /// if no chunk has so many.
    pub(crate) fn cut(bytes: usize) -> Option<Part> {
        if bytes > CHUNK {
            return None;
        }
        let mut current = lock(&CURRENT);
        if current.as_ref().is_none_or(|(chunk, offset)| chunk.len() - offset < bytes) {
            *current = Some(fresh()?);
        }
        let (chunk, offset) = current.as_mut()?;
        let part = Part { chunk: Arc::clone(chunk), offset: *offset, bytes };
        *offset += bytes;
        Some(part)
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: the offset is within the chunk, whose address is not null.
        unsafe { NonNull::new_unchecked(self.chunk.as_mut_ptr().add(self.offset)) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let page = rustix::param::page_size();
        let [start, end] = [self.offset.next_multiple_of(page), (self.offset + self.bytes) / page * page];
        if start < end {
            // A system that refuses keeps the pages until the chunk goes.
            // SAFETY: the pages are this part's alone, as a chunk starts at a page and both ends are multiples of a page;
            // nothing reads or writes them any more.
            let _ = unsafe { self.chunk.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
}

/// Cuts nothing more from the current chunk, so that it goes with its parts.
pub(crate) fn close() {
    drop(lock(&CURRENT).take());
}

/// A chunk, and the offset of its first huge page.
fn fresh() -> Option<(Arc<MmapRaw>, usize)> {
    let pages = MmapMut::map_anon(CHUNK + HUGE_PAGE).ok()?;
    // Refusal leaves small pages, which are slower and right all the same.
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
        let mut parts: Vec<Part> = vec![];
        for (n, len) in lens.into_iter().cycle().take(3 * lens.len()).enumerate() {
            let mut part = Part::cut(len).unwrap();
            assert_eq!((part.bytes, part.start().align_offset(64)), (len, 0));
            assert!(bytes(&mut part).iter().all(|&byte| byte == 0), "{n}");
            bytes(&mut part).fill(n as u8 + 1);
            parts.push(part);
            if n % 3 == 2 {
                // Nothing that was dropped is handed out again.
                drop(parts.remove(n / 6));
            }
            if n == lens.len() {
                close();
            }
        }
        for part in &mut parts {
            let first = bytes(part)[0];
            assert!(first != 0 && bytes(part).iter().all(|&byte| byte == first), "{first}");
        }
        assert!(Part::cut(CHUNK + 1).is_none());
    }

    #[test]
    fn pages_go_back_when_their_part_is_dropped_and_no_others() {
        let lens = [64, 3 << 20, 192];
        let mut parts = lens.map(|len| Part::cut(len).unwrap());
        // Others may cut meanwhile, and a new chunk may begin.
        parts.iter_mut().for_each(|part| bytes(part).fill(7));
        let [mut before, part, mut after] = parts;
        let (chunk, start, len) = (Arc::clone(&part.chunk), part.offset, part.bytes);
        drop(part);
        // SAFETY: the chunk is mapped as long as `chunk` is held, and no other part has these bytes.
        let dropped = unsafe { std::slice::from_raw_parts(chunk.as_mut_ptr().add(start), len) };
        let page = rustix::param::page_size();
        let is_whole_page = |at: usize| {
            let first = (start + at) / page * page;
            first >= start && first + page <= start + len
        };
        // A page that went back reads as zeros. One that a neighbour may use as well is as it was.
        assert!(dropped.iter().enumerate().all(|(at, &byte)| byte == if is_whole_page(at) { 0 } else { 7 }));
        assert!([&mut before, &mut after].into_iter().all(|part| bytes(part).iter().all(|&byte| byte == 7)));
    }
}
