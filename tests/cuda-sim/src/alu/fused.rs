//! Multiply-add, rounded once. The processor's own instruction is used where it has one.

use crate::fault::Stop;
use crate::lanes::{Alu, F32, F64, Regs, Row, map3};
use crate::types::Ty;

/// Fused multiply-adds.
pub(super) const TABLE: &[Row] = &[
    Row { name: "fma.rn.f32", to: Ty::F32, from: &[Ty::F32; 3], run: fma32 },
    Row { name: "fma.rn.f64", to: Ty::F64, from: &[Ty::F64; 3], run: fma64 },
];

fn fma32(regs: &mut Regs, alu: &Alu, mask: u32) -> Result<(), Stop> {
    #[cfg(target_arch = "x86_64")]
    if has_fma() {
        // SAFETY: the processor has AVX2 and FMA, which is all that the function asks for.
        unsafe { fast32(regs, alu, mask) };
        return Ok(());
    }
    map3::<F32, F32, F32, F32>(regs, alu, mask, f32::mul_add);
    Ok(())
}

fn fma64(regs: &mut Regs, alu: &Alu, mask: u32) -> Result<(), Stop> {
    #[cfg(target_arch = "x86_64")]
    if has_fma() {
        // SAFETY: the processor has AVX2 and FMA, which is all that the function asks for.
        unsafe { fast64(regs, alu, mask) };
        return Ok(());
    }
    map3::<F64, F64, F64, F64>(regs, alu, mask, f64::mul_add);
    Ok(())
}

#[cfg(target_arch = "x86_64")]
fn has_fma() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// The plain loop, compiled with the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fast32(regs: &mut Regs, alu: &Alu, mask: u32) {
    map3::<F32, F32, F32, F32>(regs, alu, mask, |a, b, c| a.mul_add(b, c));
}

/// The plain loop, compiled with the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fast64(regs: &mut Regs, alu: &Alu, mask: u32) {
    map3::<F64, F64, F64, F64>(regs, alu, mask, |a, b, c| a.mul_add(b, c));
}

/// A tile of 16 by 8 sums plus a product of 16 by `depth` with `depth` by 8, by rows: `c[i][j] += a[i][k] * b[k][j]`.
///
/// Terms are added one after the other in the order of `k`.
pub(crate) fn multiply_tile(a: &[[f32; 16]; 16], b: &[[f32; 8]; 16], c: &mut [[f32; 8]; 16], depth: usize) {
    #[cfg(target_arch = "x86_64")]
    if has_fma() {
        // SAFETY: the processor has AVX2 and FMA, which is all that the function asks for.
        unsafe { fast_tile(a, b, c, depth) };
        return;
    }
    plain_tile(a, b, c, depth);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fast_tile(a: &[[f32; 16]; 16], b: &[[f32; 8]; 16], c: &mut [[f32; 8]; 16], depth: usize) {
    plain_tile(a, b, c, depth);
}

#[inline(always)]
fn plain_tile(a: &[[f32; 16]; 16], b: &[[f32; 8]; 16], c: &mut [[f32; 8]; 16], depth: usize) {
    for (a, c) in a.iter().zip(c) {
        for k in 0..depth {
            for (b, c) in b[k].iter().zip(c.iter_mut()) {
                *c = a[k].mul_add(*b, *c);
            }
        }
    }
}
