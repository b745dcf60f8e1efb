//! Launches of kernels and of functions of the host.

#![allow(non_snake_case, reason = "the names of the C interface")]
#![allow(clippy::too_many_arguments, reason = "the parameters of the C interface")]

use std::ffi::{c_int, c_uint};

use super::foreign::{Code, HostFunction, In, Status, read_host};
use super::state::{State, call};
use super::work::{Launch, Work};

/// Grid, block and dynamic shared memory of a launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared: c_uint,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    shape: Shape,
    stream: usize,
    attributes: usize,
    attribute_count: c_uint,
}

/// The bytes of all parameters, from an array of pointers to them or from one buffer.
fn parameters(state: &State, function: usize, pointers: In<usize>, extra: In<usize>) -> Result<Vec<u8>, Code> {
    let kernel = &state.function(function)?.kernel;
    let mut bytes = vec![0; kernel.param_bytes()];
    if !extra.is_null() {
        // Pairs of a name and a value: 1 is the buffer, 2 is the address of its size, 0 ends.
        let (mut buffer, mut at) = (0, 0);
        while extra.at(at)? != 0 {
            if extra.at(at)? == 1 {
                buffer = extra.at(at + 1)?;
            }
            at += 2;
        }
        return read_host(buffer, bytes.len());
    }
    for (n, (offset, len)) in kernel.params().enumerate() {
        bytes[offset..offset + len].copy_from_slice(&read_host(pointers.at(n)?, len)?);
    }
    Ok(bytes)
}

/// The launch of a function, if it can be launched so.
pub(super) fn prepare(
    state: &mut State,
    function: usize,
    shape: Shape,
    pointers: In<usize>,
    extra: In<usize>,
) -> Result<Launch, Code> {
    let params = parameters(state, function, pointers, extra)?;
    let found = state.function(function)?;
    let Shape { grid, block, shared } = shape;
    let checked = match found.kernel.check_launch(grid, block, shared, params.len()) {
        Ok(()) if shared > found.dynamic_limit => {
            let limit = found.dynamic_limit;
            Err(format!("{shared} bytes of dynamic shared memory, and the function's limit is {limit}"))
        }
        checked => checked,
    };
    let kernel = found.kernel.clone();
    match checked {
        Ok(()) => Ok(Launch { kernel, function, grid, block, shared, params }),
        Err(what) => {
            state.last_fault = format!("{}: {what}", kernel.name());
            Err(Code::INVALID_VALUE)
        }
    }
}

fn launch(
    state: &mut State,
    function: usize,
    shape: Shape,
    stream: usize,
    pointers: In<usize>,
    extra: In<usize>,
) -> Status {
    let key = state.stream_key(stream)?;
    if state.function(function)?.device != state.stream(key)?.device {
        return Err(Code::INVALID_HANDLE);
    }
    let launch = prepare(state, function, shape, pointers, extra)?;
    state.enqueue(key, Work::Launch(launch))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: usize,
    pointers: In<usize>,
    extra: In<usize>,
) -> c_int {
    call("cuLaunchKernel", |state| {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        launch(state, function, shape, stream, pointers, extra)
    })
}

/// Attributes of a launch are those of clusters and of overlap, which do not change results: clusters are refused.
#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: usize,
    pointers: In<usize>,
    extra: In<usize>,
) -> c_int {
    call("cuLaunchKernelEx", |state| {
        let config = config.get()?;
        for n in 0..config.attribute_count as usize {
            // Each is a number, padding to eight bytes and a value of 64 bytes. 4 is the extent of a cluster.
            let id = read_host(config.attributes + 72 * n, 4)?;
            if id[0] == 4 {
                return Err(Code::NOT_SUPPORTED);
            }
        }
        launch(state, function, config.shape, config.stream, pointers, extra)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(stream: usize, run: Option<HostFunction>, data: usize) -> c_int {
    call("cuLaunchHostFunc", |state| {
        let run = run.ok_or(Code::INVALID_VALUE)?;
        let key = state.stream_key(stream)?;
        state.enqueue(key, Work::Host { run, data })
    })
}
