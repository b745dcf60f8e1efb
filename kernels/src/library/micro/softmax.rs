//! The arithmetic of softmax on strips of scores, whose lanes are queries and whose rows are keys.
//!
//! Lanes do not meet, and each takes its keys in order, so bits do not depend on the width of vectors. The softmax is
//! online: its largest score and its sum are corrected as blocks of keys come in (Milakov and Gimelshein, "Online
//! normalizer calculation for softmax", 2018).

use super::{Level, Real};
use crate::expand::Transcendental;
use crate::library::number::Float;

/// Queries of a strip.
pub(crate) const STRIP: usize = 32;

/// An element type that attention is computed in.
pub(crate) trait SoftmaxReal: Real + Float + Transcendental {
    /// The kernels for `level`, which the machine must have.
    fn softmax_kernels(level: Level) -> SoftmaxKernels<Self>;
}

/// Rows of scores: element (key, lane) is at `key * stride + lane`.
pub(super) struct Scores<'a, T> {
    pub(super) data: &'a mut [T],
    pub(super) stride: usize,
    pub(super) rows: usize,
}

/// The softmax of each lane over the keys so far.
#[derive(Clone, Copy)]
pub(super) struct OnlineSoftmax<T> {
    /// The largest score.
    max: [T; STRIP],
    /// The sum of the weights: powers of e, whose exponents are scores less the largest, times `unit`.
    sum: [T; STRIP],
    /// A power of two that no more than all keys together make 1, so that sums of weighted values stay as small as values.
    unit: T,
    /// Weights of earlier keys times this are those that the new largest score gives them.
    pub(super) correction: [T; STRIP],
}

impl<T: SoftmaxReal> OnlineSoftmax<T> {
    /// The softmax over none of so many keys yet.
    pub(super) fn over(n_keys: usize) -> OnlineSoftmax<T> {
        let unit = T::from_f64(1.0 / n_keys.next_power_of_two() as f64);
        OnlineSoftmax { max: [T::LOWEST; STRIP], sum: [T::ZERO; STRIP], unit, correction: [T::ONE; STRIP] }
    }
}

/// The numbers of each lane that a gradient takes.
pub(super) struct LaneTerms<T> {
    /// The logarithm of the sum of the powers of e of all scores.
    pub(super) logsumexp: [T; STRIP],
    /// Subtracted from the cotangents of weights.
    pub(super) delta: [T; STRIP],
}

/// The kernels of one level.
#[derive(Clone, Copy)]
pub(crate) struct SoftmaxKernels<T> {
    /// Takes in scores, which become weights.
    pub(super) absorb: unsafe fn(&mut Scores<'_, T>, &mut OnlineSoftmax<T>),
    /// Multiplies rows by the numbers of their lanes.
    pub(super) scale: unsafe fn(&mut Scores<'_, T>, &[T; STRIP]),
    /// One over the sum, and the logarithm of the sum of the powers of e of the scores.
    pub(super) finish: unsafe fn(&OnlineSoftmax<T>) -> [[T; STRIP]; 2],
    /// Makes weights of scores, and cotangents of scores of those of weights.
    pub(super) differentiate: unsafe fn(&mut Scores<'_, T>, &mut Scores<'_, T>, &LaneTerms<T>),
}

/// Instantiates the kernels inside functions that enable an instruction set.
macro_rules! softmax_kernels {
    ($float:ty, $($features:literal)?) => {{
        $(#[target_feature(enable = $features)])?
        unsafe fn absorb(scores: &mut Scores<'_, $float>, state: &mut OnlineSoftmax<$float>) {
            absorb_lanes(scores, state);
        }

        $(#[target_feature(enable = $features)])?
        unsafe fn scale(rows: &mut Scores<'_, $float>, factors: &[$float; STRIP]) {
            scale_lanes(rows, factors);
        }

        $(#[target_feature(enable = $features)])?
        unsafe fn finish(state: &OnlineSoftmax<$float>) -> [[$float; STRIP]; 2] {
            finish_lanes(state)
        }

        $(#[target_feature(enable = $features)])?
        unsafe fn differentiate(
            scores: &mut Scores<'_, $float>,
            cotangents: &mut Scores<'_, $float>,
            terms: &LaneTerms<$float>,
        ) {
            differentiate_lanes(scores, cotangents, terms);
        }

        SoftmaxKernels { absorb, scale, finish, differentiate }
    }};
}

macro_rules! levels {
    ($($float:ty)*) => {$(
        impl SoftmaxReal for $float {
            fn softmax_kernels(level: Level) -> SoftmaxKernels<$float> {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 | Level::Avx512Small => softmax_kernels!($float, "avx512f,avx2,fma"),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => softmax_kernels!($float, "avx2,fma"),
                    #[cfg(target_arch = "aarch64")]
                    Level::Neon => softmax_kernels!($float, "neon"),
                    Level::Portable => softmax_kernels!($float,),
                }
            }
        }
    )*};
}

levels!(f32 f64);

impl<T> Scores<'_, T> {
    /// The rows from the first on.
    #[inline(always)]
    fn rows(&mut self) -> impl Iterator<Item = &mut [T; STRIP]> {
        self.data.chunks_mut(self.stride).take(self.rows).filter_map(|row| row.first_chunk_mut())
    }
}

#[inline(always)]
fn absorb_lanes<T: SoftmaxReal>(scores: &mut Scores<'_, T>, state: &mut OnlineSoftmax<T>) {
    // Copies, which no row of scores can be, stay in registers.
    let (before, unit) = (state.max, state.unit);
    let mut max = before;
    for row in scores.rows() {
        for (max, score) in max.iter_mut().zip(row) {
            // A NaN need not be the largest: its own weight makes the sum NaN.
            *max = if *score > *max { *score } else { *max };
        }
    }
    state.max = max;
    // Where all scores are -inf, their powers are 0 beside the first score that is larger.
    // Written from `max`: what is selected where it was read becomes a masked store, which is slow on some processors.
    let mut base = [T::ZERO; STRIP];
    for (lane, base) in base.iter_mut().enumerate() {
        *base = if max[lane] == T::LOWEST { T::ZERO } else { max[lane] };
        state.correction[lane] = (before[lane] - *base).exp_or_zero();
    }
    let mut sum = [T::ZERO; STRIP];
    for row in scores.rows() {
        for ((score, base), sum) in row.iter_mut().zip(&base).zip(&mut sum) {
            *score = (*score - *base).exp_or_zero() * unit;
            *sum = *sum + *score;
        }
    }
    for (lane, sum) in sum.into_iter().enumerate() {
        state.sum[lane] = state.sum[lane].fused(state.correction[lane], sum);
    }
}

#[inline(always)]
fn scale_lanes<T: SoftmaxReal>(rows: &mut Scores<'_, T>, factors: &[T; STRIP]) {
    for row in rows.rows() {
        for (x, factor) in row.iter_mut().zip(factors) {
            *x = *x * *factor;
        }
    }
}

#[inline(always)]
fn finish_lanes<T: SoftmaxReal>(state: &OnlineSoftmax<T>) -> [[T; STRIP]; 2] {
    let (mut inverse, mut logsumexp) = ([T::ZERO; STRIP], [T::ZERO; STRIP]);
    let results = inverse.iter_mut().zip(&mut logsumexp);
    for ((inverse, logsumexp), (sum, max)) in results.zip(state.sum.iter().zip(&state.max)) {
        *inverse = T::ONE / *sum;
        *logsumexp = *max + (*sum / state.unit).log();
    }
    [inverse, logsumexp]
}

#[inline(always)]
fn differentiate_lanes<T: SoftmaxReal>(
    scores: &mut Scores<'_, T>,
    cotangents: &mut Scores<'_, T>,
    terms: &LaneTerms<T>,
) {
    for (scores, cotangents) in scores.rows().zip(cotangents.rows()) {
        let lanes = terms.logsumexp.iter().zip(&terms.delta);
        for ((score, cotangent), (logsumexp, delta)) in scores.iter_mut().zip(cotangents).zip(lanes) {
            *score = (*score - *logsumexp).exp_or_zero();
            *cotangent = *score * (*cotangent - *delta);
        }
    }
}
