//! Machine code for loop nests at the full width of vectors of x86-64: AVX2 with fused multiply-add, and AVX-512.
//!
//! Guarantees, for the nests that it takes, code that is called as Cranelift's is and gives the same bits: values are
//! made by the same operations, lane by lane, and sums are combined in the order that the schedule fixes for four lanes.
//! Nests that need more than it has, such as calls and divisions of integers, are left to Cranelift.
//!
//! The stages: `function` has the frame; `nest`, `grid`, `strip` and `walk` walk the loops, ask `positions` which loads at
//! computed positions read rows, and ask `emit`, `cast`, `memory` and `reduce` for straight-line code over virtual registers
//! (`code`); `regs` and `branch` choose registers and write instructions (`ops`, `encode`).

mod branch;
mod cast;
mod code;
mod emit;
mod encode;
mod function;
mod grid;
mod memory;
mod nest;
mod ops;
mod past;
mod positions;
mod reduce;
mod regs;
mod strided;
mod strip;
#[cfg(test)]
mod tests;
mod walk;

use encode::Len;
use function::assembled;
pub(super) use past::may_store_past;

use crate::schedule::{LoopForm, Nest};

/// An instruction set with vectors wider than 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum WideIsa {
    /// AVX2 and fused multiply-add: 16 registers of 256 bits.
    Avx2,
    /// AVX-512 with its parts F, BW, DQ and VL: 32 registers of 512 bits, and mask registers.
    Avx512,
}

impl WideIsa {
    const fn has_masks(self) -> bool {
        matches!(self, WideIsa::Avx512)
    }

    const fn len(self) -> Len {
        match self {
            WideIsa::Avx2 => Len::Bits256,
            WideIsa::Avx512 => Len::Bits512,
        }
    }

    /// The level in the name of the machine, behind others.
    pub(super) const fn name(self) -> &'static str {
        match self {
            WideIsa::Avx2 => " nests=256",
            WideIsa::Avx512 => " nests=512",
        }
    }

    /// Elements of a vector value.
    const fn lanes(self) -> usize {
        self.len().bytes() / 4
    }

    const fn bits(self) -> usize {
        8 * self.len().bytes()
    }

    /// The widest level of this machine, within the width that `RETAPE_VECTOR_BITS` allows.
    pub(super) fn detect() -> Option<WideIsa> {
        WideIsa::widest(std::env::var("RETAPE_VECTOR_BITS").ok().as_deref(), WideIsa::is_present)
    }

    /// The widest level that is present and has no more bits than a text says; one that is no number says nothing.
    fn widest(bits: Option<&str>, is_present: impl Fn(WideIsa) -> bool) -> Option<WideIsa> {
        let most = bits.and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX);
        [WideIsa::Avx512, WideIsa::Avx2].into_iter().find(|&level| level.bits() <= most && is_present(level))
    }

    /// Whether this machine and its system have the level. Elsewhere than in the calling convention of System V there is
    /// none.
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    pub(super) fn is_present(self) -> bool {
        use std::arch::is_x86_feature_detected as has;
        match self {
            WideIsa::Avx2 => has!("avx2") && has!("fma") && has!("f16c"),
            WideIsa::Avx512 => {
                let parts = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
                parts && has!("bmi2") && has!("f16c")
            }
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(windows))))]
    pub(super) fn is_present(self) -> bool {
        false
    }
}

/// The code of one nest that is called for ranges of its items, or of nests that run whole, in order; `None` if one
/// has something that there is no code for here.
pub(super) fn machine_code(nests: &[&Nest], forms: &[LoopForm<'_>], level: WideIsa) -> Option<Vec<u8>> {
    assembled(nests, forms, level, u32::MAX).map(|code| code.bytes)
}
