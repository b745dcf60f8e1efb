//! Products of matrices, from the registers up: vectors, tiles, panels, blocks, threads.
//!
//! Guarantees the same bits for the same shape on every machine and for every number of threads. Each element of the
//! result is a sum over blocks of k in order; each block is one chain of fused multiply-adds. The blocks depend on k
//! alone ([`block_depth`], [`drive::split_depth`]).
//!
//! The plan is that of BLIS (Van Zee and van de Geijn, 2015): operands are packed into panels that stream through the
//! caches, and a tile of C stays in registers. Packing reads its operand through the trait `PanelSource`, so transposed
//! operands and the sliding windows of convolutions need no copy of their own.

mod attention;
mod column;
mod copy;
mod depthwise;
mod direct;
mod dots;
mod drive;
mod filter;
mod grid;
mod groups;
mod heights;
#[cfg(target_arch = "x86_64")]
mod moves;
mod narrow;
mod near;
mod one_channel;
mod one_tap;
mod pack;
mod padding;
mod pairs;
mod parts;
mod peak;
mod planes;
#[cfg(target_arch = "x86_64")]
mod processor;
mod scratch;
mod shallow;
mod simd;
mod sliding;
mod small;
mod softmax;
mod split_k;
mod stored;
mod strip;
mod sums;
mod tile;
mod turned;
mod unrolled;
#[cfg(target_arch = "x86_64")]
mod wide;
mod window;

use std::ops::{Add, Range};

pub(crate) use attention::{HeadGradients, HeadOperand, HeadResult, HeadTerms, Heads};
pub(crate) use column::ColumnExtents;
use column::{ColumnKernel, ColumnKernels};
use depthwise::{DepthwiseGradient, DepthwiseSums};
pub(crate) use depthwise::{DepthwiseTaps, has_vectors, whole_vectors};
pub(crate) use direct::{ConvPart, DirectConv};
pub(crate) use dots::{Dots, SIDE_BY_SIDE, is_of_dots, multiply_dots};
#[cfg(test)]
pub(crate) use drive::ParallelFor;
pub(crate) use drive::{Engine, Output, Product, is_split, split_depth};
pub(crate) use filter::{FilterGradient, has_many_parts, images_of_task, lines_of_chain};
pub(crate) use grid::{is_one_task, share};
use narrow::Narrow;
pub(crate) use narrow::is_narrow;
pub(crate) use near::{fills_vectors, is_near};
use one_channel::OneChannel;
use pack::CHUNK;
pub(crate) use pack::{Strided, Taps};
use pairs::PhasePair;
use planes::Deinterleave;
pub(crate) use scratch::{with_bytes, with_scratch};
use shallow::Shallow;
pub(crate) use shallow::is_shallow;
use sliding::Sliding;
use small::Unpacked;
pub(crate) use small::{MOST_TURNED, is_unpacked, multiply_turned, multiply_unpacked};
pub(crate) use softmax::SoftmaxReal;
use strip::Column;
use tile::{Block, Lines};
pub(crate) use window::{PixelRows, TapRows, Window, WindowAxis};

use super::plain::Plain;

/// An element type that products are computed in: `f32` or `f64`.
pub(crate) trait Real: Plain + Add<Output = Self> {
    /// +0.
    const ZERO: Self;

    /// `self * y + z`, rounded once.
    fn fused(self, y: Self, z: Self) -> Self;

    /// The kernels for `level`, which the machine must have.
    fn kernels(level: Level) -> Kernels<Self>;
}

/// An instruction set for which kernels exist, and how products use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// x86-64 with AVX-512F, also on shorter vectors (AVX-512VL), and a nearest cache with room beside a column panel.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The same instructions with a smaller nearest cache.
    #[cfg(target_arch = "x86_64")]
    Avx512Small,
    /// x86-64 with AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64-bit Arm.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// Any machine.
    Portable,
}

impl Level {
    /// The levels that run on this machine, its own first.
    pub(crate) fn available() -> impl Iterator<Item = Level> {
        #[cfg(target_arch = "x86_64")]
        let has_512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        #[cfg(target_arch = "x86_64")]
        let [first, second] = processor::levels_of_512(if has_512 { processor::near_cache() } else { None });
        [
            #[cfg(target_arch = "x86_64")]
            (first, has_512),
            #[cfg(target_arch = "x86_64")]
            (second, has_512),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")),
            #[cfg(target_arch = "aarch64")]
            (Level::Neon, true),
            (Level::Portable, true),
        ]
        .into_iter()
        .filter_map(|(level, present)| present.then_some(level))
    }

    /// The instruction set as vendors write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Small => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "AVX2 and FMA",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "NEON",
            Level::Portable => "no vector extensions",
        }
    }

    /// The fastest level this machine has.
    pub(crate) fn best() -> Level {
        Level::available().next().unwrap_or(Level::Portable)
    }
}

/// How a row panel is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// For each step of k, all rows of the panel: quick to write where rows are neighbours in memory.
    Interleaved,
    /// For each [`CHUNK`] steps of k, these steps row by row: quick to write where steps are neighbours in memory.
    Chunked,
}

/// The kernels of one level, and the shapes of their panels.
#[derive(Clone, Copy)]
pub(crate) struct Kernels<T> {
    /// Heights of a row panel; the first is used for all but the last panel of a block.
    heights: [usize; 3],
    /// Width of a column panel.
    width: usize,
    /// Computes a block of C.
    block: unsafe fn(&Block<T>),
    /// The same from column panels of twice the width, where these are quicker.
    wide: Option<unsafe fn(&Block<T>)>,
    /// Computes a block of C straight from an image.
    lines: unsafe fn(&Lines<'_, T>),
    /// The same for an image of one channel, where there are registers enough for the taps of a line.
    one_channel: Option<unsafe fn(&OneChannel<'_, T>)>,
    /// The same for two phases of a gradient of images, where there are registers enough for a tile of them.
    pairs: Option<unsafe fn(&PhasePair<'_, T>)>,
    /// Computes the chains of a filter's gradient for some taps at once, where there are registers enough.
    sliding: Option<unsafe fn(&Sliding<T>)>,
    /// Computes a few columns of a block of C from an image in planes.
    planes: unsafe fn(&Lines<'_, T>),
    /// Copies pixels to planes.
    spread: unsafe fn(&Deinterleave<T>),
    /// Computes sums over taps for each channel of an image.
    depthwise_sums: unsafe fn(&DepthwiseSums<'_, T>),
    /// Computes sums over pixels for each tap and channel.
    depthwise_gradient: unsafe fn(&DepthwiseGradient<'_, T>),
    /// Computes a small product.
    unpacked: unsafe fn(&Unpacked<T>),
    /// Computes elements of products of few of them.
    dots: unsafe fn(&Dots<T>),
    /// Computes a matrix times some vectors.
    columns: ColumnKernels<T, T>,
    /// The same of a matrix of bits of `bf16`, and of `f16`, where there are instructions that convert them.
    half_columns: Option<[ColumnKernels<u16, T>; 2]>,
    /// The most vectors for which rows of a matrix are turned to lanes at once.
    turned_vectors: usize,
    /// Computes a product of few columns.
    narrow: unsafe fn(&Narrow<T>),
    /// Computes a product of few steps.
    shallow: unsafe fn(&Shallow<T>),
    /// Computes chains of fused multiply-adds on registers.
    chains: unsafe fn(usize, *const T) -> T,
    /// Elements of a vector, and of the shortest one.
    lanes: usize,
    least_lanes: usize,
    /// Whether eight columns have tiles in planes.
    exchanges: bool,
    /// Whether sixteen of them have, because a vector of channels, with a load for each multiplication, waits for loads.
    waits_for_loads: bool,
    /// Whether tasks copy panels of any B, whose tiles then find them in the nearest cache; it is too small for that at one
    /// level, which copies those of a B in memory alone.
    is_quick: bool,
}

impl<T> Kernels<T> {
    /// Whether `lines` reads no more of a B of `cols` columns than there is, so that B need not be packed.
    fn reads_whole(&self, cols: usize) -> bool {
        let is_vector = cols.is_power_of_two() && (self.least_lanes..=self.lanes).contains(&cols);
        is_vector || cols.is_multiple_of(self.width)
    }

    /// Whether vectors are shorter than a cache line.
    fn is_short(&self) -> bool {
        self.lanes * size_of::<T>() < LINE
    }

    /// The row panels of a block of these rows, each as its rows.
    fn row_panels(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> + Clone + use<T> {
        let (heights, nv) = (self.heights, self.width / self.lanes);
        (0..rows.len().div_ceil(heights[0])).map(move |index| {
            let [start, end] = tile::row_panel(heights, nv, rows.len(), index);
            rows.start + start..rows.start + end
        })
    }

    /// Rows of a task from which on B is worth a copy, and tiles are wide: of a B in memory, all of more than one row panel,
    /// as its steps are no streams that processors foresee.
    fn many_rows(&self, is_far: bool) -> usize {
        let few = if is_far { 1 } else { FEW_READERS[usize::from(self.is_short())] };
        self.heights[0] * few + 1
    }

    /// Columns of a panel of wide tiles, if there are such.
    fn most_width(&self) -> usize {
        if self.wide.is_some() { 2 * self.width } else { self.width }
    }

    /// Columns of a panel of a task of so many rows and columns, with a B in memory or not: more of them are wide tiles. Of few
    /// panels, the first, which other work hides least of, is too large a part.
    fn product_width(&self, rows: usize, cols: usize, is_far: bool) -> usize {
        const PANELS: usize = 3;
        let is_wide = rows >= self.many_rows(is_far) && cols >= PANELS * self.most_width();
        if is_wide { self.most_width() } else { self.width }
    }

    /// The height of the panel that holds `rows` rows.
    fn height_for(&self, rows: usize) -> usize {
        let [m0, m1, m2] = self.heights;
        if rows > m1 {
            m0
        } else if rows > m2 {
            m1
        } else {
            m2
        }
    }
}

/// Row panels of a task that read B too few times to pay for a copy of it: on vectors of a cache line, which read it in
/// place at little cost, and on shorter ones.
const FEW_READERS: [usize; 2] = [3, 1];

/// Bytes of a cache line.
const LINE: usize = 64;

/// Whether vectors are shorter than a cache line.
const fn is_short<S: simd::Simd>() -> bool {
    S::LANES * size_of::<S::Elem>() < LINE
}

/// Longest chain of one block: a column panel of this depth and a row panel fit into a first-level cache.
const MAX_DEPTH: usize = 256;

/// Length of the chains into which `k` steps are cut; depends on `k` alone, for it decides the bits of the result.
pub(crate) fn block_depth(k: usize) -> usize {
    let blocks = k.div_ceil(MAX_DEPTH).max(1);
    k.div_ceil(blocks).next_multiple_of(CHUNK)
}

/// Instantiates the kernels of one vector type inside functions that enable its instruction set.
macro_rules! kernels {
    (
        $vector:ty, $features:literal, $m0:literal $m1:literal $m2:literal, $nv:literal,
        lines $l0:literal $l1:literal $l2:literal $l3:literal,
        or $n0:literal $n1:literal $n2:literal $n3:literal
    ) => {{
        type Elem = <$vector as simd::Simd>::Elem;

        #[target_feature(enable = $features)]
        unsafe fn block(x: &Block<Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { tile::block::<$vector, $m0, $m1, $m2, $nv>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn lines(x: &Lines<'_, Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { tile::lines::<$vector, $l0, $l1, $l2, $l3, $nv, $n0, $n1, $n2, $n3>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn planes(x: &Lines<'_, Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { planes::planes::<$vector>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn spread(x: &Deinterleave<Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { planes::spread::<$vector>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn depthwise_sums(x: &DepthwiseSums<'_, Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { depthwise::depthwise_sums::<$vector>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn depthwise_gradient(x: &DepthwiseGradient<'_, Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { depthwise::depthwise_gradient::<$vector>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn unpacked(x: &Unpacked<Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { small::unpacked::<$vector>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn dots(x: &Dots<Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { dots::dots(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn column(x: &Column<Elem, Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { column::column::<$vector, stored::AsStored>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn turned(x: &Column<Elem, Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { turned::turned::<$vector, stored::AsStored>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn narrow(x: &Narrow<Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { narrow::narrow::<$vector>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn shallow(x: &Shallow<Elem>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { shallow::shallow::<$vector>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn chains(steps: usize, half: *const Elem) -> Elem {
            // SAFETY: handed on; the features are enabled here.
            unsafe { peak::chains::<$vector>(steps, half) }
        }

        let [lanes, least_lanes] = [<$vector as simd::Simd>::LANES, simd::least_lanes::<$vector>()];
        Kernels {
            heights: [$m0, $m1, $m2],
            width: $nv * lanes,
            block,
            wide: None,
            lines,
            one_channel: None,
            pairs: None,
            sliding: None,
            planes,
            spread,
            depthwise_sums,
            depthwise_gradient,
            unpacked,
            dots,
            columns: [column, turned],
            half_columns: None,
            turned_vectors: turned::most_vectors::<$vector>(),
            narrow,
            shallow,
            chains,
            lanes,
            least_lanes,
            exchanges: simd::exchanges::<$vector>(),
            waits_for_loads: true,
            is_quick: true,
        }
    }};
}

/// The kernels of one vector type with AVX-512: beside the usual ones, those that need 32 vector registers.
#[cfg(target_arch = "x86_64")]
macro_rules! avx512 {
    ($vector:ty, $elem:ty, $level:expr) => {{
        macro_rules! enabled {
            ($name:ident, $argument:ty) => {{
                #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
                unsafe fn $name(x: &$argument) {
                    // SAFETY: handed on; the features are enabled here.
                    unsafe { $name::$name::<$vector>(x) }
                }

                $name as unsafe fn(&$argument)
            }};
        }

        Kernels {
            is_quick: $level == Level::Avx512,
            waits_for_loads: $level == Level::Avx512 || !processor::multiplies_in_halves(),
            wide: ($level == Level::Avx512).then_some(enabled!(wide, Block<$elem>)),
            one_channel: Some(enabled!(one_channel, OneChannel<'_, $elem>)),
            pairs: Some(enabled!(pairs, PhasePair<'_, $elem>)),
            sliding: Some(enabled!(sliding, Sliding<$elem>)),
            ..kernels!($vector, "avx512f,avx512vl,avx2,fma", 12 8 4, 2, lines 14 8 6 4, or 16 14 8 4)
        }
    }};
}

/// A matrix of 16-bit floats times some vectors, of bits of `bf16` and of `f16`, if the processor converts them.
#[cfg(target_arch = "x86_64")]
macro_rules! half_columns {
    ($vector:ty, $features:literal) => {{
        #[target_feature(enable = $features)]
        unsafe fn half_column<const F16: bool>(x: &Column<u16, f32>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { column::column::<$vector, stored::Widened<F16>>(x) }
        }

        #[target_feature(enable = $features)]
        unsafe fn turned_half<const F16: bool>(x: &Column<u16, f32>) {
            // SAFETY: handed on; the features are enabled here.
            unsafe { turned::turned::<$vector, stored::Widened<F16>>(x) }
        }

        is_x86_feature_detected!("f16c").then_some([
            [half_column::<false> as ColumnKernel<u16, f32>, turned_half::<false>],
            [half_column::<true>, turned_half::<true>],
        ])
    }};
}

/// The kernels of the portable level, on vectors of `N` lanes.
fn portable<T: Real, const N: usize>() -> Kernels<T> {
    Kernels {
        heights: [4, 2, 1],
        width: 2 * N,
        block: tile::block::<simd::Portable<T, N>, 4, 2, 1, 2>,
        wide: None,
        lines: tile::lines::<simd::Portable<T, N>, 4, 3, 2, 1, 2, 4, 3, 2, 1>,
        one_channel: None,
        pairs: None,
        sliding: None,
        planes: planes::planes::<simd::Portable<T, N>>,
        spread: planes::spread::<simd::Portable<T, N>>,
        depthwise_sums: depthwise::depthwise_sums::<simd::Portable<T, N>>,
        depthwise_gradient: depthwise::depthwise_gradient::<simd::Portable<T, N>>,
        unpacked: small::unpacked::<simd::Portable<T, N>>,
        dots: dots::dots::<T>,
        columns: [
            column::column::<simd::Portable<T, N>, stored::AsStored>,
            turned::turned::<simd::Portable<T, N>, stored::AsStored>,
        ],
        half_columns: None,
        turned_vectors: turned::most_vectors::<simd::Portable<T, N>>(),
        narrow: narrow::narrow::<simd::Portable<T, N>>,
        shallow: shallow::shallow::<simd::Portable<T, N>>,
        chains: peak::chains::<simd::Portable<T, N>>,
        lanes: <simd::Portable<T, N> as simd::Simd>::LANES,
        least_lanes: simd::least_lanes::<simd::Portable<T, N>>(),
        exchanges: false,
        waits_for_loads: true,
        is_quick: true,
    }
}

/// Operations of an [`fma_task`] in single precision, on vectors of any length; half as many in double precision.
pub(crate) const FMA_TASK_FLOPS: usize = 1 << 22;

/// A task that computes on registers alone, as fast as the machine can.
pub(crate) fn fma_task<T: Real>() {
    let kernels = T::kernels(Level::best());
    let flops = FMA_TASK_FLOPS * size_of::<f32>() / size_of::<T>();
    let half = std::hint::black_box(T::from_f64(0.5));
    // SAFETY: the level is present, and the number is readable.
    let sum = unsafe { (kernels.chains)(flops / (2 * peak::CHAINS * kernels.lanes), &raw const half) };
    std::hint::black_box(sum);
}

impl Real for f32 {
    const ZERO: f32 = 0.0;

    #[inline(always)]
    fn fused(self, y: f32, z: f32) -> f32 {
        self.mul_add(y, z)
    }

    fn kernels(level: Level) -> Kernels<f32> {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Small => Kernels {
                half_columns: half_columns!(simd::Avx512F32, "avx512f,avx512vl,avx2,fma,f16c"),
                ..avx512!(simd::Avx512F32, f32, level)
            },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Kernels {
                half_columns: half_columns!(simd::Avx2F32, "avx2,fma,f16c"),
                ..kernels!(simd::Avx2F32, "avx2,fma", 6 4 2, 2, lines 6 5 4 3, or 12 8 6 4)
            },
            #[cfg(target_arch = "aarch64")]
            Level::Neon => kernels!(simd::NeonF32, "neon", 8 4 2, 3, lines 8 6 4 2, or 8 6 4 2),
            Level::Portable => portable::<f32, 4>(),
        }
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;

    #[inline(always)]
    fn fused(self, y: f64, z: f64) -> f64 {
        self.mul_add(y, z)
    }

    fn kernels(level: Level) -> Kernels<f64> {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Small => avx512!(simd::Avx512F64, f64, level),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => kernels!(simd::Avx2F64, "avx2,fma", 6 4 2, 2, lines 6 5 4 3, or 12 8 6 4),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => kernels!(simd::NeonF64, "neon", 8 4 2, 3, lines 8 6 4 2, or 8 6 4 2),
            Level::Portable => portable::<f64, 2>(),
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn panels_are_those_of_wide_tiles() {
        use super::Level;

        // Row panels and column panels are those that wide tiles read.
        let kernels = <f32 as super::Real>::kernels(Level::Avx512);
        assert_eq!((kernels.heights, 2 * kernels.width), (super::wide::HEIGHTS, super::wide::VECTORS * kernels.lanes));
        let width = |rows: usize, cols: usize| kernels.product_width(rows, cols, false);
        assert_eq!([width(37, 192), width(36, 192), width(37, 191)], [64, 32, 32]);
        // Of a B in memory, any tile that no row panel is too low for.
        let far = |rows: usize| kernels.product_width(rows, 192, true);
        assert_eq!([far(13), far(12)], [64, 32]);
    }
}
