//! The work that streams queue and graphs hold, and how it is done.

use std::sync::Arc;

use super::foreign::{Code, HostFunction, read_host, write_host};
use super::graph::Exec;
use super::state::State;
use crate::fault::Fault;
use crate::kernel::Kernel;
use crate::machine::Dim3;

/// One piece of work.
#[derive(Clone)]
pub(super) enum Work {
    Launch(Launch),
    /// From memory of the host, at this address when the work is done.
    CopyIn {
        to: u64,
        from: usize,
        len: usize,
    },
    /// Bytes that were taken when the call was made.
    CopyBytes {
        to: u64,
        bytes: Vec<u8>,
    },
    CopyOut {
        to: usize,
        from: u64,
        len: usize,
    },
    CopyWithin {
        to: u64,
        from: u64,
        len: usize,
    },
    Set {
        at: u64,
        value: u32,
        size: usize,
        count: usize,
    },
    Host {
        run: HostFunction,
        data: usize,
    },
    Graph(Arc<Exec>),
    Free(u64),
    /// Notes the time for an event.
    Record(usize),
    /// Waits until a stream has done its work up to a number.
    Wait {
        stream: usize,
        until: u64,
    },
    Nothing,
}

/// A launch of a kernel.
#[derive(Clone)]
pub(super) struct Launch {
    pub(super) kernel: Arc<Kernel>,
    /// The handle of the function, for those who ask a node.
    pub(super) function: usize,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) params: Vec<u8>,
}

/// Why work could not be done: the code that sticks, and the message.
pub(super) type Broken = (Code, String);

impl State {
    /// Does a piece of work on a device; waiting is not its matter.
    pub(super) fn perform(&mut self, device: usize, work: &Work) -> Result<(), Broken> {
        let broken = |fault: Fault| (code_of(&fault), fault.to_string());
        match work {
            Work::Launch(launch) => {
                self.counters.launches += 1;
                if self.is_dry {
                    return Ok(());
                }
                let order = self.order;
                let machine = &mut self.devices[device].machine;
                let (grid, block) = (Dim3(launch.grid), Dim3(launch.block));
                machine.launch_bytes(&launch.kernel, grid, block, launch.shared, &launch.params, order).map_err(broken)
            }
            Work::CopyIn { to, from, len } => {
                let bytes = read_host(*from, *len).map_err(|code| (code, "a copy from nowhere".to_owned()))?;
                self.copy_in(*to, &bytes)
            }
            Work::CopyBytes { to, bytes } => self.copy_in(*to, bytes),
            Work::CopyOut { to, from, len } => {
                self.counters.bytes_from_device += *len as u64;
                let mut bytes = vec![0; *len];
                self.machine_at(*from)?.read(*from, &mut bytes).map_err(broken)?;
                write_host(*to, &bytes).map_err(|code| (code, "a copy to nowhere".to_owned()))
            }
            Work::CopyWithin { to, from, len } => self.copy_within(*to, *from, *len),
            Work::Set { at, value, size, count } => {
                let element = value.to_le_bytes();
                let machine = self.machine_at(*at)?;
                let fill = |bytes: &mut [u8]| {
                    bytes.chunks_exact_mut(*size).for_each(|to| to.copy_from_slice(&element[..*size]))
                };
                let done = machine.global.fill(*at, size * count, fill);
                done.map_err(|what| (Code::ILLEGAL_ADDRESS, format!("memset: {what}")))
            }
            Work::Host { run, data } => {
                run(*data as *mut std::ffi::c_void);
                Ok(())
            }
            Work::Graph(exec) => {
                self.counters.graph_launches += 1;
                for index in exec.sequence(self.order.reverse_blocks) {
                    self.perform(device, &exec.nodes[index].work)?;
                }
                Ok(())
            }
            Work::Free(address) => {
                self.machine_at(*address)?.free(*address);
                Ok(())
            }
            Work::Record(event) => {
                if let Some(event) = self.events.get_mut(event) {
                    event.time = Some(std::time::Instant::now());
                }
                Ok(())
            }
            Work::Wait { .. } | Work::Nothing => Ok(()),
        }
    }

    fn copy_in(&mut self, to: u64, bytes: &[u8]) -> Result<(), Broken> {
        self.counters.bytes_to_device += bytes.len() as u64;
        self.machine_at(to)?.write(to, bytes).map_err(|fault| (code_of(&fault), fault.to_string()))
    }

    fn copy_within(&mut self, to: u64, from: u64, len: usize) -> Result<(), Broken> {
        let broken = |fault: Fault| (code_of(&fault), fault.to_string());
        self.counters.bytes_within_device += len as u64;
        if self.device_of(to) == self.device_of(from) {
            return self.machine_at(to)?.copy(to, from, len).map_err(broken);
        }
        let mut bytes = vec![0; len];
        self.machine_at(from)?.read(from, &mut bytes).map_err(broken)?;
        self.machine_at(to)?.write(to, &bytes).map_err(broken)
    }
}

/// The code under which hardware would report a fault.
fn code_of(fault: &Fault) -> Code {
    if fault.what.starts_with("misaligned") {
        Code::MISALIGNED_ADDRESS
    } else if fault.what.starts_with("trap") {
        Code::LAUNCH_FAILED
    } else {
        Code::ILLEGAL_ADDRESS
    }
}
