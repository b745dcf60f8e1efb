//! Device buffers: uniquely owned bytes on a GPU, aligned to 256.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::gpu::Gpu;
use super::pool::DeviceBlock;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::lock::lock;

/// Memory of a GPU for the elements of one tensor. The contents of a new one are unspecified.
///
/// Dropping it gives the memory to later work, while work that was queued before may still use it.
pub struct DeviceBuffer {
    gpu: Arc<Gpu>,
    len: usize,
    /// The memory; `None` if `len` is zero.
    block: Option<DeviceBlock>,
}

impl DeviceBuffer {
    /// A buffer of `len` bytes with unspecified contents.
    ///
    /// # Errors
    ///
    /// [`Error::Allocation`] if the GPU has too little memory, idle memory of this process included.
    pub fn alloc(gpu: &Arc<Gpu>, len: usize) -> Result<DeviceBuffer> {
        let block = if len == 0 { None } else { Some(gpu.obtain(len)?) };
        Ok(DeviceBuffer { gpu: Arc::clone(gpu), len, block })
    }

    /// A buffer that holds a copy of `bytes`, which are not needed any more when this returns.
    ///
    /// # Errors
    ///
    /// As [`alloc`](DeviceBuffer::alloc) and [`write`](DeviceBuffer::write).
    pub fn from_bytes(gpu: &Arc<Gpu>, bytes: &[u8]) -> Result<DeviceBuffer> {
        let mut buffer = DeviceBuffer::alloc(gpu, bytes.len())?;
        buffer.write(bytes)?;
        Ok(buffer)
    }

    /// Queues a copy of `bytes` into the buffer; they are not needed any more when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if there are not as many bytes as the buffer has, or if earlier work failed.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.verify_len(bytes.len())?;
        self.write_at(0, bytes)
    }

    /// Queues a copy of `bytes` to `offset`, as work of the stream: work queued before sees the old bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if the buffer has too few bytes, or if earlier work failed.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.verify_range("to", offset, bytes.len())?;
        match self.block {
            Some(block) if !bytes.is_empty() => {
                let gpu = &self.gpu;
                let mut staging = lock(&gpu.staging);
                gpu.check(|driver| staging.send(driver, bytes, block.address + offset as u64))
            }
            _ => Ok(()),
        }
    }

    fn verify_range(&self, way: &str, offset: usize, len: usize) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let reason = format!("{len} bytes at {offset} are copied {way} a buffer of {}", self.len);
            return Err(Error::Gpu { device: self.gpu.device(), reason });
        }
        Ok(())
    }

    /// Waits for the work that was queued before and copies the bytes to the host.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if earlier work failed, [`Error::Allocation`] if the host has no memory.
    pub fn to_host(&self) -> Result<Buffer> {
        let mut buffer = Buffer::alloc(self.len)?;
        self.read(buffer.bytes_mut())?;
        Ok(buffer)
    }

    /// Waits for the work that was queued before and copies the bytes into `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if there are not as many bytes as the buffer has, or if earlier work failed.
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        self.verify_len(bytes.len())?;
        self.read_at(0, bytes)
    }

    /// Waits for the work that was queued before and copies the bytes from `offset` on into `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if the buffer has too few bytes, or if earlier work failed.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.verify_range("from", offset, bytes.len())?;
        match self.block {
            Some(block) if !bytes.is_empty() => {
                self.gpu.check(|driver| driver.receive(block.address + offset as u64, bytes))
            }
            _ => Ok(()),
        }
    }

    /// A copy on another GPU, or on the same one; between two, it goes through the host.
    ///
    /// # Errors
    ///
    /// As [`alloc`](DeviceBuffer::alloc) and [`to_host`](DeviceBuffer::to_host).
    pub fn copy_to(&self, gpu: &Arc<Gpu>) -> Result<DeviceBuffer> {
        if !Arc::ptr_eq(gpu, &self.gpu) {
            return DeviceBuffer::from_bytes(gpu, self.to_host()?.bytes());
        }
        let copy = DeviceBuffer::alloc(gpu, self.len)?;
        if let (Some(from), Some(to)) = (self.block, copy.block) {
            gpu.check(|driver| driver.copy(from.address, to.address, self.len))?;
        }
        Ok(copy)
    }

    /// A copy of some of the bytes, on the same GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if the buffer has too few bytes, or earlier work failed; as [`alloc`](DeviceBuffer::alloc).
    pub fn copy_of(&self, bytes: Range<usize>) -> Result<DeviceBuffer> {
        self.verify_range("from", bytes.start, bytes.len())?;
        let copy = DeviceBuffer::alloc(&self.gpu, bytes.len())?;
        if let (Some(from), Some(to)) = (self.block, copy.block) {
            self.gpu.check(|driver| driver.copy(from.address + bytes.start as u64, to.address, bytes.len()))?;
        }
        Ok(copy)
    }

    /// Queues a copy of `len` bytes of the buffer, from one place in it to another; the places do not overlap.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if the buffer has too few bytes, the places overlap, or earlier work failed.
    pub fn copy_within(&self, from: usize, to: usize, len: usize) -> Result<()> {
        self.verify_range("from", from, len)?;
        self.verify_range("to", to, len)?;
        if from.abs_diff(to) < len {
            let reason = format!("{len} bytes at {from} are copied over themselves, to {to}");
            return Err(Error::Gpu { device: self.gpu.device(), reason });
        }
        match self.block {
            Some(DeviceBlock { address, .. }) if len > 0 => {
                self.gpu.check(|driver| driver.copy(address + from as u64, address + to as u64, len))
            }
            _ => Ok(()),
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The address on the GPU, a multiple of 256; 0 if there are no bytes.
    pub fn address(&self) -> u64 {
        self.block.map_or(0, |block| block.address)
    }

    fn verify_len(&self, len: usize) -> Result<()> {
        if len == self.len {
            return Ok(());
        }
        let reason = format!("{len} bytes are copied to or from a buffer of {}", self.len);
        Err(Error::Gpu { device: self.gpu.device(), reason })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.gpu.give_back(block);
        }
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, address, len) = (self.gpu.device(), self.address(), self.len);
        f.debug_struct("DeviceBuffer").field("device", &device).field("address", &address).field("len", &len).finish()
    }
}
