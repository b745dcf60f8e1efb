//! Parameters of nodes of graphs, as the C interface has them, and the work that they stand for.

use std::ffi::{c_int, c_uint};

use super::foreign::{Code, HostFunction, In};
use super::launch_calls::{Shape, prepare};
use super::state::State;
use super::work::Work;

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelParams {
    pub(super) function: usize,
    pub(super) shape: Shape,
    pub(super) pointers: In<usize>,
    pub(super) extra: In<usize>,
    pub(super) kernel: usize,
    pub(super) context: usize,
}

/// One side of a `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) z: usize,
    pub(super) lod: usize,
    pub(super) kind: c_uint,
    pub(super) host: usize,
    pub(super) device: u64,
    pub(super) array: usize,
    pub(super) reserved: usize,
    pub(super) pitch: usize,
    pub(super) height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CopyParams {
    pub(super) from: Side,
    pub(super) to: Side,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SetParams {
    pub(super) at: u64,
    pub(super) pitch: usize,
    pub(super) value: c_uint,
    pub(super) size: c_uint,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HostParams {
    pub(super) run: Option<HostFunction>,
    pub(super) data: usize,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UpdateInfo {
    pub(super) result: c_int,
    pub(super) node: usize,
    pub(super) from: usize,
}

impl KernelParams {
    pub(super) fn work(self, state: &mut State) -> Result<Work, Code> {
        prepare(state, self.function, self.shape, self.pointers, self.extra).map(Work::Launch)
    }
}

impl Side {
    /// Where bytes lie: in memory of the host (kind 1) or of a device (kind 2), or wherever the address says (kind 4).
    pub(super) fn place(self, state: &State) -> Result<Place, Code> {
        if self.y != 0 || self.z != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        match self.kind {
            1 => Ok(Place::Host(self.host + self.x)),
            2 => Ok(Place::Device(self.device + self.x as u64)),
            4 if state.device_of(self.device).is_some() => Ok(Place::Device(self.device + self.x as u64)),
            4 => Ok(Place::Host(self.device as usize + self.x)),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

/// Where bytes lie.
pub(super) enum Place {
    Host(usize),
    Device(u64),
}

impl CopyParams {
    /// A copy of bytes in a row.
    pub(super) fn work(self, state: &State) -> Result<Work, Code> {
        if self.height > 1 || self.depth > 1 {
            return Err(Code::NOT_SUPPORTED);
        }
        let len = self.width;
        Ok(match (self.from.place(state)?, self.to.place(state)?) {
            (Place::Host(from), Place::Device(to)) => Work::CopyIn { to, from, len },
            (Place::Device(from), Place::Host(to)) => Work::CopyOut { to, from, len },
            (Place::Device(from), Place::Device(to)) => Work::CopyWithin { to, from, len },
            (Place::Host(_), Place::Host(_)) => return Err(Code::NOT_SUPPORTED),
        })
    }
}

impl SetParams {
    pub(super) fn work(self) -> Result<Work, Code> {
        if self.height > 1 || !matches!(self.size, 1 | 2 | 4) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Work::Set { at: self.at, value: self.value, size: self.size as usize, count: self.width })
    }
}
