//! A device: its memory, and launches of kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::FIRST_SERIAL;
use crate::exec::{self, Launch};
use crate::fault::Fault;
use crate::kernel::{Kernel, Module, ModuleData};
use crate::memory::Global;
use crate::shared::Shared;

/// Shared memory that a block may have without asking for more.
pub const PLAIN_SHARED: u32 = 48 << 10;

/// Shared memory that a block may have at all.
pub const MAX_SHARED: u32 = 227 << 10;

/// In which order blocks of a grid, and warps of a block between two barriers, run one after the other.
///
/// A kernel whose results depend on it is not deterministic on hardware, which promises no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The last block first.
    pub reverse_blocks: bool,
    /// The last warp first.
    pub reverse_warps: bool,
}

impl Order {
    /// The first of everything first.
    pub const FORWARD: Order = Order { reverse_blocks: false, reverse_warps: false };

    /// The last of everything first.
    pub const REVERSE: Order = Order { reverse_blocks: true, reverse_warps: true };

    /// All four orders.
    pub const ALL: [Order; 4] = [
        Order::FORWARD,
        Order { reverse_blocks: true, reverse_warps: false },
        Order { reverse_blocks: false, reverse_warps: true },
        Order::REVERSE,
    ];
}

/// Extents of a grid or of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim3(pub [u32; 3]);

impl From<u32> for Dim3 {
    fn from(x: u32) -> Dim3 {
        Dim3([x, 1, 1])
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Dim3 {
        Dim3([x, y, z])
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from(extents: [u32; 3]) -> Dim3 {
        Dim3(extents)
    }
}

/// Counts of the work of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Launches.
    pub launches: u64,
    /// Instructions executed, once for each active lane.
    pub instructions: u64,
    /// Instructions executed, once for each warp.
    pub warp_instructions: u64,
    /// Bytes loaded from global memory.
    pub global_loaded: u64,
    /// Bytes stored to global memory.
    pub global_stored: u64,
}

/// A device with memory of its own.
pub struct Machine {
    pub(crate) global: Global,
    shared: Shared,
    serial: u32,
    counts: BTreeMap<String, Counts>,
    branch_limit: u64,
    /// Addresses of the global arrays of modules, found by the address of the module's data.
    resident: Vec<(Arc<ModuleData>, Vec<u64>)>,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl Machine {
    /// A device whose memory is empty.
    pub fn new() -> Machine {
        Machine::with_number(0)
    }

    /// As [`Machine::new`], with addresses that no machine of another number has.
    pub fn with_number(number: u32) -> Machine {
        Machine {
            global: Global::new(u64::from(number)),
            shared: Shared::default(),
            serial: FIRST_SERIAL,
            counts: BTreeMap::new(),
            branch_limit: 1 << 32,
            resident: vec![],
        }
    }

    /// A new array of global memory; its bytes count as never written.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        self.global.alloc(bytes)
    }

    /// Gives an array back. False if none begins at this address.
    pub fn free(&mut self, address: u64) -> bool {
        self.global.free(address)
    }

    /// Sets whether a kernel that reads bytes of this array that nobody wrote is at fault, which is so from the start.
    pub fn set_strict(&mut self, address: u64, is_strict: bool) -> bool {
        self.global.set_strict(address, is_strict)
    }

    /// Copies bytes to the device.
    ///
    /// # Errors
    ///
    /// Fails if they do not lie within one array.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.global.write(address, bytes).map_err(|what| host_fault(*what))
    }

    /// Copies bytes from the device.
    ///
    /// # Errors
    ///
    /// Fails if they do not lie within one array.
    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.global.read(address, to).map_err(|what| host_fault(*what))
    }

    /// Copies bytes within the device.
    ///
    /// # Errors
    ///
    /// Fails if source or destination do not lie within one array each.
    pub fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<(), Fault> {
        self.global.copy(to, from, bytes).map_err(|what| host_fault(*what))
    }

    /// A new array with these values.
    pub fn put<T: Plain>(&mut self, values: &[T]) -> u64 {
        let bytes = T::to_bytes(values);
        let address = self.alloc(bytes.len());
        self.write(address, &bytes).expect("the array has just been made for them");
        address
    }

    /// Reads `len` values from the device.
    ///
    /// # Errors
    ///
    /// Fails if they do not lie within one array.
    pub fn get<T: Plain>(&mut self, address: u64, len: usize) -> Result<Vec<T>, Fault> {
        let mut bytes = vec![0; len * size_of::<T>()];
        self.read(address, &mut bytes)?;
        Ok(T::from_bytes(&bytes))
    }

    /// Sets after how many branches of its warps a launch counts as one that never ends.
    pub fn set_branch_limit(&mut self, branches: u64) {
        self.branch_limit = branches;
    }

    /// The counts so far of the kernels of each name.
    pub fn counts(&self) -> &BTreeMap<String, Counts> {
        &self.counts
    }

    /// Begins to count anew.
    pub fn reset_counts(&mut self) {
        self.counts.clear();
    }

    /// Runs a kernel. Each argument is the bits of a parameter, the lowest first.
    ///
    /// # Errors
    ///
    /// Fails at the first thing that the kernel does wrong, or if it cannot be launched so.
    #[allow(clippy::too_many_arguments, reason = "what every launch has, in the usual order")]
    pub fn launch(
        &mut self,
        module: &Module,
        name: &str,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        dynamic_shared: u32,
        args: &[u64],
        order: Order,
    ) -> Result<(), Fault> {
        let fault = |what: String| Fault { kernel: name.to_owned(), line: 0, text: String::new(), what };
        let kernel = module.kernel(name).ok_or_else(|| fault("no kernel of this name".to_owned()))?;
        if args.len() != kernel.params.len() {
            return Err(fault(format!("{} parameters, and {} arguments", kernel.params.len(), args.len())));
        }
        let mut bytes = vec![0; kernel.param_bytes];
        for (param, arg) in kernel.params.iter().zip(args) {
            let len = param.bytes.min(8);
            bytes[param.offset..param.offset + len].copy_from_slice(&arg.to_le_bytes()[..len]);
        }
        self.launch_bytes(kernel, grid.into(), block.into(), dynamic_shared, &bytes, order)
    }

    /// As [`Machine::launch`], with all parameters as one array of bytes.
    ///
    /// # Errors
    ///
    /// Fails at the first thing that the kernel does wrong, or if it cannot be launched so.
    pub fn launch_bytes(
        &mut self,
        kernel: &Arc<Kernel>,
        grid: Dim3,
        block: Dim3,
        dynamic_shared: u32,
        params: &[u8],
        order: Order,
    ) -> Result<(), Fault> {
        let fault = |what: String| Fault { kernel: kernel.name.clone(), line: 0, text: String::new(), what };
        kernel.check_launch(grid.0, block.0, dynamic_shared, params.len()).map_err(fault)?;
        let globals = self.globals_of(&kernel.data);
        let blocks: u32 = grid.0.iter().product();
        if u32::MAX / 2 - self.serial <= blocks {
            self.global.forget_blocks();
            self.serial = FIRST_SERIAL;
        }
        let first = self.serial;
        self.serial += blocks + 1;
        let counts = self.counts.entry(kernel.name.clone()).or_default();
        counts.launches += 1;
        let branch_limit = self.branch_limit;
        let (grid, block) = (grid.0, block.0);
        let launch = Launch { kernel, grid, block, dynamic_shared, params, globals: &globals, order, branch_limit };
        exec::run(&launch, &mut self.global, &mut self.shared, counts, first)
    }

    /// Addresses of the global arrays of a module, which are made when it is first used.
    pub(crate) fn globals_of(&mut self, data: &Arc<ModuleData>) -> Vec<u64> {
        if let Some((_, found)) = self.resident.iter().find(|(own, _)| Arc::ptr_eq(own, data)) {
            return found.clone();
        }
        let mut addresses = vec![];
        for array in &data.globals {
            let address = self.alloc(array.bytes);
            let zeros = || vec![0; array.bytes];
            let initial = array.initial.clone().unwrap_or_else(zeros);
            self.write(address, &initial).expect("the array has just been made for them");
            addresses.push(address);
        }
        if !addresses.is_empty() {
            self.resident.push((Arc::clone(data), addresses.clone()));
        }
        addresses
    }
}

fn host_fault(what: String) -> Fault {
    Fault { kernel: "copy".to_owned(), line: 0, text: String::new(), what }
}

impl Kernel {
    /// Checks a launch against the kernel and the limits of a device.
    pub(crate) fn check_launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
        param_bytes: usize,
    ) -> Result<(), String> {
        let threads = block.iter().map(|extent| u64::from(*extent)).product::<u64>();
        if grid.contains(&0) || block.contains(&0) {
            return Err(format!("an empty launch: grid {grid:?}, block {block:?}"));
        }
        if threads > 1024 || block[2] > 64 {
            return Err(format!("a block of {block:?} threads"));
        }
        if grid[0] > i32::MAX as u32 || grid[1] > 65535 || grid[2] > 65535 {
            return Err(format!("a grid of {grid:?} blocks"));
        }
        if grid.iter().map(|extent| u64::from(*extent)).product::<u64>() > 1 << 30 {
            return Err(format!("a grid of {grid:?} blocks is more than this machine runs"));
        }
        if let Some(required) = self.required_block.filter(|required| *required != block) {
            return Err(format!("a block of {block:?} threads, and .reqntid says {required:?}"));
        }
        if let Some(max) = self
            .max_block
            .filter(|max| max.iter().map(|extent| u64::from(*extent)).fold(1, u64::saturating_mul) < threads)
        {
            return Err(format!("a block of {block:?} threads, and .maxntid says {max:?}"));
        }
        let shared = u64::from(self.shared_bytes.next_multiple_of(16)) + u64::from(dynamic_shared);
        if shared > u64::from(MAX_SHARED) {
            let own = self.shared_bytes;
            return Err(format!("{own} bytes of static and {dynamic_shared} of dynamic shared memory are too many"));
        }
        if param_bytes != self.param_bytes {
            return Err(format!("{param_bytes} bytes of parameters, {} are needed", self.param_bytes));
        }
        Ok(())
    }
}

/// A number with bytes of a fixed order.
///
/// Whole slices are converted here, where the code is optimised even in the tests of other packages.
pub trait Plain: Copy {
    /// The bytes of all values, the lowest first.
    fn to_bytes(values: &[Self]) -> Vec<u8>;
    /// The values of these bytes.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! plain {
    ($($ty:ty)*) => { $(
        impl Plain for $ty {
            fn to_bytes(values: &[$ty]) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(size_of_val(values));
                for value in values {
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
                bytes
            }

            fn from_bytes(bytes: &[u8]) -> Vec<$ty> {
                bytes.as_chunks().0.iter().map(|bytes| <$ty>::from_le_bytes(*bytes)).collect()
            }
        }
    )* };
}

plain! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }
