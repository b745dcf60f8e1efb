//! Machine code for kernels, by Cranelift.
//!
//! Equal loop nests share their code through a process-wide cache, which does not keep it alive. All functions that one
//! call of [`compile`] makes lie in one mapping, so that a small function costs its bytes and not a page; the mapping
//! goes when the last of its functions is dropped.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod body;
mod cast;
mod columns;
mod compile;
mod emit;
mod half;
mod libcalls;
mod loops;
mod memory;
mod reduce;
#[cfg(test)]
mod tests;
mod trap;
mod wide;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use retape_runtime::{Code, Hash32, Memo, hash_value, into_inner, lock, parallel_for};

use crate::error::{Error, Result};
use crate::ir::{Inst, Kernel};
use crate::schedule::{Nest, Traversal, scheduled};

/// One function to compile: a nest that is called for ranges of its items, or nests that run whole, in order.
#[derive(Clone, Debug)]
pub(crate) struct Unit<'a> {
    pub(crate) nests: Vec<&'a Nest>,
    /// Whether the code raises a flag, behind the first pointer of its table, when it stores NaN or an infinity.
    pub(crate) trap: bool,
}

/// Whether the nests of a function run whole, whatever its range: several of them, or one that is short.
fn run_whole(nests: &[&Nest]) -> bool {
    nests.len() > 1 || nests.iter().all(|nest| nest.is_short())
}

/// A compiled unit.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) code: Arc<Code>,
    /// Where it begins in the code.
    pub(crate) offset: usize,
    len: usize,
}

/// Code in use, by what it was made from.
static CACHE: LazyLock<Memo<Hash32, Function>> = LazyLock::new(Memo::in_use);

impl Function {
    /// The bytes of its code.
    pub(crate) fn bytes(&self) -> usize {
        self.len
    }
}

impl Unit<'_> {
    /// All that the code depends on beside the machine; the range of a flat nest called for ranges and the lengths of
    /// buffers are not, unless there are computed positions.
    fn key(&self) -> Hash32 {
        let whole = run_whole(&self.nests);
        let part = |nest: &&Nest| (nest.traversal, nest.unroll, wide::may_store_past(nest), coded(nest, whole));
        let parts: Vec<_> = self.nests.iter().map(part).collect();
        hash_value(&(self.trap, whole, parts))
    }
}

/// The kernel as far as the code depends on it.
fn coded(nest: &Nest, whole: bool) -> Kernel {
    let mut kernel = nest.kernel.clone();
    for (n, param) in kernel.params.iter_mut().enumerate() {
        if !nest.kernel.insts.iter().any(|i| matches!(i, Inst::LoadAt(p, _) if p.index() == n)) {
            param.len = 0;
        }
    }
    // Coordinates of short axes are counted in 32 bits. The extent tells which computed positions are within a parameter.
    let has_positions = kernel.insts.iter().any(|inst| matches!(inst, Inst::LoadAt(..)));
    let is_counted_short = kernel.axes.first().is_some_and(|axis| axis.extent <= i32::MAX as usize);
    if nest.traversal == Traversal::Flat && !whole && !has_positions && is_counted_short {
        kernel.axes[0].extent = 0;
    }
    kernel
}

/// Functions for all units, in order; those that are not cached are compiled, in parallel.
///
/// # Errors
///
/// Fails if Cranelift is needed and does not support the machine, a kernel has calls left, or the system refuses the
/// memory.
pub(crate) fn compile(units: &[Unit<'_>]) -> Result<Vec<Arc<Function>>> {
    let keys: Vec<Hash32> = units.iter().map(Unit::key).collect();
    let mut first_of = HashMap::new();
    // A unit of each key, and for each unit the one of its key.
    let mut distinct: Vec<usize> = vec![];
    let mut number = |(n, key)| {
        *first_of.entry(key).or_insert_with(|| {
            distinct.push(n);
            distinct.len() - 1
        })
    };
    let numbers: Vec<usize> = keys.iter().enumerate().map(&mut number).collect();
    let mut functions: Vec<Option<Arc<Function>>> = distinct.iter().map(|&n| CACHE.get(&keys[n])).collect();
    let missing: Vec<usize> = (0..distinct.len()).filter(|&number| functions[number].is_none()).collect();
    let slots: Vec<Mutex<Option<Result<Vec<u8>>>>> = missing.iter().map(|_| Mutex::new(None)).collect();
    parallel_for(missing.len(), &|n| {
        let code = compile::machine_code(&units[distinct[missing[n]]], compile::isa());
        *lock(&slots[n]) = Some(code);
    });
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    for slot in slots {
        let code = into_inner(slot);
        let code = code.unwrap_or_else(|| Err(Error::Internal("a function was not compiled".into())))?;
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        places.push((bytes.len(), code.len()));
        bytes.extend(code);
    }
    if !missing.is_empty() {
        let code = Arc::new(Code::new(&bytes)?);
        for (&number, &(offset, len)) in missing.iter().zip(&places) {
            let function = Arc::new(Function { code: code.clone(), offset, len });
            functions[number] = Some(CACHE.get_or_insert(&keys[distinct[number]], function));
        }
    }
    let missing = || Error::Internal("a function is missing".into());
    numbers.into_iter().map(|number: usize| functions[number].clone().ok_or_else(missing)).collect()
}

/// The target and the features of the processor that code is made for.
///
/// # Errors
///
/// Fails if no code can be made for this machine.
pub fn machine() -> Result<String> {
    compile::isa().name()
}

/// The CLIF text of the functions that a verified kernel becomes, before optimisation.
///
/// # Errors
///
/// Fails if no code can be made for this machine.
pub fn clif(kernel: &Kernel) -> Result<String> {
    inspect(kernel, compile::clif)
}

/// The machine instructions of the functions that a verified kernel becomes.
///
/// # Errors
///
/// As [`clif`].
pub fn machine_text(kernel: &Kernel) -> Result<String> {
    inspect(kernel, compile::disassembly)
}

fn inspect(kernel: &Kernel, text: fn(&Unit<'_>) -> Result<String>) -> Result<String> {
    scheduled(kernel).nests.iter().map(|nest| text(&Unit { nests: vec![nest], trap: false })).collect()
}

/// The machine instructions of one nest.
pub(crate) fn nest_text(nest: &Nest) -> Result<String> {
    compile::disassembly(&Unit { nests: vec![nest], trap: false })
}
