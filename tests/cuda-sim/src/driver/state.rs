//! The driver's state: devices, and the objects behind handles.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use super::control::Counters;
use super::foreign::{Code, Status};
use super::graph::{Exec, Graph};
use super::stream::{Recorded, Stream};
use super::work::Broken;
use crate::kernel::{Kernel, Module};
use crate::machine::{Machine, Order};

/// Devices of this driver, unless a test wants more.
const DEVICES: usize = 2;

/// Devices of this driver at most.
pub(super) const MOST_DEVICES: usize = 16;

/// Memory that a device seems to have.
pub(super) const MEMORY: u64 = 16 << 30;

/// The primary context of device `n` has this handle plus `n`.
const CONTEXTS: usize = 0x100;

/// The null stream of device `n` is kept under this key plus `n`.
const NULL_STREAMS: usize = 0x200;

/// The first handle of everything else.
const FIRST_HANDLE: usize = 0x1000;

/// A device.
pub(super) struct Device {
    pub(super) machine: Machine,
    /// Compute capability times ten.
    pub(super) capability: u32,
    pub(super) limit: u64,
    /// The code of a kernel's fault; stays until a reset.
    pub(super) broken: Option<Code>,
    /// How often the primary context is retained.
    pub(super) retained: u32,
}

/// A module in a context.
pub(super) struct Loaded {
    pub(super) device: usize,
    pub(super) module: Arc<Module>,
}

/// A kernel of a module.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) device: usize,
    pub(super) module: usize,
    pub(super) kernel: Arc<Kernel>,
    /// Dynamic shared memory that a launch may have.
    pub(super) dynamic_limit: u32,
}

/// An event.
#[derive(Default)]
pub(super) struct Event {
    pub(super) device: usize,
    pub(super) recorded: Recorded,
    pub(super) has_time: bool,
    pub(super) time: Option<Instant>,
}

/// Memory of the host that the driver knows: made by it, or registered.
pub(super) struct HostMemory {
    pub(super) len: usize,
    pub(super) flags: u32,
    pub(super) _memory: Option<Box<[u128]>>,
}

/// A link under construction: texts added so far, and the image that came out.
#[derive(Default)]
pub(super) struct Link {
    pub(super) device: usize,
    pub(super) text: Option<Arc<[u8]>>,
    pub(super) image: Option<Box<[u8]>>,
    pub(super) options: super::module_calls::Options,
}

/// Everything.
pub(super) struct State {
    pub(super) is_initialized: bool,
    pub(super) devices: Vec<Device>,
    pub(super) modules: HashMap<usize, Loaded>,
    pub(super) functions: HashMap<usize, Function>,
    pub(super) streams: BTreeMap<usize, Stream>,
    pub(super) events: HashMap<usize, Event>,
    pub(super) graphs: HashMap<usize, Graph>,
    pub(super) execs: HashMap<usize, Arc<Exec>>,
    pub(super) links: HashMap<usize, Link>,
    pub(super) pools: HashMap<usize, usize>,
    pub(super) host: BTreeMap<usize, HostMemory>,
    pub(super) order: Order,
    /// Whether launches are counted and not executed, and memory is addresses only.
    pub(super) is_dry: bool,
    pub(super) counters: Counters,
    pub(super) last_fault: String,
    /// Functions that are to fail: how many calls from now, and with what.
    pub(super) failures: Vec<(String, u32, Code)>,
    next: usize,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

thread_local! {
    /// The contexts of this thread; the last one is current. Zero is none.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(vec![]) };
}

/// Runs a function of the driver: nothing but its code gets out.
pub(super) fn call(name: &str, run: impl FnOnce(&mut State) -> Status) -> c_int {
    let guarded = std::panic::AssertUnwindSafe(|| {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.fails(name)?;
        if !state.is_initialized && !matches!(name, "cuInit" | "cuDriverGetVersion") {
            return Err(Code::NOT_INITIALIZED);
        }
        run(&mut state)
    });
    match std::panic::catch_unwind(guarded) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// For the functions of tests, which work before the driver is initialized.
pub(super) fn with_state<T>(run: impl FnOnce(&mut State) -> T) -> T {
    run(&mut STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

impl State {
    fn new() -> State {
        let mut state = State {
            is_initialized: false,
            devices: vec![],
            modules: HashMap::new(),
            functions: HashMap::new(),
            streams: BTreeMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            links: HashMap::new(),
            pools: HashMap::new(),
            host: BTreeMap::new(),
            order: Order::FORWARD,
            is_dry: false,
            counters: Counters::default(),
            last_fault: String::new(),
            failures: vec![],
            next: FIRST_HANDLE,
        };
        state.add_devices(DEVICES);
        state
    }

    /// Adds devices until there are so many.
    pub(super) fn add_devices(&mut self, n: usize) {
        for n in self.devices.len()..n.min(MOST_DEVICES) {
            let machine = Machine::with_number(n as u32);
            self.devices.push(Device { machine, capability: 90, limit: MEMORY, broken: None, retained: 0 });
            self.streams.insert(NULL_STREAMS + n, Stream::new(n, 0, 0));
        }
    }

    /// Forgets faults, limits, orders and counters; objects and memory stay.
    pub(super) fn reset(&mut self) {
        for device in &mut self.devices {
            device.broken = None;
            device.limit = MEMORY;
            device.capability = 90;
            device.machine.reset_counts();
        }
        self.order = Order::FORWARD;
        self.is_dry = false;
        self.counters = Counters::default();
        self.last_fault.clear();
        self.failures.clear();
    }

    /// Whether a test wants this call to fail.
    fn fails(&mut self, name: &str) -> Status {
        let Some(at) = self.failures.iter().position(|(own, _, _)| own == name) else { return Ok(()) };
        if self.failures[at].1 > 0 {
            self.failures[at].1 -= 1;
            return Ok(());
        }
        Err(self.failures.remove(at).2)
    }

    /// A handle that nothing has had before.
    pub(super) fn handle(&mut self) -> usize {
        self.next += 16;
        self.next
    }

    /// The device of the current context.
    pub(super) fn device(&self) -> Result<usize, Code> {
        self.device_of_context(current())
    }

    /// The device of a context.
    pub(super) fn device_of_context(&self, context: usize) -> Result<usize, Code> {
        match context.checked_sub(CONTEXTS) {
            Some(device) if device < self.devices.len() => Ok(device),
            _ => Err(Code::INVALID_CONTEXT),
        }
    }

    /// The same, if nothing has gone wrong on it.
    pub(super) fn working_device(&self) -> Result<usize, Code> {
        let device = self.device()?;
        self.check_working(device)?;
        Ok(device)
    }

    pub(super) fn check_working(&self, device: usize) -> Status {
        self.devices[device].broken.map_or(Ok(()), Err)
    }

    /// Remembers that work went wrong.
    pub(super) fn break_device(&mut self, device: usize, (code, what): Broken) {
        if self.devices[device].broken.is_none() {
            self.devices[device].broken = Some(code);
            self.last_fault = what;
        }
    }

    /// The device whose memory has an address.
    pub(super) fn device_of(&self, address: u64) -> Option<usize> {
        self.devices.iter().position(|device| device.machine.global.range(address).is_some())
    }

    /// The machine whose memory has an address.
    pub(super) fn machine_at(&mut self, address: u64) -> Result<&mut Machine, Broken> {
        match self.device_of(address) {
            Some(device) => Ok(&mut self.devices[device].machine),
            None => Err((Code::ILLEGAL_ADDRESS, format!("no allocation at {address:#x}"))),
        }
    }

    /// The key of a stream from its handle; the null stream is that of the current context.
    pub(super) fn stream_key(&self, handle: usize) -> Result<usize, Code> {
        if handle <= 2 {
            return Ok(NULL_STREAMS + self.device()?);
        }
        if self.streams.contains_key(&handle) { Ok(handle) } else { Err(Code::INVALID_HANDLE) }
    }

    /// Whether the stream of this key is a null stream.
    pub(super) fn is_null_stream(key: usize) -> bool {
        key < FIRST_HANDLE
    }

    /// The key of a device's null stream.
    pub(super) fn null_stream(device: usize) -> usize {
        NULL_STREAMS + device
    }

    pub(super) fn stream(&mut self, key: usize) -> Result<&mut Stream, Code> {
        self.streams.get_mut(&key).ok_or(Code::INVALID_HANDLE)
    }

    pub(super) fn function(&self, handle: usize) -> Result<&Function, Code> {
        self.functions.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Whether the host memory at an address is pinned.
    pub(super) fn is_pinned(&self, address: usize, len: usize) -> bool {
        let before = self.host.range(..=address).next_back();
        before.is_some_and(|(start, memory)| address + len <= start + memory.len)
    }

    /// Memory for a new array, within the limit of the device.
    pub(super) fn alloc(&mut self, device: usize, bytes: usize) -> Result<u64, Code> {
        let device = &mut self.devices[device];
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if device.machine.global.live_bytes.saturating_add(bytes as u64) > device.limit {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.counters.allocations += 1;
        Ok(match self.is_dry {
            true => device.machine.global.alloc_hollow(bytes),
            false => device.machine.alloc(bytes),
        })
    }
}

/// The handle of a device's primary context.
pub(super) fn context_of(device: usize) -> usize {
    CONTEXTS + device
}

/// The current context of this thread, or zero.
pub(super) fn current() -> usize {
    CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// Makes a context current in the place of another.
pub(super) fn set_current(context: usize) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(context);
    });
}

/// Makes a context current until it is popped.
pub(super) fn push_current(context: usize) {
    CURRENT.with_borrow_mut(|stack| stack.push(context));
}

/// Ends what a push began.
pub(super) fn pop_current() -> Option<usize> {
    CURRENT.with_borrow_mut(Vec::pop)
}
