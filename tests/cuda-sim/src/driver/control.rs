//! More C functions, for tests: orders, limits, counters, failures on purpose.

use std::ffi::{c_int, c_uint};

use super::foreign::{Code, Out, Text, write_text};
use super::state::with_state;
use crate::machine::Order;

/// Counts of the driver's work since it was loaded or reset.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kernels executed, those of graphs included.
    pub launches: u64,
    /// Graphs executed.
    pub graph_launches: u64,
    /// Bytes copied from the host to a device.
    pub bytes_to_device: u64,
    /// Bytes copied from a device to the host.
    pub bytes_from_device: u64,
    /// Bytes copied within devices.
    pub bytes_within_device: u64,
    /// Arrays allocated.
    pub allocations: u64,
    /// Modules loaded.
    pub modules: u64,
    /// Arrays that are allocated now, on all devices.
    pub live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Modules that are loaded now.
    pub live_modules: u64,
    /// Graphs that exist now, and those of them that can be launched.
    pub live_graphs: u64,
    /// Events that exist now.
    pub live_events: u64,
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_reset() {
    with_state(|state| {
        state.drain_all();
        state.reset();
    });
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_set_order(blocks: c_int, warps: c_int) {
    with_state(|state| state.order = Order { reverse_blocks: blocks != 0, reverse_warps: warps != 0 });
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_set_dry(is_dry: c_int) {
    with_state(|state| state.is_dry = is_dry != 0);
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_set_capability(device: usize, capability: c_uint) {
    with_state(|state| {
        if let Some(device) = state.devices.get_mut(device) {
            device.capability = capability;
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_add_devices(n: usize) {
    with_state(|state| state.add_devices(n));
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_set_memory(device: usize, bytes: u64) {
    with_state(|state| {
        if let Some(device) = state.devices.get_mut(device) {
            device.limit = bytes;
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_set_strict(address: u64, strict: c_int) -> c_int {
    with_state(|state| state.machine_at(address).is_ok_and(|machine| machine.set_strict(address, strict != 0)).into())
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_fail(name: Text, skip: c_uint, code: c_int) {
    if let Ok(name) = name.read() {
        with_state(|state| state.failures.push((name, skip, Code(code))));
    }
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_counters(to: Out<Counters>) {
    let counters = with_state(|state| {
        let live = |pick: fn(&crate::memory::Global) -> u64| {
            state.devices.iter().map(|device| pick(&device.machine.global)).sum::<u64>()
        };
        Counters {
            live_allocations: live(|global| global.live() as u64),
            live_bytes: live(|global| global.live_bytes),
            live_modules: state.modules.len() as u64,
            live_graphs: (state.graphs.len() + state.execs.len()) as u64,
            live_events: state.events.len() as u64,
            ..state.counters
        }
    });
    to.set_if(counters);
}

#[unsafe(no_mangle)]
extern "C" fn retape_sim_last_fault(to: usize, room: usize) -> usize {
    with_state(|state| write_text(to, room, &state.last_fault))
}

/// A line for each kernel: device, name, launches, instructions of lanes, bytes loaded and stored.
#[unsafe(no_mangle)]
extern "C" fn retape_sim_report(to: usize, room: usize) -> usize {
    let lines = with_state(|state| {
        let mut lines = String::new();
        for (n, device) in state.devices.iter().enumerate() {
            for (name, counts) in device.machine.counts() {
                let crate::machine::Counts { launches, instructions, global_loaded, global_stored, .. } = counts;
                lines += &format!("{n} {name} {launches} {instructions} {global_loaded} {global_stored}\n");
            }
        }
        lines
    });
    write_text(to, room, &lines)
}
