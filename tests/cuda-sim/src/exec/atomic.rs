//! Atomics: lane by lane in ascending order.
//!
//! Singles that are added in global memory are flushed: subnormal ones count as zero, before and after.

use super::Env;
use super::access::{check_aligned, from_bytes, in_lane, visitor};
use super::warp::Warp;
use crate::check::Touch;
use crate::fault::{Stop, stop};
use crate::kernel::{Atomic, AtomicOp, Space};
use crate::lanes::lanes;
use crate::round::{self, flush};
use crate::types::Ty;

impl Warp {
    pub(super) fn atomic(&mut self, env: &mut Env<'_>, atomic: &Atomic, active: u32) -> Result<(), Stop> {
        let size = atomic.ty.size();
        for lane in lanes(active) {
            let (space, at) = self.resolve(atomic.space, atomic.address, lane);
            check_aligned(at, size, lane)?;
            let [a, b] = [atomic.a, atomic.b].map(|index| match size {
                8 => self.regs.wide[usize::from(index)][lane],
                _ => u64::from(self.regs.narrow[usize::from(index)][lane]),
            });
            let memory = match space {
                Space::Shared => env.shared.atomic(at, size, self.index, lane),
                Space::Local => return stop("atomic in local memory"),
                Space::Global | Space::Generic => {
                    env.counts.global_loaded += size as u64;
                    env.counts.global_stored += size as u64;
                    env.global.access(at, size, Touch::Atomic, visitor(env.owner, env.shared, self.index))
                }
            };
            let memory = memory.map_err(|what| in_lane(what, lane))?;
            let old = from_bytes(memory);
            let is_flushed = space != Space::Shared && (atomic.op, atomic.ty) == (AtomicOp::Add, Ty::F32);
            let new = if is_flushed { add_flushed(old, a) } else { combine(atomic.op, atomic.ty, old, a, b) };
            memory.copy_from_slice(&new.to_le_bytes()[..size]);
            match atomic.d {
                Some(d) if size == 8 => self.regs.wide[usize::from(d)][lane] = old,
                Some(d) => self.regs.narrow[usize::from(d)][lane] = old as u32,
                None => {}
            }
        }
        Ok(())
    }
}

/// The sum of two singles as global memory makes it.
fn add_flushed(old: u64, a: u64) -> u64 {
    let [old, a] = [old, a].map(|bits| flush(f32::from_bits(bits as u32)));
    u64::from(flush(old + a).to_bits())
}

/// The value that an atomic writes.
fn combine(op: AtomicOp, ty: Ty, old: u64, a: u64, b: u64) -> u64 {
    match op {
        AtomicOp::Add => match ty {
            Ty::F32 => u64::from((f32::from_bits(old as u32) + f32::from_bits(a as u32)).to_bits()),
            Ty::F64 => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
            Ty::F16 => half_add(old as u16, a as u16),
            Ty::F16x2 => half_add(old as u16, a as u16) | half_add((old >> 16) as u16, (a >> 16) as u16) << 16,
            Ty::Bf16 => bf16_add(old as u16, a as u16),
            Ty::Bf16x2 => bf16_add(old as u16, a as u16) | bf16_add((old >> 16) as u16, (a >> 16) as u16) << 16,
            _ => old.wrapping_add(a),
        },
        AtomicOp::Min | AtomicOp::Max => {
            let order = |bits: u64| match ty {
                Ty::S32 => i128::from(bits as i32),
                Ty::S64 => i128::from(bits as i64),
                _ => i128::from(bits),
            };
            if (order(a) < order(old)) == (op == AtomicOp::Min) { a } else { old }
        }
        AtomicOp::And => old & a,
        AtomicOp::Or => old | a,
        AtomicOp::Xor => old ^ a,
        AtomicOp::Exch => a,
        AtomicOp::Cas => {
            if old == a {
                b
            } else {
                old
            }
        }
        AtomicOp::Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
    }
}

fn half_add(a: u16, b: u16) -> u64 {
    u64::from(round::to_f16(round::from_f16(a) + round::from_f16(b)))
}

fn bf16_add(a: u16, b: u16) -> u64 {
    u64::from(round::to_bf16(round::from_bf16(a) + round::from_bf16(b)))
}
