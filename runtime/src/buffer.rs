//! Buffers: uniquely owned, aligned, always initialised host bytes.
//!
//! Guarantees that every byte of a buffer is initialised from the start, so that safe code may read what nobody wrote:
//! memory comes zeroed from the system (`block.rs`), or from the pool, where an earlier buffer left it.
//!
//! Memory of the pool is aligned to 64 bytes. A buffer may also take over the memory of a `Vec`, which keeps owning it:
//! such memory is aligned to 16 bytes, counts as live like the rest, and goes back to where the vector got it, never
//! into the pool. Code on buffers asks for the alignment of an element only: vectors of generated code have 16 bytes,
//! and those of the micro-kernels are loaded and stored by instructions that take any address.

use std::fmt;
use std::ptr::NonNull;
use std::slice;

use crate::block::{ALIGN, Block, SYSTEM_ALIGN};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::idle::IdleLists;
use crate::pool;
use crate::shortage::{Refusal, Shortage};

/// Vectors of fewer bytes are copied: that takes less time than the counters that all threads share.
const ADOPTED: usize = 4 << 10;

thread_local! {
    static LISTS: IdleLists<Buffer> = const { IdleLists::new() };
}

/// Host memory for the elements of one tensor.
///
/// Invariant: the `len` bytes from `start` on are initialised, aligned to 16 bytes and owned by this buffer alone.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    /// The memory; `None` if `len` is zero.
    block: Option<Block>,
}

// SAFETY: a buffer owns its bytes alone, as a `Vec<u8>` does.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only reads its bytes, as a `Vec<u8>` does.
unsafe impl Sync for Buffer {}

/// Converts a number of elements to bytes.
fn bytes_of<T: Element>(n_elements: usize) -> Result<usize> {
    let endless = || Error::Allocation(Shortage::unaddressable(usize::MAX, Device::Cpu));
    n_elements.checked_mul(size_of::<T>()).ok_or_else(endless)
}

impl Buffer {
    const EMPTY: Buffer = Buffer {
        start: NonNull::without_provenance(std::num::NonZero::new(ALIGN).expect("not zero")),
        len: 0,
        block: None,
    };

    /// A buffer of `len` bytes, which the block has.
    fn over(block: Block, len: usize) -> Buffer {
        debug_assert!(block.bytes() >= len);
        Buffer { start: block.start(), len, block: Some(block) }
    }

    /// A buffer of `len` bytes with unspecified contents.
    ///
    /// # Errors
    ///
    /// [`Error::Allocation`] if the memory limit or the system refuses.
    pub fn alloc(len: usize) -> Result<Buffer> {
        Buffer::obtain(len).map(|(buffer, _)| buffer)
    }

    /// Buffers of these numbers of bytes with unspecified contents; for many small ones cheaper than one by one.
    ///
    /// # Errors
    ///
    /// As [`Buffer::alloc`].
    pub fn alloc_all(lens: &[usize]) -> Result<Vec<Buffer>> {
        if let &[len] = lens {
            return Ok(vec![Buffer::alloc(len)?]);
        }
        let mut buffers = IdleLists::take(&LISTS, lens.len());
        pool::obtain_small(lens, &mut buffers, |len, block| block.map_or(Buffer::EMPTY, |b| Buffer::over(b, len)));
        for (buffer, &len) in buffers.iter_mut().zip(lens) {
            if buffer.len != len {
                *buffer = Buffer::alloc(len)?;
            }
        }
        Ok(buffers)
    }

    /// Whether a list of [`Buffer::alloc_all`] is worth giving back by [`Buffer::leave_list`].
    #[inline]
    pub fn is_long_list(list: &[Buffer]) -> bool {
        IdleLists::<Buffer>::is_long(list.len())
    }

    /// Takes back the list of [`Buffer::alloc_all`], for the next one on this thread.
    pub fn leave_list(list: Vec<Buffer>) {
        IdleLists::leave(&LISTS, list);
    }

    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    ///
    /// As [`Buffer::alloc`].
    pub fn zeroed(len: usize) -> Result<Buffer> {
        let (mut buffer, is_fresh) = Buffer::obtain(len)?;
        if !is_fresh {
            buffer.bytes_mut().fill(0);
        }
        Ok(buffer)
    }

    /// A buffer that holds a copy of `values`.
    ///
    /// # Errors
    ///
    /// As [`Buffer::alloc`].
    pub fn copy_of<T: Element>(values: &[T]) -> Result<Buffer> {
        let len = bytes_of::<T>(values.len())?;
        // SAFETY: an element is plain old data without padding, so its bytes are initialised and may be read as `u8`;
        // the slice covers exactly `len` bytes.
        Buffer::from_bytes(unsafe { slice::from_raw_parts(values.as_ptr().cast::<u8>(), len) })
    }

    /// A buffer of the elements of a vector, which takes over the vector's memory if that is worth it.
    ///
    /// Vectors below 4 KiB are copied, and so are those with room for more than a quarter beyond their elements, as
    /// the pool would not hold on to so much either, and those that lie at no multiple of 16.
    ///
    /// # Errors
    ///
    /// As [`Buffer::alloc`]; the memory counts as live, and against the memory limit.
    pub fn from_vec<T: Element>(values: Vec<T>) -> Result<Buffer> {
        let (len, held) = (size_of_val(values.as_slice()), values.capacity() * size_of::<T>());
        let is_worth_it =
            len >= ADOPTED && held - len <= len / 4 && values.as_ptr().addr().is_multiple_of(SYSTEM_ALIGN);
        if !is_worth_it {
            return Buffer::copy_of(&values);
        }
        let block = pool::adopt(Block::adopted(values))?;
        Ok(Buffer::over(block, len))
    }

    /// A buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Buffer::alloc`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = Buffer::alloc(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    /// A buffer of `len` bytes, and whether they are fresh, hence zero.
    fn obtain(len: usize) -> Result<(Buffer, bool)> {
        if len == 0 {
            return Ok((Buffer::EMPTY, true));
        }
        let (block, is_fresh) = pool::obtain(len)?;
        Ok((Buffer::over(block, len), is_fresh))
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, a multiple of 16; of 64 unless the memory was a vector's.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The address of the first byte for writing; the writer leaves every byte initialised.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: by the invariant, the bytes are initialised and owned by `self`, which stays borrowed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: by the invariant, the bytes are initialised and owned by `self`, which stays borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The bytes as elements; bytes beyond the last whole element are left out.
    ///
    /// # Panics
    ///
    /// Panics if `T` is `bool`: not every byte is a truth value. Ask [`Buffer::to_vec`], or read `u8`.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert!(T::DTYPE != DType::Bool, "bytes are not viewed as bool, they are converted");
        // SAFETY: the bytes are initialised, and every bit pattern is a valid `T` since `T` is sealed and not `bool`;
        // the alignment of 16 suffices for each element; the borrow is that of `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast::<T>(), self.len / size_of::<T>()) }
    }

    /// The bytes as elements, mutable; bytes beyond the last whole element are left out.
    ///
    /// # Panics
    ///
    /// Panics if `T` is `bool`, as [`Buffer::as_slice`] does.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert!(T::DTYPE != DType::Bool, "bytes are not viewed as bool, they are converted");
        // SAFETY: as in `as_slice`; elements have no padding, so writing one leaves its bytes initialised; the borrow
        // is the unique one of `self`.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast::<T>(), self.len / size_of::<T>()) }
    }

    /// The elements, copied; a `bool` is a byte other than 0.
    ///
    /// # Errors
    ///
    /// [`Error::Allocation`] if the system has no memory for the copy.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = Vec::new();
        let refused = |_| pool::shortage(self.len, pool::live_bytes(), Refusal::System);
        values.try_reserve_exact(self.len / size_of::<T>()).map_err(refused)?;
        match T::DTYPE {
            DType::Bool => values.extend(self.bytes().iter().map(|&byte| T::from_f64(byte.into()))),
            _ => values.extend_from_slice(self.as_slice::<T>()),
        }
        Ok(values)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            pool::give_back(block);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("start", &self.start).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn buffers_are_aligned_and_initialised() {
        let large = if cfg!(miri) { [1000, 1001] } else { [100_003, 5_000_000] };
        for len in [0, 1, 63, 64, 65, 257, 4096].into_iter().chain(large) {
            let buffer = Buffer::alloc(len).unwrap();
            assert_eq!(buffer.as_ptr() as usize % ALIGN, 0, "{len}");
            assert_eq!(buffer.bytes().len(), len);
            // Reads every byte; a checker would object to one that nobody initialised.
            let sum: u64 = buffer.bytes().iter().map(|&byte| u64::from(byte)).sum();
            assert!(sum <= 255 * len as u64);
        }
    }

    #[test]
    fn reused_memory_is_zeroed_on_request() {
        let mut dirty = Buffer::alloc(7777).unwrap();
        dirty.bytes_mut().fill(0xab);
        drop(dirty);
        assert!(Buffer::zeroed(7777).unwrap().bytes().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn elements_survive_the_round_trip() {
        fn check<T: Element>(values: &[T]) {
            let buffer = Buffer::copy_of(values).unwrap();
            assert_eq!(buffer.len(), size_of_val(values));
            assert_eq!(buffer.to_vec::<T>().unwrap(), values);
        }
        check(&[1.5_f32, -0.0, f32::INFINITY]);
        check(&[1.5_f64, f64::MIN_POSITIVE]);
        check(&[f16::from_f64(0.5), f16::MAX]);
        check(&[bf16::from_f64(0.5), bf16::MIN]);
        check(&[i32::MIN, 7]);
        check(&[i64::MAX, -7]);
        check(&[u32::MAX, 7]);
        check(&[255_u8, 0, 1]);
        check(&[true, false, true]);
        check::<f32>(&[]);
    }

    /// A vector whose memory can be taken over: the system's allocator aligns each one so, that of Miri some.
    fn aligned<T>(make: impl Fn() -> Vec<T>) -> Vec<T> {
        // They are held, so that the next one has another address.
        let mut others = vec![];
        loop {
            let values = make();
            if !cfg!(miri) || values.as_ptr().addr().is_multiple_of(SYSTEM_ALIGN) {
                return values;
            }
            others.push(values);
        }
    }

    #[test]
    fn vectors_are_taken_over_where_they_lie() {
        fn check<T: Element>(value: T) {
            let n = ADOPTED / size_of::<T>();
            let values = aligned(|| vec![value; n]);
            let address = values.as_ptr().addr();
            assert!(address.is_multiple_of(SYSTEM_ALIGN), "an allocator that aligns to less has its vectors copied");
            let mut buffer = Buffer::from_vec(values).unwrap();
            assert_eq!((buffer.as_ptr().addr(), buffer.len()), (address, ADOPTED), "{}", T::DTYPE);
            assert_eq!(buffer.to_vec::<T>().unwrap(), vec![value; n]);
            // It can be written, also bytes that are no `T`.
            buffer.bytes_mut().fill(0x7f);
            assert!(buffer.bytes().iter().all(|&byte| byte == 0x7f));
            let moved = std::thread::spawn(move || buffer.as_ptr().addr());
            assert_eq!(moved.join().unwrap(), address);
        }
        check(1.5_f32);
        check(1.5_f64);
        check(f16::from_f64(0.5));
        check(bf16::from_f64(0.5));
        check(-7_i32);
        check(-7_i64);
        check(7_u32);
        check(7_u8);
        check(true);
    }

    #[test]
    fn vectors_with_room_to_spare_are_taken_over_if_it_is_little() {
        let n = ADOPTED;
        for (capacity, is_adopted) in [(n, true), (n + n / 4, true), (n + n / 4 + 1, false)] {
            let values = aligned(|| {
                let mut values: Vec<u32> = Vec::with_capacity(capacity);
                values.extend(0..n as u32);
                values
            });
            if values.capacity() != capacity {
                continue;
            }
            let address = values.as_ptr().addr();
            let buffer = Buffer::from_vec(values).unwrap();
            assert_eq!(buffer.as_ptr().addr() == address, is_adopted, "{capacity}");
            assert!(buffer.as_slice::<u32>().iter().copied().eq(0..n as u32));
        }
        let small = vec![1_u8; ADOPTED - 1];
        let address = small.as_ptr().addr();
        let buffer = Buffer::from_vec(small).unwrap();
        assert!(buffer.as_ptr().addr() != address && buffer.as_ptr().addr().is_multiple_of(ALIGN));
        assert!(Buffer::from_vec(Vec::<f32>::new()).unwrap().is_empty());
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let buffer = Buffer::from_bytes(&[0, 1, 2, 255]).unwrap();
        assert_eq!(buffer.to_vec::<bool>().unwrap(), [false, true, true, true]);
    }

    #[test]
    fn bool_is_never_viewed() {
        let buffer = Buffer::from_bytes(&[2]).unwrap();
        assert!(std::panic::catch_unwind(|| buffer.as_slice::<bool>().len()).is_err());
    }

    #[test]
    fn writes_through_the_slice_reach_the_bytes() {
        let mut buffer = Buffer::zeroed(10).unwrap();
        buffer.as_mut_slice::<u32>().copy_from_slice(&[1, 0x0102_0304]);
        assert_eq!(buffer.as_slice::<u32>(), [1, 0x0102_0304], "the two bytes left over are in no element");
        assert_eq!(buffer.bytes()[8..], [0, 0]);
    }

    #[test]
    fn many_buffers_are_as_good_as_one_by_one() {
        let lens: Vec<usize> = (1..40).chain([64, 256, 0, 300, 64, 5000]).collect();
        for _ in 0..3 {
            let mut buffers = Buffer::alloc_all(&lens).unwrap();
            assert!(buffers.iter().map(Buffer::len).eq(lens.iter().copied()));
            // Each has its own bytes.
            for (n, buffer) in buffers.iter_mut().enumerate() {
                buffer.bytes_mut().fill(n as u8);
            }
            let is_own = |(n, buffer): (usize, &Buffer)| buffer.bytes().iter().all(|&byte| byte == n as u8);
            assert!(buffers.iter().enumerate().all(is_own));
            // The next round has the list again, and most of the blocks.
            Buffer::leave_list(buffers);
        }
        assert_eq!(Buffer::alloc_all(&[]).unwrap().len(), 0);
        assert!(Buffer::alloc_all(&[8, 8, usize::MAX]).is_err());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        // The last two get as far as the system, which an interpreter of the program does not survive.
        let n_sizes = if cfg!(miri) { 2 } else { 4 };
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize / 2, 1 << 60].into_iter().take(n_sizes) {
            assert!(
                matches!(Buffer::alloc(len), Err(Error::Allocation(Shortage { bytes, .. })) if bytes == len),
                "{len}"
            );
        }
    }

    #[test]
    fn buffers_cross_threads() {
        let buffer = Buffer::copy_of(&[1_i32, 2, 3]).unwrap();
        let moved = std::thread::spawn(move || buffer.to_vec::<i32>().unwrap());
        assert_eq!(moved.join().unwrap(), [1, 2, 3]);
    }
}
