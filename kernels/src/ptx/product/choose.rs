//! The shape of the tiles and the number of parts of the sums, by a rule on the shape of the product alone.
//!
//! The reasons for the sizes, on a device of 4 x 32 lanes and 128 bytes of shared memory per clock and multiprocessor:
//!
//! - Single precision, 128x128: a lane holds 8x8 sums and reads 16 numbers for 64 multiplications. The 32 lanes of a
//!   warp cover 32x64 sums, so that they read 96 different numbers, 6 bytes for each cycle of a warp's arithmetic: a
//!   quarter of what four warps at once may read. 64 sums, 32 operands and 8 numbers on their way fit 128 registers,
//!   so that two blocks of 256 lanes share a multiprocessor.
//! - Tensor cores, 128x128 in warps of 64x64: a step of 16 in k reads 4 KiB for 65536 multiplications. A
//!   multiprocessor of an H200 does about 1300 of these per clock through `mma.sync`, so that shared memory is busy
//!   for 32 of 50 clocks; warps of 64x32 would need 24 of 25. 128 sums and 32 operands leave room for two blocks of
//!   128 lanes, and four stages of 16 KiB cover the latency of memory twice over. At that rate such tiles read 40
//!   bytes per clock and multiprocessor, more than the cache of the device gives to all: products of many blocks have
//!   tiles of 128x256, which read 30.
//! - Smaller tiles give small products enough blocks; long sums are cut instead where there are still too few. A
//!   multiprocessor then tends to have few warps, whose arithmetic on a tile takes less than the way to memory, so that
//!   more tiles are under way: four stages.

use retape_runtime::DType;

use super::problem::{Gather, Problem};
use crate::ptx::Target;

/// The units that multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MathUnit {
    /// Fused multiply-adds: each lane holds `thread` sums, a warp is `lanes` of them.
    Simt { thread: [usize; 2], lanes: [usize; 2] },
    /// Tensor cores.
    Mma,
}

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) engine: MathUnit,
    /// The dtype of the tiles in shared memory.
    pub(super) element: DType,
    /// The dtype of the sums.
    pub(super) sum: DType,
    /// Warps of a block, along rows and columns.
    pub(super) warps: [usize; 2],
    /// Rows and columns of a warp's tile.
    pub(super) warp: [usize; 2],
    /// Elements of a tile along the sums.
    pub(super) depth: usize,
    /// Tiles in shared memory at a time.
    pub(super) stages: usize,
    /// Blocks that should fit a multiprocessor.
    pub(super) min_blocks_per_sm: usize,
}

/// How the sums are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitK {
    pub(super) n: usize,
    /// The length of all but the last; a multiple of the depth of tiles.
    pub(super) len: usize,
}

/// The largest tile of a result that is small.
const SMALL: usize = 64 * 64;
/// Blocks that keep a large device busy.
const BLOCKS: usize = 100;
/// Blocks that cutting the sums aims at.
const WANTED: usize = 256;
/// The least length of a part of the sums.
const PART: usize = 256;
/// The largest number of parts.
const PARTS: usize = 64;

impl Config {
    /// Rows and columns of a block's tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        [self.warps[0] * self.warp[0], self.warps[1] * self.warp[1]]
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> usize {
        self.warps[0] * self.warps[1] * 32
    }

    const fn simt(sum: DType, thread: [usize; 2], lanes: [usize; 2], warps: [usize; 2], depth: usize) -> Config {
        Config {
            engine: MathUnit::Simt { thread, lanes },
            element: sum,
            sum,
            warps,
            warp: [thread[0] * lanes[0], thread[1] * lanes[1]],
            depth,
            stages: 2,
            min_blocks_per_sm: 2,
        }
    }

    const fn mma(element: DType, warp: [usize; 2], warps: [usize; 2], target: Target) -> Config {
        // A line of a tile along the sums has 64 bytes.
        let depth = 64 / element.size();
        let stages = if target.sm >= 80 { 4 } else { 2 };
        Config { engine: MathUnit::Mma, element, sum: DType::F32, warps, warp, depth, stages, min_blocks_per_sm: 2 }
    }

    /// The configuration for a problem.
    pub(super) fn choose(problem: &Problem, target: Target) -> Config {
        let candidates = match tensor_element(problem, target) {
            Some(element) => tensor_candidates(element, problem, target),
            None if problem.c.dtype == DType::F64 => vec![
                Config::simt(DType::F64, [8, 8], [4, 8], [4, 1], 8),
                Config::simt(DType::F64, [4, 4], [4, 8], [2, 1], 16),
                Config::simt(DType::F64, [4, 2], [4, 8], [1, 4], 16),
                Config::simt(DType::F64, [2, 4], [8, 4], [4, 1], 16),
            ],
            None => vec![
                Config::simt(DType::F32, [8, 8], [4, 8], [4, 2], 8),
                Config::simt(DType::F32, [8, 4], [4, 8], [2, 2], 16),
                Config::simt(DType::F32, [4, 4], [4, 8], [2, 1], 16),
                Config::simt(DType::F32, [4, 4], [4, 8], [1, 4], 16),
                Config::simt(DType::F32, [4, 4], [8, 4], [4, 1], 16),
            ],
        };
        let area = |config: &Config| (config.waste(problem) * 1024.0) as usize;
        let least = || candidates.iter().min_by_key(|config| (area(config), usize::MAX - config.blocks(problem)));
        let best = *candidates.iter().find(|config| config.fits(problem)).or_else(least).unwrap_or(&candidates[0]);
        if target.sm < 80 {
            // Without asynchronous copies the next tiles wait in registers, which are too few for two blocks then.
            return Config { min_blocks_per_sm: 1, ..best };
        }
        match best.engine {
            MathUnit::Simt { .. } if best.tile().iter().product::<usize>() <= SMALL => Config { stages: 4, ..best },
            MathUnit::Simt { .. } | MathUnit::Mma => best,
        }
    }

    /// The number of tiles of the result.
    pub(super) fn blocks(&self, problem: &Problem) -> usize {
        let [rows, cols] = self.tile();
        problem.m.div_ceil(rows) * problem.n.div_ceil(cols) * problem.n_products()
    }

    /// Whether the product is large enough for these tiles.
    fn fits(&self, problem: &Problem) -> bool {
        let [rows, cols] = self.tile();
        let (waste, blocks) = if rows * cols > 128 * 128 { (1.1, 2 * BLOCKS) } else { (1.5, BLOCKS) };
        self.waste(problem) <= waste && self.blocks(problem) * self.most_parts(problem) >= blocks
    }

    /// How much larger the tiles are than the result.
    fn waste(&self, problem: &Problem) -> f64 {
        let [rows, cols] = self.tile();
        let along = |extent: usize, tile: usize| (extent.div_ceil(tile) * tile) as f64 / extent as f64;
        along(problem.m, rows) * along(problem.n, cols)
    }

    fn most_parts(&self, problem: &Problem) -> usize {
        (problem.k / PART).clamp(1, PARTS)
    }

    /// How the sums are cut: not at all if there are blocks enough.
    pub(super) fn split_k(&self, problem: &Problem) -> SplitK {
        let blocks = self.blocks(problem).max(1);
        let wanted = if blocks >= BLOCKS { 1 } else { WANTED / blocks };
        let n = wanted.min(self.most_parts(problem)).max(1);
        let len = problem.k.div_ceil(n).next_multiple_of(self.depth);
        SplitK { n: problem.k.div_ceil(len), len }
    }
}

/// The dtype that tensor cores can multiply for this problem, if any.
fn tensor_element(problem: &Problem, target: Target) -> Option<DType> {
    let element = match [problem.a.dtype, problem.b.dtype] {
        [DType::F16, DType::F16] => DType::F16,
        [DType::Bf16, DType::Bf16] if target.sm >= 80 => DType::Bf16,
        [DType::F32, DType::F32] if target.sm >= 80 && target.fast => DType::F32,
        _ => return None,
    };
    Some(element)
}

fn tensor_candidates(element: DType, problem: &Problem, target: Target) -> Vec<Config> {
    // Elements that are read one by one pass through registers, of which large tiles leave too few. More threads share
    // the copies where each row has an address of its own.
    let fine = |operand: &Gather| operand.grain().vec * operand.dtype.size() < 4;
    let uneven = |operand: &Gather| fine(operand) && !operand.is_affine();
    let sides = [&problem.a, &problem.b];
    let config = |warp, warps| Config::mma(element, warp, warps, target);
    if sides.into_iter().any(uneven) {
        return vec![config([16, 32], [4, 2]), config([16, 16], [2, 2])];
    }
    let mut candidates = Vec::new();
    if !sides.into_iter().any(fine) {
        if target.sm >= 80 {
            // Four stages have 100 KiB, which not all devices give to a block.
            let stages = if matches!(target.sm, 80 | 90..=110) { 4 } else { 3 };
            candidates.push(Config { min_blocks_per_sm: 1, stages, ..config([64, 64], [2, 4]) });
        }
        candidates.push(config([64, 64], [2, 2]));
    }
    candidates.extend([
        config([32, 32], [2, 2]),
        config([32, 16], [1, 2]),
        config([16, 32], [1, 4]),
        config([32, 16], [4, 1]),
    ]);
    candidates
}
