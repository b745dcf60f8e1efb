//! Instructions that are neither plain arithmetic nor control: a warp hands them to the module that knows them.

use super::Env;
use super::warp::Warp;
use crate::fault::{Stop, stop};
use crate::kernel::{FloatMode, Op};
use crate::lanes::{Alu, AluFn, LANES, SCRATCH, put};
use crate::round::flush;

impl Warp {
    /// Everything but plain arithmetic and control.
    pub(super) fn execute(&mut self, env: &mut Env<'_>, op: &Op, active: u32) -> Result<(), Stop> {
        match op {
            Op::AluF32 { run, alu, float } => self.single(*run, alu, *float, active),
            Op::Convert { conversion, alu } => {
                crate::alu::convert::convert(&mut self.regs, alu, conversion, active);
                Ok(())
            }
            Op::Set { run, alu, d, value } => {
                run(&mut self.regs, alu, active)?;
                let holds = self.regs.preds[0];
                let out: [u32; LANES] = std::array::from_fn(|lane| if holds >> lane & 1 == 1 { *value } else { 0 });
                put(&mut self.regs, *d, active, &out);
                Ok(())
            }
            Op::Pack(packing) => {
                self.pack(packing, active);
                Ok(())
            }
            Op::Unpack(packing) => {
                self.unpack(packing, active);
                Ok(())
            }
            Op::Nothing => Ok(()),
            Op::LoadParam { offset, access } => self.load_bytes(env.launch.params, *offset as usize, access, active),
            Op::LoadConst(access) => self.load_const(env, access, active),
            Op::Load(access) => self.load(env, access, active),
            Op::Store(access) => self.store(env, access, active),
            Op::Atomic(atomic) => self.atomic(env, atomic, active),
            Op::AsyncCopy(copy) => self.async_copy(env, copy, active),
            Op::AsyncCommit => {
                self.copies.commit(active);
                Ok(())
            }
            Op::AsyncWait(groups) => {
                self.copies.wait(env, active, *groups);
                Ok(())
            }
            Op::AsyncWaitAll => {
                self.copies.wait_all(env, active);
                Ok(())
            }
            Op::LoadMatrix(matrix) => self.matrix(env, matrix, active),
            Op::Mma(mma) => self.mma(mma, active),
            Op::Shuffle(shuffle) => self.shuffle(shuffle, active),
            Op::Vote { mode, d, pred, negated, members } => self.vote(*mode, *d, *pred, *negated, *members, active),
            Op::Match { all, wide, d, d2, a, members } => self.matching(*all, *wide, [*d, *d2, *a, *members], active),
            Op::Redux { op, d, a, members } => self.redux(*op, *d, *a, *members, active),
            Op::ActiveMask { d } => {
                put(&mut self.regs, *d, active, &[active; LANES]);
                Ok(())
            }
            Op::Elect { d, pred, members } => self.elect(*d, *pred, *members, active),
            Op::WarpBarrier { members } => {
                self.check_members(*members, active, "bar.warp.sync")?;
                env.shared.warp_barrier(self.index);
                Ok(())
            }
            Op::Trap => stop("trap"),
            Op::Alu { .. } | Op::Branch { .. } | Op::BranchTable { .. } | Op::Exit | Op::Barrier { .. } => Ok(()),
        }
    }

    /// An instruction on singles with `.ftz` or `.sat`.
    fn single(&mut self, run: AluFn, alu: &Alu, float: FloatMode, active: u32) -> Result<(), Stop> {
        let mut alu = *alu;
        if float.flush {
            let sources = [&mut alu.a, &mut alu.b, &mut alu.c];
            for (source, scratch) in sources.into_iter().zip(SCRATCH).take(usize::from(float.sources)) {
                let values = self.regs.narrow[usize::from(*source)];
                self.regs.narrow[usize::from(scratch)] = values.map(|bits| flush(f32::from_bits(bits)).to_bits());
                *source = scratch;
            }
        }
        run(&mut self.regs, &alu, active)?;
        if float.is_test {
            return Ok(());
        }
        let mut out = self.regs.narrow[usize::from(alu.d)];
        for bits in &mut out {
            let mut value = f32::from_bits(*bits);
            if float.flush {
                value = flush(value);
            }
            if float.saturate {
                // NaN becomes zero, and so does -0.
                value = if value > 0.0 { value.min(1.0) } else { 0.0 };
            }
            *bits = value.to_bits();
        }
        put(&mut self.regs, alu.d, active, &out);
        Ok(())
    }
}
