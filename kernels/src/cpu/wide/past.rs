//! Stores past the caches.
//!
//! A store to a line that no cache holds reads the line first, and drives another one out. Where a result is larger than
//! the caches, nobody finds it there, and both are for nothing: such a result is written as whole lines to memory.

use super::WideIsa;
use super::encode::{Alu, Assembler, Condition, JumpTarget, Memory, RAX, RCX, RDI, RSI, Rm};
use crate::ir::{Inst, Store};
use crate::schedule::{LoopForm, Nest, Traversal};

/// Bytes of a result from which on it is written past the caches: twice what a last-level cache of 32 MiB holds. Of one
/// that is half as large, the next kernel still finds enough there.
const STREAMED: usize = if cfg!(test) { 1 << 9 } else { 1 << 26 };

/// Bytes of a row at least: the ends of rows are parts of lines, which take as long as lines.
const ROW: usize = if cfg!(test) { 1 << 8 } else { 1 << 10 };
/// Bytes of a cache line.
const LINE: i64 = 64;

/// Whether a nest stores so much that it may go past the caches: code depends on it.
pub(in crate::cpu) fn may_store_past(nest: &Nest) -> bool {
    let params = &nest.kernel.params;
    let sizes = nest.kernel.stores.iter().map(|store| params[store.param.index()].dtype.size());
    !nest.is_read_at_once && sizes.max().is_some_and(|size| nest.kernel.kept_len().saturating_mul(size) >= STREAMED)
}

/// Of each store of a nest, whether it goes past the caches: by the bytes that the nest writes and those of its rows, and if
/// rows begin at cache lines wherever the result begins at one.
pub(super) fn stores_past(nest: &Nest, form: &LoopForm<'_>, level: WideIsa) -> Vec<bool> {
    let kernel = &nest.kernel;
    let begins_on_vector = match nest.traversal {
        _ if !may_store_past(nest) => false,
        Traversal::Flat | Traversal::Rows => true,
        Traversal::Columns { block } => !form.is_in_strips() && block.is_multiple_of(level.lanes()),
        Traversal::Tile => false,
    };
    let is_past = |store: &Store| {
        let param = kernel.params[store.param.index()];
        let size = param.dtype.size();
        let Some(axis) = form.axis.filter(|_| begins_on_vector && size >= 4) else {
            return false;
        };
        let is_aligned = |elements: i64| elements.checked_mul(size as i64).is_some_and(|at| at % LINE == 0);
        let others = (0..kernel.axes.len()).filter(|&other| other != axis).map(|other| store.at.stride(other));
        let is_of_vectors = store.at.stride(axis) == 1 && others.chain([store.at.offset]).all(is_aligned);
        let [row, all] = [kernel.axes[axis].extent, kernel.kept_len()].map(|len| len.saturating_mul(size));
        is_of_vectors && row >= ROW && all >= STREAMED
    };
    kernel.stores.iter().map(is_past).collect()
}

/// Jumps where a result does not begin at a cache line, where the first position is none, or where a result is
/// written over an argument, whose lines are in a cache when they are written.
pub(super) fn check_stores(asm: &mut Assembler, nest: &Nest, first: usize, is_past: &[bool], to: JumpTarget) {
    let place = |param: usize| Memory::at(RDI, 8 * (first + param) as i32);
    let mut read: Vec<usize> = vec![];
    for inst in &nest.kernel.insts {
        if let Inst::Load(param, _) | Inst::LoadAt(param, _) = inst {
            read.push(param.index());
        }
    }
    read.sort_unstable();
    read.dedup();
    for (store, _) in nest.kernel.stores.iter().zip(is_past).filter(|(_, is_past)| **is_past) {
        asm.load(RAX, place(store.param.index()));
        asm.mov(RCX, RAX);
        asm.alu_imm(Alu::And, Rm::Register(RCX), LINE as i32 - 1);
        asm.jump_if(Condition::NotEqual, to);
        for &param in &read {
            asm.alu(Alu::Cmp, RAX, Rm::Memory(place(param)));
            asm.jump_if(Condition::Equal, to);
        }
    }
    if nest.traversal == Traversal::Flat {
        asm.mov(RCX, RSI);
        // Elements of a line, or of two.
        asm.alu_imm(Alu::And, Rm::Register(RCX), 15);
        asm.jump_if(Condition::NotEqual, to);
    }
}
