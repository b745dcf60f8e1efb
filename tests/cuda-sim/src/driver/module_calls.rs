//! Modules, functions, links.
//!
//! A "cubin" of this driver is a header, the capability that it is for, and the text of the module: what a linker gives
//! back, so that caches of compiled code have something to keep.

#![allow(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use super::device_calls::shared_per_block;
use super::foreign::{Code, In, Out, Status, Text, read_host, write_text};
use super::state::{Function, Link, Loaded, State, call};
use crate::kernel::Module;
use crate::machine::PLAIN_SHARED;

/// How an image begins; hardware's are ELF files, too. Capability and length follow, eight bytes each.
const MAGIC: &[u8; 16] = b"\x7fELFretape-sim\0\0";

/// Options of the compiler whose values are used: the buffers of the two logs and their sizes.
const INFO_LOG: c_int = 3;
const INFO_SIZE: c_int = 4;
const ERROR_LOG: c_int = 5;
const ERROR_SIZE: c_int = 6;

/// Options of the compiler: their names, and the array of their values, some of which are written.
#[derive(Clone, Default)]
pub(super) struct Options {
    names: Vec<c_int>,
    values: usize,
}

impl Options {
    fn read(count: c_uint, names: In<c_int>, values: usize) -> Result<Options, Code> {
        Ok(Options { names: names.list(count as usize)?, values })
    }

    fn value(&self, name: c_int) -> Option<usize> {
        let at = self.names.iter().position(|own| *own == name)?;
        let bytes = read_host(self.values + 8 * at, 8).ok()?;
        Some(u64::from_le_bytes(std::array::from_fn(|n| bytes[n])) as usize)
    }

    /// Writes a log to its buffer, and the length to its size.
    fn log(&self, buffer: c_int, size: c_int, text: &str) {
        let (Some(address), Some(room)) = (self.value(buffer), self.value(size)) else { return };
        let written = write_text(address, room as u32 as usize, text);
        if let Some(at) = self.names.iter().position(|own| *own == size) {
            // The value was read from there: it is an array of the caller's.
            let _ = super::foreign::write_host(self.values + 8 * at, &(written as u64).to_le_bytes());
        }
    }
}

/// The text of an image: PTX with a zero behind, or an image of this driver's linker.
fn text_of_image(address: usize, capability: u32) -> Result<String, Code> {
    if address == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if read_host(address, 1)? != MAGIC[..1] {
        return Text::at(address).read().map_err(|_| Code::INVALID_IMAGE);
    }
    if read_host(address, MAGIC.len())? != MAGIC {
        return Err(Code::INVALID_IMAGE);
    }
    let number =
        |at: usize| read_host(address + at, 8).map(|bytes| u64::from_le_bytes(std::array::from_fn(|n| bytes[n])));
    if number(16)? != u64::from(capability) {
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    String::from_utf8(read_host(address + 32, number(24)? as usize)?).map_err(|_| Code::INVALID_IMAGE)
}

/// Compiles a text for a device; the log says what is wrong.
fn compile(state: &mut State, device: usize, text: &str, options: &Options) -> Result<Module, Code> {
    let capability = state.devices[device].capability;
    let fail = |code: Code, line: u32, what: &str| {
        let log = format!(
            "ptxas application ptx input, line {line}; error   : {what}\nptxas fatal   : aborted due to errors"
        );
        options.log(ERROR_LOG, ERROR_SIZE, &log);
        (code, log)
    };
    let result = match Module::parse(text) {
        Err(error) => Err(fail(Code::INVALID_PTX, error.line, &error.what)),
        Ok(module) if module.version > (9, 0) => {
            let (major, minor) = module.version;
            Err(fail(Code::UNSUPPORTED_PTX_VERSION, 1, &format!("unsupported .version {major}.{minor}")))
        }
        Ok(module) if module.target > capability => {
            let what = format!("the module is for sm_{}, the device is sm_{capability}", module.target);
            Err(fail(Code::NO_BINARY_FOR_GPU, 1, &what))
        }
        Ok(module) => Ok(module),
    };
    result.map_err(|(code, log)| {
        state.last_fault = log;
        code
    })
}

fn load(state: &mut State, to: Out<usize>, image: usize, options: &Options) -> Status {
    let device = state.working_device()?;
    options.log(INFO_LOG, INFO_SIZE, "");
    let text = text_of_image(image, state.devices[device].capability)?;
    let module = Arc::new(compile(state, device, &text, options)?);
    state.counters.modules += 1;
    let handle = state.handle();
    state.modules.insert(handle, Loaded { device, module });
    to.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(to: Out<usize>, image: usize) -> c_int {
    call("cuModuleLoadData", |state| load(state, to, image, &Options::default()))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    to: Out<usize>,
    image: usize,
    count: c_uint,
    names: In<c_int>,
    values: usize,
) -> c_int {
    call("cuModuleLoadDataEx", |state| {
        let options = if count == 0 { Options::default() } else { Options::read(count, names, values)? };
        load(state, to, image, &options)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoad(to: Out<usize>, path: Text) -> c_int {
    call("cuModuleLoad", |state| {
        let mut bytes = std::fs::read(path.read()?).map_err(|_| Code::FILE_NOT_FOUND)?;
        bytes.push(0);
        load(state, to, bytes.as_ptr() as usize, &Options::default())
    })
}

/// Waits for the device first, as hardware does.
#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: usize) -> c_int {
    call("cuModuleUnload", |state| {
        let device = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?.device;
        let drained = state.drain_device(device);
        state.modules.remove(&module);
        state.functions.retain(|_, function| function.module != module);
        drained
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(to: Out<usize>, module: usize, name: Text) -> c_int {
    call("cuModuleGetFunction", |state| {
        let loaded = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let kernel = Arc::clone(loaded.module.kernel(&name.read()?).ok_or(Code::NOT_FOUND)?);
        let device = loaded.device;
        let same = |function: &Function| function.module == module && Arc::ptr_eq(&function.kernel, &kernel);
        // The same function has the same handle, and its attributes stay.
        if let Some((handle, _)) = state.functions.iter().find(|(_, function)| same(function)) {
            return to.set(*handle);
        }
        let handle = state.handle();
        let dynamic_limit = PLAIN_SHARED.saturating_sub(kernel.shared_bytes());
        state.functions.insert(handle, Function { device, module, kernel, dynamic_limit });
        to.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, module: usize, name: Text) -> c_int {
    call("cuModuleGetGlobal_v2", |state| {
        let loaded = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let (device, data, name) = (loaded.device, Arc::clone(&loaded.module.data), name.read()?);
        let index = data.globals.iter().position(|array| array.name == name).ok_or(Code::NOT_FOUND)?;
        address.set_if(state.devices[device].machine.globals_of(&data)[index]);
        bytes.set_if(data.globals[index].bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetModule(to: Out<usize>, function: usize) -> c_int {
    call("cuFuncGetModule", |state| to.set(state.function(function)?.module))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_int, function: usize) -> c_int {
    call("cuFuncGetAttribute", |state| {
        let function = state.function(function)?;
        let capability = state.devices[function.device].capability as c_int;
        value.set(match attribute {
            0 => function.kernel.max_threads().unwrap_or(1024) as c_int,
            1 => function.kernel.shared_bytes() as c_int,
            3 => function.kernel.local_bytes() as c_int,
            // The registers that a compiler would use are not known: a moderate number.
            4 => 32,
            5 | 6 => capability,
            8 => function.dynamic_limit as c_int,
            _ => 0,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: usize, attribute: c_int, value: c_int) -> c_int {
    call("cuFuncSetAttribute", |state| {
        let found = state.function(function)?;
        let most = shared_per_block(state.devices[found.device].capability as c_int);
        let room = most - found.kernel.shared_bytes() as c_int;
        match attribute {
            8 if (0..=room).contains(&value) => {
                if let Some(function) = state.functions.get_mut(&function) {
                    function.dynamic_limit = value as u32;
                }
                Ok(())
            }
            8 => Err(Code::INVALID_VALUE),
            9 => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: usize, _config: c_int) -> c_int {
    call("cuFuncSetCacheConfig", |state| state.function(function).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkCreate_v2(count: c_uint, names: In<c_int>, values: usize, to: Out<usize>) -> c_int {
    call("cuLinkCreate_v2", |state| {
        let device = state.working_device()?;
        let options = if count == 0 { Options::default() } else { Options::read(count, names, values)? };
        let handle = state.handle();
        state.links.insert(handle, Link { device, options, ..Link::default() });
        to.set(handle)
    })
}

/// Takes one text of PTX (kind 1), whose zero at the end may or may not count.
#[unsafe(no_mangle)]
extern "C" fn cuLinkAddData_v2(
    link: usize,
    kind: c_int,
    data: usize,
    len: usize,
    _name: Text,
    count: c_uint,
    names: In<c_int>,
    values: usize,
) -> c_int {
    call("cuLinkAddData_v2", |state| {
        let found = state.links.get(&link).ok_or(Code::INVALID_HANDLE)?;
        let options = if count == 0 { found.options.clone() } else { Options::read(count, names, values)? };
        if kind != 1 || found.text.is_some() {
            return Err(Code::NOT_SUPPORTED);
        }
        let device = found.device;
        let bytes = read_host(data, len)?;
        let text = String::from_utf8(bytes).map_err(|_| Code::INVALID_PTX)?;
        let text = text.trim_end_matches('\0');
        compile(state, device, text, &options)?;
        if let Some(link) = state.links.get_mut(&link) {
            link.text = Some(Arc::from(text.as_bytes()));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkComplete(link: usize, image: Out<usize>, len: Out<usize>) -> c_int {
    call("cuLinkComplete", |state| {
        let found = state.links.get(&link).ok_or(Code::INVALID_HANDLE)?;
        let capability = state.devices[found.device].capability;
        let text = found.text.clone().ok_or(Code::INVALID_VALUE)?;
        let head = [u64::from(capability).to_le_bytes(), (text.len() as u64).to_le_bytes()].concat();
        let bytes: Box<[u8]> = [&MAGIC[..], &head[..], &text[..]].concat().into();
        let link = state.links.get_mut(&link).ok_or(Code::INVALID_HANDLE)?;
        len.set_if(bytes.len());
        image.set_if(bytes.as_ptr() as usize);
        // It belongs to the link and lives as long.
        link.image = Some(bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkDestroy(link: usize) -> c_int {
    call("cuLinkDestroy", |state| state.links.remove(&link).map(drop).ok_or(Code::INVALID_HANDLE))
}

/// Blocks of a function that fit a multiprocessor.
fn blocks_of(state: &State, function: usize, block: c_int, shared: usize) -> Result<usize, Code> {
    let function = state.function(function)?;
    if !(1..=1024).contains(&block) {
        return Err(Code::INVALID_VALUE);
    }
    let all = shared_per_block(state.devices[function.device].capability as c_int) as usize + 1024;
    let own = function.kernel.shared_bytes() as usize + shared + 1024;
    let threads = (block as usize).next_multiple_of(32);
    Ok((2048 / threads).min(all / own).min(32))
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    to: Out<c_int>,
    function: usize,
    block: c_int,
    shared: usize,
) -> c_int {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", |state| {
        to.set(blocks_of(state, function, block, shared)? as c_int)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    to: Out<c_int>,
    function: usize,
    block: c_int,
    shared: usize,
    _flags: c_uint,
) -> c_int {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(to, function, block, shared)
}

/// Shared memory that each of so many blocks of a multiprocessor may have.
#[unsafe(no_mangle)]
extern "C" fn cuOccupancyAvailableDynamicSMemPerBlock(
    to: Out<usize>,
    function: usize,
    blocks: c_int,
    _block: c_int,
) -> c_int {
    call("cuOccupancyAvailableDynamicSMemPerBlock", |state| {
        let function = state.function(function)?;
        let most = shared_per_block(state.devices[function.device].capability as c_int) as usize;
        let share = (most + 1024) / usize::try_from(blocks).ok().filter(|n| *n > 0).ok_or(Code::INVALID_VALUE)?;
        to.set(share.saturating_sub(1024 + function.kernel.shared_bytes() as usize).min(most))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: usize,
    _shared_of_block: usize,
    shared: usize,
    limit: c_int,
) -> c_int {
    call("cuOccupancyMaxPotentialBlockSize", |state| {
        let most = state.function(function)?.kernel.max_threads().unwrap_or(1024) as c_int;
        let size = if limit > 0 { most.min(limit) } else { most };
        grid.set(132 * blocks_of(state, function, size, shared)? as c_int)?;
        block.set(size)
    })
}
