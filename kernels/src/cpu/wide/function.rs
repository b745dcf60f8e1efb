//! A whole function: the frame around the code of its nests, and the cold parts behind its end.

use super::WideIsa;
use super::emit::WideEmitter;
use super::encode::{Alu, Assembled, Memory, RAX, RDI, RDX, RSI, RSP, Rm};
use super::nest::WideLoops;
use super::past::{check_stores, stores_past};
use super::reduce::groups_of_sums;
use super::regs::Registers;
use super::strip::strips;
use super::walk::chains;
use crate::cpu::run_whole;
use crate::schedule::{LoopForm, Nest};

/// The registers that a function leaves as they were.
const SAVED: [u8; 6] = [3, 5, 12, 13, 14, 15];
/// The largest frame, in bytes, with the bytes by which it is moved to the boundary of a vector.
const MAX_FRAME: i32 = PROBES * PAGE;
/// The places of a frame that are read before it is used, in order, each at most a page below the one before: the guard
/// page below a stack may be but one, which a larger step would pass over.
const PROBES: i32 = 4;
const PAGE: i32 = 1 << 12;
/// A whole vector.
const ALIGN: i32 = 64;

/// The code of one nest that is called for ranges of its items, or of nests that run whole, in order; with at most
/// `limit` registers of each class.
pub(super) fn assembled(nests: &[&Nest], forms: &[LoopForm<'_>], level: WideIsa, limit: u32) -> Option<Assembled> {
    if let Some(code) = emitted(nests, forms, level, limit, usize::MAX)? {
        return Some(code);
    }
    // A frame has places for all vectors that take turns; fewer vectors need fewer.
    let of_form = |form: &LoopForm<'_>| chains(form, level).max(groups_of_sums(form, level));
    let of_nest = |(nest, form)| strips(nest, level).as_ref().map_or(0, of_form).max(of_form(form));
    let most = nests.iter().copied().zip(forms).map(of_nest).max().unwrap_or(1);
    for most_chains in [2, 1].into_iter().filter(|&n| n < most) {
        if let Some(code) = emitted(nests, forms, level, limit, most_chains)? {
            return Some(code);
        }
    }
    None
}

/// The same with at most `most_chains` vectors that take turns: `None` if there is no code for something, and none in it
/// if a frame has no room.
pub(super) fn emitted(
    nests: &[&Nest],
    forms: &[LoopForm<'_>],
    level: WideIsa,
    limit: u32,
    most_chains: usize,
) -> Option<Option<Assembled>> {
    let regs = Registers::new(level.has_masks(), level.len(), limit);
    let mut e = WideEmitter { level, regs, block: vec![], len: level.len(), most_chains };
    let [saved, table] = [(); 2].map(|()| e.regs.place(8));
    let asm = &mut e.regs.asm;
    SAVED.iter().for_each(|&r| asm.push(r));
    // The displacements are set when the size of the frame is known.
    let probes = [(); PROBES as usize].map(|()| {
        asm.load(RAX, Memory::at(RSP, -MAX_FRAME));
        asm.code.len() - 4
    });
    asm.mov(RAX, RSP);
    asm.lea(RSP, Memory::at(RSP, -MAX_FRAME));
    let frame_at = asm.code.len() - 4;
    asm.alu_imm(Alu::And, Rm::Register(RSP), -ALIGN);
    asm.store(RAX, Memory::at(RSP, saved));
    asm.store(RDI, Memory::at(RSP, table));
    let (mut first, frame) = (0, e.regs.frame());
    let whole = run_whole(nests);
    for (&nest, form) in nests.iter().zip(forms) {
        if whole {
            let items = i32::try_from(nest.items).ok()?;
            e.regs.asm.load(RDI, Memory::at(RSP, table));
            e.regs.asm.mov_imm(Rm::Register(RSI), 0);
            e.regs.asm.mov_imm(Rm::Register(RDX), items);
        }
        let strips = strips(nest, level);
        let both = (nest, strips.as_ref().unwrap_or(form));
        let plain = vec![false; nest.kernel.stores.len()];
        let is_past = if whole { plain.clone() } else { stores_past(nest, both.1, level) };
        if is_past == plain {
            e = WideLoops::emit(e, both, first, whole, plain)?;
        } else {
            let [through_caches, done] = [(); 2].map(|()| e.regs.asm.label());
            check_stores(&mut e.regs.asm, nest, first, &is_past, through_caches);
            e = WideLoops::emit(e, both, first, whole, is_past)?;
            e.regs.end_frame(frame);
            e.regs.asm.store_fence();
            e.regs.asm.jump(done);
            e.regs.asm.bind(through_caches);
            e = WideLoops::emit(e, both, first, whole, plain)?;
            e.regs.asm.bind(done);
        }
        e.regs.end_frame(frame);
        first += nest.kernel.params.len();
    }
    let asm = &mut e.regs.asm;
    asm.zero_upper();
    asm.load(RSP, Memory::at(RSP, saved));
    SAVED.iter().rev().for_each(|&r| asm.pop(r));
    asm.ret();
    e.regs.cold_parts();
    let frame = e.regs.most_frame();
    let mut displace = |at: usize, by: i32| e.regs.asm.code[at..at + 4].copy_from_slice(&(-by).to_le_bytes());
    displace(frame_at, frame);
    (PAGE..).step_by(PAGE as usize).zip(probes).for_each(|(below, at)| displace(at, below.min(frame)));
    Some((frame + ALIGN <= MAX_FRAME).then(|| e.regs.asm.finish()).flatten())
}
