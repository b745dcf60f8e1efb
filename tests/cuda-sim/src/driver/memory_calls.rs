//! Memory of devices and of the host, copies, fills, pools.

#![allow(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{c_int, c_uchar, c_uint, c_ushort};

use super::foreign::{Code, In, Out, Status, read_host};
use super::state::{HostMemory, State, call};
use super::work::Work;

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(to: Out<u64>, bytes: usize) -> c_int {
    call("cuMemAlloc_v2", |state| {
        state.check_no_capture()?;
        let device = state.working_device()?;
        to.set(state.alloc(device, bytes)?)
    })
}

/// Waits for all work of the device first, as hardware does.
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    call("cuMemFree_v2", |state| {
        if address == 0 {
            return Ok(());
        }
        state.check_no_capture()?;
        let device = state.device_of(address).ok_or(Code::INVALID_VALUE)?;
        let drained = state.drain_device(device);
        if !state.devices[device].machine.free(address) {
            return Err(Code::INVALID_VALUE);
        }
        drained
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(to: Out<u64>, bytes: usize, stream: usize) -> c_int {
    call("cuMemAllocAsync", |state| alloc_on(state, to, bytes, stream))
}

fn alloc_on(state: &mut State, to: Out<u64>, bytes: usize, stream: usize) -> Status {
    let key = state.stream_key(stream)?;
    state.check_not_capturing(key)?;
    let device = state.stream(key)?.device;
    state.check_working(device)?;
    to.set(state.alloc(device, bytes)?)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> c_int {
    call("cuMemFreeAsync", |state| {
        if address == 0 {
            return Ok(());
        }
        let device = state.device_of(address).ok_or(Code::INVALID_VALUE)?;
        if state.devices[device].machine.global.range(address).map(|(base, _)| base) != Some(address) {
            return Err(Code::INVALID_VALUE);
        }
        let key = state.stream_key(stream)?;
        state.enqueue(key, Work::Free(address))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> c_int {
    call("cuMemGetInfo_v2", |state| {
        let device = state.device()?;
        let device = &state.devices[device];
        free.set(device.limit.saturating_sub(device.machine.global.live_bytes) as usize)?;
        total.set(device.limit as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) -> c_int {
    call("cuMemGetAddressRange_v2", |state| {
        let device = state.device_of(address).ok_or(Code::NOT_FOUND)?;
        let (start, len) = state.devices[device].machine.global.range(address).ok_or(Code::NOT_FOUND)?;
        base.set_if(start);
        bytes.set_if(len);
        Ok(())
    })
}

fn host_alloc(state: &mut State, to: Out<usize>, bytes: usize, flags: c_uint) -> Status {
    state.device()?;
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut memory = vec![0_u128; bytes.div_ceil(16)].into_boxed_slice();
    let address = memory.as_mut_ptr() as usize;
    state.host.insert(address, HostMemory { len: bytes, flags, _memory: Some(memory) });
    to.set(address)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(to: Out<usize>, bytes: usize, flags: c_uint) -> c_int {
    call("cuMemHostAlloc", |state| host_alloc(state, to, bytes, flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(to: Out<usize>, bytes: usize) -> c_int {
    call("cuMemAllocHost_v2", |state| host_alloc(state, to, bytes, 0))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: usize) -> c_int {
    call("cuMemFreeHost", |state| {
        if state.host.get(&address).is_none_or(|memory| memory._memory.is_none()) {
            return Err(Code::INVALID_VALUE);
        }
        state.drain_all();
        state.host.remove(&address);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(address: usize, bytes: usize, flags: c_uint) -> c_int {
    call("cuMemHostRegister_v2", |state| {
        state.device()?;
        state.host.insert(address, HostMemory { len: bytes, flags, _memory: None });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(address: usize) -> c_int {
    call("cuMemHostUnregister", |state| {
        if state.host.get(&address).is_none_or(|memory| memory._memory.is_some()) {
            return Err(Code::INVALID_VALUE);
        }
        state.drain_all();
        state.host.remove(&address);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetFlags(flags: Out<c_uint>, address: usize) -> c_int {
    call("cuMemHostGetFlags", |state| flags.set(state.host.get(&address).ok_or(Code::INVALID_VALUE)?.flags))
}

/// Checks that bytes lie within one array of a device.
fn check_range(state: &State, address: u64, len: usize) -> Status {
    if len == 0 {
        return Ok(());
    }
    let device = state.device_of(address).ok_or(Code::INVALID_VALUE)?;
    let (base, all) = state.devices[device].machine.global.range(address).ok_or(Code::INVALID_VALUE)?;
    if address - base + len as u64 > all as u64 { Err(Code::INVALID_VALUE) } else { Ok(()) }
}

/// Queues work on the null stream of the current context and does it.
fn now(state: &mut State, work: Work) -> Status {
    state.check_no_capture()?;
    let device = state.working_device()?;
    let key = State::null_stream(device);
    state.enqueue(key, work)?;
    state.drain(key, u64::MAX)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: u64, from: usize, len: usize) -> c_int {
    call("cuMemcpyHtoD_v2", |state| {
        check_range(state, to, len)?;
        now(state, Work::CopyIn { to, from, len })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: usize, from: u64, len: usize) -> c_int {
    call("cuMemcpyDtoH_v2", |state| {
        check_range(state, from, len)?;
        now(state, Work::CopyOut { to, from, len })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, len: usize) -> c_int {
    call("cuMemcpyDtoD_v2", |state| {
        check_range(state, to, len)?;
        check_range(state, from, len)?;
        now(state, Work::CopyWithin { to, from, len })
    })
}

/// From pinned memory the bytes are read when the copy is done; others are taken at once, as hardware stages them.
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, len: usize, stream: usize) -> c_int {
    call("cuMemcpyHtoDAsync_v2", |state| {
        check_range(state, to, len)?;
        let key = state.stream_key(stream)?;
        let is_late = state.is_pinned(from, len) || state.stream(key)?.capture.is_some();
        let work = match is_late {
            true => Work::CopyIn { to, from, len },
            false => Work::CopyBytes { to, bytes: read_host(from, len)? },
        };
        state.enqueue(key, work)
    })
}

/// To pinned memory the bytes come when the copy is done; for others the call waits, as on hardware.
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, len: usize, stream: usize) -> c_int {
    call("cuMemcpyDtoHAsync_v2", |state| {
        check_range(state, from, len)?;
        let key = state.stream_key(stream)?;
        let is_late = state.is_pinned(to, len) || state.stream(key)?.capture.is_some();
        state.enqueue(key, Work::CopyOut { to, from, len })?;
        if is_late { Ok(()) } else { state.drain(key, u64::MAX) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: usize) -> c_int {
    call("cuMemcpyDtoDAsync_v2", |state| {
        check_range(state, to, len)?;
        check_range(state, from, len)?;
        let key = state.stream_key(stream)?;
        state.enqueue(key, Work::CopyWithin { to, from, len })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    _to_context: usize,
    from: u64,
    _from_context: usize,
    len: usize,
    stream: usize,
) -> c_int {
    cuMemcpyDtoDAsync_v2(to, from, len, stream)
}

/// Addresses of host and devices are one space: whichever the bytes belong to.
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: u64, from: u64, len: usize, stream: usize) -> c_int {
    let (to_device, from_device) =
        super::state::with_state(|state| (state.device_of(to).is_some(), state.device_of(from).is_some()));
    match (to_device, from_device) {
        (true, true) => cuMemcpyDtoDAsync_v2(to, from, len, stream),
        (true, false) => cuMemcpyHtoDAsync_v2(to, from as usize, len, stream),
        (false, true) => cuMemcpyDtoHAsync_v2(to as usize, from, len, stream),
        (false, false) => Code::INVALID_VALUE.0,
    }
}

fn set_now(state: &mut State, at: u64, value: u32, size: usize, count: usize) -> Status {
    check_range(state, at, size * count)?;
    check_aligned(at, size)?;
    now(state, Work::Set { at, value, size, count })
}

fn set_later(state: &mut State, at: u64, value: u32, size: usize, count: usize, stream: usize) -> Status {
    check_range(state, at, size * count)?;
    check_aligned(at, size)?;
    let key = state.stream_key(stream)?;
    state.enqueue(key, Work::Set { at, value, size, count })
}

fn check_aligned(at: u64, size: usize) -> Status {
    if at.is_multiple_of(size as u64) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(at: u64, value: c_uchar, count: usize) -> c_int {
    call("cuMemsetD8_v2", |state| set_now(state, at, value.into(), 1, count))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16_v2(at: u64, value: c_ushort, count: usize) -> c_int {
    call("cuMemsetD16_v2", |state| set_now(state, at, value.into(), 2, count))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(at: u64, value: c_uint, count: usize) -> c_int {
    call("cuMemsetD32_v2", |state| set_now(state, at, value, 4, count))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(at: u64, value: c_uchar, count: usize, stream: usize) -> c_int {
    call("cuMemsetD8Async", |state| set_later(state, at, value.into(), 1, count, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16Async(at: u64, value: c_ushort, count: usize, stream: usize) -> c_int {
    call("cuMemsetD16Async", |state| set_later(state, at, value.into(), 2, count, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(at: u64, value: c_uint, count: usize, stream: usize) -> c_int {
    call("cuMemsetD32Async", |state| set_later(state, at, value, 4, count, stream))
}

/// The handle of a device's own pool.
fn default_pool(state: &mut State, to: Out<usize>, ordinal: c_int) -> Status {
    let device = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
    if device >= state.devices.len() {
        return Err(Code::INVALID_DEVICE);
    }
    let handle = 0x300 + device;
    state.pools.insert(handle, device);
    to.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(to: Out<usize>, ordinal: c_int) -> c_int {
    call("cuDeviceGetDefaultMemPool", |state| default_pool(state, to, ordinal))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetMemPool(to: Out<usize>, ordinal: c_int) -> c_int {
    call("cuDeviceGetMemPool", |state| default_pool(state, to, ordinal))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceSetMemPool(_ordinal: c_int, pool: usize) -> c_int {
    call("cuDeviceSetMemPool", |state| state.pools.get(&pool).map(drop).ok_or(Code::INVALID_VALUE))
}

/// The properties begin with the type of memory, of handle and of place, and the number of the place.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(to: Out<usize>, properties: In<[c_int; 4]>) -> c_int {
    call("cuMemPoolCreate", |state| {
        let [_, _, _, ordinal] = properties.get()?;
        let device = usize::try_from(ordinal).ok().filter(|device| *device < state.devices.len());
        let handle = state.handle();
        state.pools.insert(handle, device.ok_or(Code::INVALID_DEVICE)?);
        to.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: usize) -> c_int {
    call("cuMemPoolDestroy", |state| state.pools.remove(&pool).map(drop).ok_or(Code::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: usize, _attribute: c_int, _value: usize) -> c_int {
    call("cuMemPoolSetAttribute", |state| state.pools.get(&pool).map(drop).ok_or(Code::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAttribute(pool: usize, attribute: c_int, value: Out<u64>) -> c_int {
    call("cuMemPoolGetAttribute", |state| {
        let device = *state.pools.get(&pool).ok_or(Code::INVALID_VALUE)?;
        // Attributes from 5 on are sizes: reserved and used, now and at most. Those before are flags of 32 bits.
        match attribute {
            5..=8 => value.set(state.devices[device].machine.global.live_bytes),
            _ => Err(Code::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: usize, _keep: usize) -> c_int {
    call("cuMemPoolTrimTo", |state| state.pools.get(&pool).map(drop).ok_or(Code::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(to: Out<u64>, bytes: usize, pool: usize, stream: usize) -> c_int {
    call("cuMemAllocFromPoolAsync", |state| {
        state.pools.get(&pool).ok_or(Code::INVALID_VALUE)?;
        alloc_on(state, to, bytes, stream)
    })
}
