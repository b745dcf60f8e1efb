//! Global memory: allocations with guard gaps, and a shadow that knows who wrote and who read each byte.
//!
//! Addresses are never used twice, so that an access behind the end of an array or after its release is always seen.
//! The shadow has one tag for four bytes, and four for one byte each where a smaller access came by. Its pages are
//! the operating system's zero pages until they are touched.

use crate::check::{FINE, FIRST_SERIAL, HOST, READER, Tag, Touch, UNTOUCHED, Visitor, WRITER, check};
use crate::fault::{Stop, stop};

/// Where allocations begin; each device has a range of its own.
const FIRST: u64 = 0x7f00_0000_0000;

/// Bytes between the ends of ranges of two devices.
const DEVICE: u64 = 1 << 40;

/// Bytes at least between two allocations.
const GUARD: u64 = 4096;

/// Greatest array that is filled with ones when it is made.
const POISONED: usize = 16 << 20;

/// One allocation.
struct Allocation {
    base: u64,
    len: usize,
    /// None of both for an array that only has an address.
    bytes: Vec<u8>,
    tags: Vec<Tag>,
    fine: Vec<[Tag; 4]>,
    /// Whether reading a byte that nobody wrote is a fault.
    is_strict: bool,
}

/// The memory of a device.
pub(crate) struct Global {
    allocations: Vec<Allocation>,
    freed: Vec<(u64, u64)>,
    next: u64,
    /// The allocation of the last access.
    recent: usize,
    pub(crate) live_bytes: u64,
}

impl Global {
    pub(crate) fn new(device: u64) -> Global {
        Global { allocations: vec![], freed: vec![], next: FIRST + device * DEVICE, recent: 0, live_bytes: 0 }
    }

    /// A new array, whose bytes nobody has written.
    pub(crate) fn alloc(&mut self, bytes: usize) -> u64 {
        // Unwritten bytes are no zeros that a result could pass for; great arrays are left to the system.
        let content = if bytes <= POISONED { 0xff } else { 0 };
        self.place(bytes, vec![content; bytes], vec![UNTOUCHED; bytes.div_ceil(4)])
    }

    /// An array without memory: copies to it are lost, copies from it give zeros, and kernels cannot use it.
    pub(crate) fn alloc_hollow(&mut self, bytes: usize) -> u64 {
        self.place(bytes, vec![], vec![])
    }

    fn place(&mut self, len: usize, bytes: Vec<u8>, tags: Vec<Tag>) -> u64 {
        let base = self.next;
        self.next += (len.max(1) as u64).next_multiple_of(512) + GUARD;
        self.allocations.push(Allocation { base, len, bytes, tags, fine: vec![], is_strict: true });
        self.live_bytes += len as u64;
        base
    }

    /// Gives an array back; false if none begins there.
    pub(crate) fn free(&mut self, base: u64) -> bool {
        let Ok(index) = self.allocations.binary_search_by_key(&base, |allocation| allocation.base) else {
            return false;
        };
        let allocation = self.allocations.remove(index);
        self.freed.push((base, allocation.len as u64));
        self.live_bytes -= allocation.len as u64;
        self.recent = 0;
        true
    }

    pub(crate) fn live(&self) -> usize {
        self.allocations.len()
    }

    /// Beginning and size of the allocation around an address.
    pub(crate) fn range(&self, address: u64) -> Option<(u64, usize)> {
        let index = self.index_of(address)?;
        Some((self.allocations[index].base, self.allocations[index].len))
    }

    /// Whether reading bytes of this array that nobody wrote is a fault.
    pub(crate) fn set_strict(&mut self, base: u64, is_strict: bool) -> bool {
        let found = self.allocations.iter_mut().find(|allocation| allocation.base == base);
        found.map(|allocation| allocation.is_strict = is_strict).is_some()
    }

    /// The allocation that begins at or before the address.
    fn index_of(&self, address: u64) -> Option<usize> {
        let index = self.allocations.partition_point(|allocation| allocation.base <= address).checked_sub(1)?;
        let allocation = &self.allocations[index];
        (address - allocation.base < allocation.len.max(1) as u64).then_some(index)
    }

    /// The allocation that holds all these bytes, and where they begin in it.
    #[inline(always)]
    fn find(&mut self, address: u64, len: usize) -> Result<(usize, usize), Stop> {
        if let Some(allocation) = self.allocations.get(self.recent) {
            let offset = address.wrapping_sub(allocation.base);
            if offset < allocation.len as u64 && len as u64 <= allocation.len as u64 - offset {
                return Ok((self.recent, offset as usize));
            }
        }
        self.find_elsewhere(address, len)
    }

    #[cold]
    fn find_elsewhere(&mut self, address: u64, len: usize) -> Result<(usize, usize), Stop> {
        let before = self.allocations.partition_point(|allocation| allocation.base <= address).checked_sub(1);
        if let Some(index) = before
            && let allocation = &self.allocations[index]
            && address - allocation.base + len as u64 <= allocation.len as u64
        {
            self.recent = index;
            return Ok((index, (address - self.allocations[index].base) as usize));
        }
        stop(self.nothing_there(before, address, len))
    }

    /// Why no allocation, of which one may begin before the address, holds all these bytes.
    fn nothing_there(&self, before: Option<usize>, address: u64, len: usize) -> String {
        if let Some((base, size)) = self.freed.iter().find(|(base, size)| address.wrapping_sub(*base) < *size) {
            return format!("global access after free: {len} bytes at {} of {size}", address - base);
        }
        let Some(index) = before else {
            return format!("global access out of bounds: {len} bytes at {address:#x}, where nothing is");
        };
        let (offset, size) = (address - self.allocations[index].base, self.allocations[index].len);
        let next = self.allocations.get(index + 1);
        let is_nearer_to_next = next.is_some_and(|next| next.base - address <= GUARD / 2);
        match next.filter(|_| is_nearer_to_next) {
            Some(next) => {
                let (before, size) = (next.base - address, next.len);
                format!("global access out of bounds: {len} bytes {before} before an allocation of {size}")
            }
            None => format!("global access out of bounds: {len} bytes at {offset} of an allocation of {size}"),
        }
    }

    /// Bytes that a kernel accesses, after the checks of its kind.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        address: u64,
        len: usize,
        touch: Touch,
        visitor: Visitor<'_>,
    ) -> Result<&mut [u8], Stop> {
        let (index, offset) = self.find(address, len)?;
        let allocation = &mut self.allocations[index];
        if allocation.is_hollow() {
            return stop("global access to an array without memory");
        }
        if offset.is_multiple_of(4) && len.is_multiple_of(4) {
            for granule in offset / 4..(offset + len) / 4 {
                let tag = &mut allocation.tags[granule];
                if tag[WRITER] == FINE {
                    allocation.check_bytes(granule, 0..4, touch, visitor)?;
                } else if let Err(what) = check(tag, touch, visitor, allocation.is_strict) {
                    return stop(format!("{what} at byte {}", 4 * granule));
                }
            }
        } else {
            for granule in offset / 4..(offset + len).div_ceil(4) {
                let bytes = offset.max(4 * granule) - 4 * granule..(offset + len).min(4 * granule + 4) - 4 * granule;
                allocation.check_bytes(granule, bytes, touch, visitor)?;
            }
        }
        Ok(&mut allocation.bytes[offset..offset + len])
    }

    /// Copies bytes from the host, or from a copy of other memory.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Stop> {
        self.fill(address, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// Lets the host write so many bytes.
    pub(crate) fn fill(&mut self, address: u64, len: usize, write: impl FnOnce(&mut [u8])) -> Result<(), Stop> {
        if len == 0 {
            return Ok(());
        }
        let (index, offset) = self.find(address, len)?;
        let allocation = &mut self.allocations[index];
        if allocation.is_hollow() {
            return Ok(());
        }
        write(&mut allocation.bytes[offset..offset + len]);
        let whole = offset.div_ceil(4)..(offset + len) / 4;
        let host = [HOST, 0, 0, 0, 0];
        if whole.start < whole.end {
            allocation.tags[whole.clone()].fill(host);
        }
        for granule in [offset / 4, (offset + len - 1) / 4] {
            let bytes = offset.max(4 * granule) - 4 * granule..(offset + len).min(4 * granule + 4) - 4 * granule;
            if !whole.contains(&granule) {
                allocation.split(granule)[bytes].fill(host);
            }
        }
        Ok(())
    }

    /// Copies bytes to the host.
    pub(crate) fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Stop> {
        if to.is_empty() {
            return Ok(());
        }
        let (index, offset) = self.find(address, to.len())?;
        match self.allocations[index].is_hollow() {
            true => to.fill(0),
            false => to.copy_from_slice(&self.allocations[index].bytes[offset..offset + to.len()]),
        }
        Ok(())
    }

    /// Copies bytes within the device; those that nobody wrote stay so.
    pub(crate) fn copy(&mut self, to: u64, from: u64, len: usize) -> Result<(), Stop> {
        if len == 0 {
            return Ok(());
        }
        let (source, start) = self.find(from, len)?;
        let allocation = &self.allocations[source];
        if allocation.is_hollow() {
            return Ok(());
        }
        let bytes = allocation.bytes[start..start + len].to_vec();
        let written: Vec<bool> = (start..start + len).map(|byte| allocation.is_written(byte)).collect();
        self.fill(to, len, |to| to.copy_from_slice(&bytes))?;
        if written.iter().all(|written| *written) {
            return Ok(());
        }
        let (index, offset) = self.find(to, len)?;
        if self.allocations[index].is_hollow() {
            return Ok(());
        }
        for (n, _) in written.iter().enumerate().filter(|(_, written)| !**written) {
            let byte = offset + n;
            self.allocations[index].split(byte / 4)[byte % 4] = UNTOUCHED;
        }
        Ok(())
    }

    /// Forgets which block touched what, when the serial numbers begin anew.
    pub(crate) fn forget_blocks(&mut self) {
        let forget = |tag: &mut Tag| {
            tag[READER] = 0;
            if tag[WRITER] >= FIRST_SERIAL {
                tag[WRITER] = HOST;
            }
        };
        for allocation in &mut self.allocations {
            allocation.tags.iter_mut().for_each(forget);
            allocation.fine.iter_mut().flatten().for_each(forget);
        }
    }
}

impl Allocation {
    /// Whether it has an address and no memory.
    fn is_hollow(&self) -> bool {
        self.bytes.len() < self.len
    }

    /// The tags of four single bytes.
    fn split(&mut self, granule: usize) -> &mut [Tag; 4] {
        if self.fine.is_empty() {
            self.fine = vec![[UNTOUCHED; 4]; self.tags.len()];
        }
        let tag = self.tags[granule];
        if tag[WRITER] != FINE {
            self.fine[granule] = [tag; 4];
            self.tags[granule][WRITER] = FINE;
        }
        &mut self.fine[granule]
    }

    #[inline(never)]
    fn check_bytes(
        &mut self,
        granule: usize,
        bytes: std::ops::Range<usize>,
        touch: Touch,
        visitor: Visitor<'_>,
    ) -> Result<(), Stop> {
        let is_strict = self.is_strict;
        let tags = self.split(granule);
        for byte in bytes {
            check(&mut tags[byte], touch, visitor, is_strict)
                .or_else(|what| stop(format!("{what} at byte {}", 4 * granule + byte)))?;
        }
        Ok(())
    }

    fn is_written(&self, byte: usize) -> bool {
        match self.tags[byte / 4][WRITER] {
            FINE => self.fine[byte / 4][byte % 4][WRITER] != 0,
            writer => writer != 0,
        }
    }
}
