//! The second pass over parts of sums: adds them in order, one thread for each element. Without parts the sums are 0.

use super::epilogue::PtxEpilogue;
use super::index::{below, digits, mad, reach, special};
use super::place::{address, bits, element, rounded};
use super::problem::Problem;
use crate::ptx::{Class, PtxFunction, Reg, RegValue, ptx};
use retape_runtime::DType;

/// Threads of a block.
pub(super) const THREADS: usize = 256;

/// Writes the kernel; the parameters are the parts, then the result or what the epilogue has.
pub(super) fn emit(f: &mut PtxFunction, problem: &Problem, sum: DType, n_parts: usize, epilogue: Option<&PtxEpilogue>) {
    let total = problem.n_products() * problem.m * problem.n;
    let (block, thread) = (f.block_index(), special(f, "tid.x"));
    let index = mad(f, block, THREADS as i64, thread);
    let inside = below(f, index, total);
    let end = f.label();
    ptx!(f, "@!{inside} bra {end}");
    let (class, ty) = (Class::of(sum), bits(sum));
    let total_sum = f.reg(class);
    if sum == DType::F64 {
        ptx!(f, "mov.f64 {total_sum}, 0d0000000000000000");
    } else {
        ptx!(f, "mov.f32 {total_sum}, 0f00000000");
    }
    if n_parts > 0 {
        let parts = f.param(0);
        let mut at = reach(f, parts, index, sum.size() as i64);
        let mut values = Vec::new();
        for part in 0..n_parts {
            if part > 0 {
                at = super::index::shift(f, at, (total * sum.size()) as i64);
            }
            values.push(f.op(class, &format!("ld.global.{ty}"), format_args!("[{at}]")));
        }
        ptx!(f, "mov.{ty} {total_sum}, {}", values[0]);
        for value in &values[1..] {
            ptx!(f, "add.rn.{ty} {total_sum}, {total_sum}, {value}");
        }
    }
    let extents = problem.batch.iter().copied().chain([problem.m, problem.n]);
    let own = digits(f, index, extents.collect::<Vec<_>>().into_iter());
    let (batch, place) = own.split_at(problem.batch.len());
    let to = &problem.c;
    let place = element(f, to, &batch.into(), place[0], place[1]);
    let value = rounded(f, total_sum, to.dtype);
    match epilogue {
        Some(epilogue) => {
            let bases: Vec<Reg> = epilogue.others().enumerate().map(|(p, _)| f.param(1 + p)).collect();
            epilogue.emit(f, &bases, place, to.width, RegValue::new(to.dtype, value));
        }
        None => {
            let result = f.param(1);
            let at = address(f, result, place, to.width, to.dtype.size());
            ptx!(f, "st.global.{} [{at}], {value}", bits(to.dtype));
        }
    }
    f.place(end);
}
