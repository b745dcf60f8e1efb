//! Where the bytes of a tensor are: in main memory, or on a GPU.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use retape_kernels::{AnyInput, Input};
use retape_runtime::{Buffer, Device, DeviceBuffer, Gpu};

use crate::error::Result;

/// The bytes of a tensor.
#[derive(Debug)]
pub(crate) enum Memory {
    Host(Buffer),
    Device(Box<OnDevice>),
}

/// Bytes on a GPU, and a copy of them once somebody has asked for one: tensors do not change.
#[derive(Debug)]
pub(crate) struct OnDevice {
    buffer: DeviceBuffer,
    copy: OnceLock<Buffer>,
}

impl Memory {
    pub(crate) fn device(&self) -> Device {
        match self {
            Memory::Host(_) => Device::Cpu,
            Memory::Device(on) => on.buffer.gpu().device(),
        }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Memory::Host(buffer) => buffer.len(),
            Memory::Device(on) => on.buffer.len(),
        }
    }

    /// The bytes in main memory. Those on a GPU are copied once the work that makes them is done.
    pub(crate) fn on_host(&self) -> Result<&Buffer> {
        match self {
            Memory::Host(buffer) => Ok(buffer),
            Memory::Device(on) => match on.copy.get() {
                Some(copy) => Ok(copy),
                None => {
                    let copy = on.buffer.to_host()?;
                    Ok(on.copy.get_or_init(|| copy))
                }
            },
        }
    }

    /// Lets `look` read the bytes in main memory; a copy of those on a GPU is made for that, and not kept.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        Ok(match self {
            Memory::Host(buffer) => look(buffer.bytes()),
            Memory::Device(on) => match on.copy.get() {
                Some(copy) => look(copy.bytes()),
                None => look(on.buffer.to_host()?.bytes()),
            },
        })
    }

    /// A copy of the bytes on a device.
    pub(crate) fn copied_to(&self, device: Device) -> Result<Memory> {
        match (self, device) {
            (_, Device::Cpu) => Ok(Buffer::from_bytes(self.on_host()?.bytes())?.into()),
            (Memory::Host(buffer), device) => Ok(DeviceBuffer::from_bytes(&gpu(device)?, buffer.bytes())?.into()),
            (Memory::Device(on), device) => Ok(on.buffer.copy_to(&gpu(device)?)?.into()),
        }
    }

    /// A copy of some of the bytes, where they are.
    pub(crate) fn cut(&self, bytes: Range<usize>) -> Result<Memory> {
        match self {
            Memory::Host(buffer) => Ok(Buffer::from_bytes(&buffer.bytes()[bytes])?.into()),
            Memory::Device(on) => Ok(on.buffer.copy_of(bytes)?.into()),
        }
    }

    #[inline]
    pub(crate) fn as_host(&self) -> Option<&Buffer> {
        match self {
            Memory::Host(buffer) => Some(buffer),
            Memory::Device(_) => None,
        }
    }

    pub(crate) fn as_device(&self) -> Option<&DeviceBuffer> {
        match self {
            Memory::Host(_) => None,
            Memory::Device(on) => Some(&on.buffer),
        }
    }

    /// The bytes as an input that results may be written over; a copy of those on a GPU goes.
    pub(crate) fn donated(self) -> AnyInput<'static> {
        match self {
            Memory::Host(buffer) => AnyInput::Host(Input::donated(buffer)),
            Memory::Device(on) => AnyInput::Gpu(Input::donated(on.buffer)),
        }
    }
}

impl From<Buffer> for Memory {
    #[inline]
    fn from(buffer: Buffer) -> Memory {
        Memory::Host(buffer)
    }
}

impl From<DeviceBuffer> for Memory {
    fn from(buffer: DeviceBuffer) -> Memory {
        Memory::Device(Box::new(OnDevice { buffer, copy: OnceLock::new() }))
    }
}

/// The GPU that a device is.
pub(crate) fn gpu(device: Device) -> Result<Arc<Gpu>> {
    match device {
        Device::Cuda(ordinal) => Ok(Gpu::open(ordinal)?),
        other => Err(crate::Error::Internal(format!("{other} is no GPU"))),
    }
}
