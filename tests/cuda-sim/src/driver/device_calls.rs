//! Devices, contexts, errors.

#![allow(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::foreign::{Code, Out, Text, describe};
use super::state::{State, call, context_of, current, pop_current, push_current, set_current};
use crate::machine::PLAIN_SHARED;

/// The version of the driver: CUDA 13.0.
const VERSION: c_int = 13_000;

fn device(state: &State, ordinal: c_int) -> Result<usize, Code> {
    usize::try_from(ordinal).ok().filter(|device| *device < state.devices.len()).ok_or(Code::INVALID_DEVICE)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> c_int {
    call("cuInit", |state| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        state.is_initialized = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> c_int {
    call("cuDriverGetVersion", |_| version.set(VERSION))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<c_int>) -> c_int {
    call("cuDeviceGetCount", |state| count.set(state.devices.len() as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(to: Out<c_int>, ordinal: c_int) -> c_int {
    call("cuDeviceGet", |state| {
        device(state, ordinal)?;
        to.set(ordinal)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: usize, room: c_int, ordinal: c_int) -> c_int {
    call("cuDeviceGetName", |state| {
        let n = device(state, ordinal)?;
        super::foreign::write_text(name, room.max(0) as usize, &format!("PTX interpreter {n}"));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: c_int) -> c_int {
    call("cuDeviceTotalMem_v2", |state| bytes.set(state.devices[device(state, ordinal)?].limit as usize))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, ordinal: c_int) -> c_int {
    call("cuDeviceGetUuid", |state| {
        let mut bytes = *b"PTX interpreter\0";
        bytes[15] = device(state, ordinal)? as u8;
        uuid.set(bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, ordinal: c_int) -> c_int {
    cuDeviceGetUuid(uuid, ordinal)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, ordinal: c_int) -> c_int {
    call("cuDeviceGetAttribute", |state| {
        let device = device(state, ordinal)?;
        let capability = state.devices[device].capability as c_int;
        value.set(match attribute {
            // Threads of a block, its extents, and the extents of a grid.
            1..=3 => 1024,
            4 => 64,
            5 => i32::MAX,
            6 | 7 => 65_535,
            8 => PLAIN_SHARED as c_int,
            9 => 65_536,
            10 => 32,
            11 => i32::MAX,
            // Registers of a block and of a multiprocessor.
            12 | 82 => 65_536,
            13 => 1_980_000,
            14 => 512,
            16 => 132,
            // Concurrent kernels, unified addresses, stream priorities, cooperative launches, memory pools.
            31 | 41 | 78 | 95 | 115 => 1,
            33 => 1 + device as c_int,
            36 => 2_619_000,
            37 => 5120,
            38 => 50 << 20,
            39 => 2048,
            40 => 3,
            75 => capability / 10,
            76 => capability % 10,
            81 => shared_per_block(capability) + 1024,
            97 => shared_per_block(capability),
            106 => 32,
            111 => 1024,
            _ => 0,
        })
    })
}

/// Shared memory that a block can ask for.
pub(super) fn shared_per_block(capability: c_int) -> c_int {
    let kilobytes = match capability {
        ..80 => 64,
        80 | 87 => 163,
        86 | 89 | 120.. => 99,
        _ => 227,
    };
    kilobytes << 10
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<c_int>, one: c_int, other: c_int) -> c_int {
    call("cuDeviceCanAccessPeer", |state| {
        device(state, one)?;
        device(state, other)?;
        can.set(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<usize>, ordinal: c_int) -> c_int {
    call("cuDevicePrimaryCtxRetain", |state| {
        let device = device(state, ordinal)?;
        state.devices[device].retained += 1;
        context.set(context_of(device))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(ordinal: c_int) -> c_int {
    call("cuDevicePrimaryCtxRelease_v2", |state| {
        let device = device(state, ordinal)?;
        let retained = &mut state.devices[device].retained;
        *retained = retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) -> c_int {
    call("cuDevicePrimaryCtxReset_v2", |state| {
        let device = device(state, ordinal)?;
        state.devices[device].broken = None;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<c_uint>, active: Out<c_int>) -> c_int {
    call("cuDevicePrimaryCtxGetState", |state| {
        let device = device(state, ordinal)?;
        flags.set_if(0);
        active.set(c_int::from(state.devices[device].retained > 0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(ordinal: c_int, _flags: c_uint) -> c_int {
    call("cuDevicePrimaryCtxSetFlags_v2", |state| device(state, ordinal).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: Out<usize>) -> c_int {
    call("cuCtxGetCurrent", |_| context.set(current()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    call("cuCtxSetCurrent", |state| {
        if context != 0 {
            state.device_of_context(context)?;
        }
        set_current(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    call("cuCtxPushCurrent_v2", |state| {
        state.device_of_context(context)?;
        push_current(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: Out<usize>) -> c_int {
    call("cuCtxPopCurrent_v2", |_| {
        context.set_if(pop_current().ok_or(Code::INVALID_CONTEXT)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(to: Out<c_int>) -> c_int {
    call("cuCtxGetDevice", |state| to.set(state.device()? as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_int {
    call("cuCtxSynchronize", |state| {
        state.check_no_capture()?;
        let device = state.device()?;
        state.drain_device(device)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> c_int {
    call("cuCtxGetStreamPriorityRange", |_| {
        least.set_if(0);
        greatest.set_if(-5);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetApiVersion(_context: usize, version: Out<c_uint>) -> c_int {
    call("cuCtxGetApiVersion", |_| version.set(VERSION as c_uint))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(_flags: c_uint) -> c_int {
    call("cuCtxSetFlags", |state| state.device().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetFlags(flags: Out<c_uint>) -> c_int {
    call("cuCtxGetFlags", |_| flags.set(0))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(_limit: c_int, _value: usize) -> c_int {
    call("cuCtxSetLimit", |state| state.device().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetLimit(value: Out<usize>, _limit: c_int) -> c_int {
    call("cuCtxGetLimit", |_| value.set(0))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCacheConfig(_config: c_int) -> c_int {
    call("cuCtxSetCacheConfig", |state| state.device().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStart() -> c_int {
    call("cuProfilerStart", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStop() -> c_int {
    call("cuProfilerStop", |_| Ok(()))
}

/// The text that a code has, which needs no lock: it may be asked for while another thread runs a kernel.
fn text_of(
    code: c_int,
    to: Out<*const c_char>,
    pick: impl Fn((&'static CStr, &'static CStr)) -> &'static CStr,
) -> c_int {
    let found = describe(code).map(pick);
    to.set_if(found.map_or(std::ptr::null(), CStr::as_ptr));
    if found.is_some() { 0 } else { Code::INVALID_VALUE.0 }
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: c_int, to: Out<*const c_char>) -> c_int {
    text_of(code, to, |(name, _)| name)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: c_int, to: Out<*const c_char>) -> c_int {
    text_of(code, to, |(_, text)| text)
}

/// The address of a function of this library; `_v2` and `_v3` of a name are tried before the name itself.
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    symbol: Text,
    to: Out<*mut c_void>,
    _version: c_int,
    _flags: u64,
    status: Out<c_int>,
) -> c_int {
    call("cuGetProcAddress_v2", |_: &mut State| {
        let name = symbol.read()?;
        let found = super::install::own_symbol(&name);
        // 0 is success, 1 is "not found".
        status.set_if(c_int::from(found.is_none()));
        to.set(found.unwrap_or(std::ptr::null_mut()))?;
        found.map(drop).ok_or(Code::NOT_FOUND)
    })
}
