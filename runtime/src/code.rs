//! Executable memory, write xor execute.
//!
//! Guarantees that no page is ever writable and executable: bytes are copied into writable pages, which then become
//! executable and stay so until they are unmapped.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use memmap2::{Mmap, MmapMut};

use crate::error::{Error, Result};

static LIVE_CODE: AtomicUsize = AtomicUsize::new(0);

/// Machine code, mapped for execution.
#[derive(Debug)]
pub struct Code {
    pages: Mmap,
    len: usize,
}

impl Code {
    /// Maps a copy of `bytes` for execution.
    ///
    /// # Errors
    ///
    /// [`Error::Code`] if the system refuses.
    pub fn new(bytes: &[u8]) -> Result<Code> {
        let refused = |error: std::io::Error| Error::Code(error.to_string());
        // A mapping has at least one byte.
        let mut pages = MmapMut::map_anon(bytes.len().max(1)).map_err(refused)?;
        pages[..bytes.len()].copy_from_slice(bytes);
        let pages = pages.make_exec().map_err(refused)?;
        make_visible(&pages);
        LIVE_CODE.fetch_add(bytes.len(), Relaxed);
        Ok(Code { pages, len: bytes.len() })
    }

    /// The address of the byte at `offset`, where a function may start; it is valid while `self` lives.
    ///
    /// # Panics
    ///
    /// Panics if no byte is at `offset`.
    pub fn address(&self, offset: usize) -> *const u8 {
        assert!(offset < self.len.max(1), "offset {offset} is beyond {} bytes of code", self.len);
        self.pages[offset..].as_ptr()
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        LIVE_CODE.fetch_sub(self.len, Relaxed);
    }
}

/// Bytes of machine code that are mapped.
pub fn live_code_bytes() -> usize {
    LIVE_CODE.load(Relaxed)
}

/// Makes new code visible to instruction fetch; x86 keeps its caches coherent by itself.
#[cfg(not(target_arch = "aarch64"))]
fn make_visible(_code: &[u8]) {}

/// Makes new code visible to instruction fetch: cleans the data cache and invalidates the instruction cache by line.
#[cfg(target_arch = "aarch64")]
fn make_visible(code: &[u8]) {
    use std::arch::asm;

    let sizes: u64;
    // SAFETY: CTR_EL0 is readable by user code.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack, preserves_flags)) };
    let data_line = 4_usize << ((sizes >> 16) & 15);
    let code_line = 4_usize << (sizes & 15);
    let start = code.as_ptr() as usize;
    let end = start + code.len();
    for line in (start & !(data_line - 1)..end).step_by(data_line) {
        // SAFETY: cleans a line that holds readable bytes of `code`; memory does not change.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in (start & !(code_line - 1)..end).step_by(code_line) {
        // SAFETY: invalidates a line that holds readable bytes of `code`; memory does not change.
        unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// A function that returns 42.
    #[cfg(target_arch = "x86_64")]
    const ANSWER: &[u8] = &[0xb8, 0x2a, 0, 0, 0, 0xc3];
    #[cfg(target_arch = "aarch64")]
    const ANSWER: &[u8] = &[0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6];

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn code_runs() {
        // Padding in front, so that an offset is used as well.
        let bytes = [&[0_u8; 16], ANSWER].concat();
        let before = live_code_bytes();
        let code = Code::new(&bytes).unwrap();
        assert_eq!(code.len(), bytes.len());
        assert!(live_code_bytes() >= before.min(bytes.len()));
        // SAFETY: the bytes at that offset are a function of the C calling convention without arguments.
        let answer: extern "C" fn() -> i32 = unsafe { std::mem::transmute(code.address(16)) };
        assert_eq!(answer(), 42);
    }

    #[test]
    fn no_code_is_allowed() {
        let code = Code::new(&[]).unwrap();
        assert!(code.is_empty());
        assert!(!code.address(0).is_null());
    }

    #[test]
    fn addresses_end_with_the_code() {
        let code = Code::new(&[0xc3; 5000]).unwrap();
        assert_eq!(code.address(4999) as usize - code.address(0) as usize, 4999);
        assert!(std::panic::catch_unwind(|| code.address(5000)).is_err());
    }
}
