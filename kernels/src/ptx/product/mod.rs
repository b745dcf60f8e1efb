//! Matrix products and convolutions.
//!
//! One writer of kernels serves all of them: a [`Problem`](problem::Problem) says where the elements of operands and
//! result lie, a [`Config`](choose::Config) what multiplies and in which tiles. The order of each sum follows from the
//! shape: along its index, or in parts of fixed length that a second launch adds in order.

mod accumulators;
mod choose;
mod conv;
mod emit;
mod epilogue;
mod index;
mod load;
mod matmul;
mod place;
mod problem;
mod split_k;
mod staging;
mod store;
mod tile;
mod vector;

use retape_runtime::DType;
use smallvec::{SmallVec, smallvec};

use self::choose::{Config, MathUnit};
use self::emit::Emission;
use self::epilogue::PtxEpilogue;
use self::problem::Problem;
use self::staging::StagingBuffer;
use self::store::TileStore;
use super::{Argument, Launch, Launches, PtxFunction, Target, can_merge, grid, merge_launches, nest};
use crate::epilogue::Epilogue;
use crate::error::{Error, Result};
use crate::library::Library;

type Arguments = SmallVec<[Argument; 6]>;

/// Products of one convolution in a launch at most, which bounds the time that the assembler takes for one.
const SIDE_BY_SIDE: usize = 4;

/// The launches of a product or a convolution; an epilogue's other parameters follow the operands, and then the
/// accumulator, if it is kept. `None` if the work is something else, or the epilogue cannot follow it.
pub(super) fn lower(library: &Library, epilogue: Option<&Epilogue>, target: Target) -> Result<Option<Launches>> {
    let Some(problems) = problems(library) else { return Ok(None) };
    let prepared = epilogue.map(|epilogue| prepared(&problems, epilogue, target));
    if let Some(None) = prepared {
        return Ok(None);
    }
    let prepared = prepared.flatten();
    let mut lowering = Lowering { target, epilogue: prepared.as_ref(), all: Launches::default() };
    for problem in &problems {
        if problem.n_products() * problem.m * problem.n > 0 {
            lowering.product(problem)?;
        }
    }
    if problems.len() > 1 {
        lowering.all.launches = side_by_side(lowering.all.launches, problems.len());
    }
    Ok(Some(lowering.all))
}

/// The launches of products that write disjoint results, some as one, unless one of them is several launches.
fn side_by_side(launches: Vec<Launch>, n_products: usize) -> Vec<Launch> {
    if launches.len() > n_products {
        return launches;
    }
    let mut groups: Vec<SmallVec<[&Launch; SIDE_BY_SIDE]>> = vec![];
    for launch in &launches {
        let fits = |group: &SmallVec<[&Launch; SIDE_BY_SIDE]>| {
            // Fewer threads would leave registers of others unused.
            let alike = group.len() < SIDE_BY_SIDE && group.iter().all(|other| other.block == launch.block);
            alike && can_merge(&[group.as_slice(), &[launch]].concat())
        };
        match groups.iter_mut().find(|group| fits(group)) {
            Some(group) => group.push(launch),
            None => groups.push(smallvec![launch]),
        }
    }
    let one = |group: &SmallVec<[&Launch; SIDE_BY_SIDE]>| match group.as_slice() {
        [alone] => Launch::clone(alone),
        several => merge_launches(several),
    };
    groups.iter().map(one).collect()
}

fn problems(library: &Library) -> Option<Vec<Problem>> {
    if let Library::MatMul(op) = library {
        return Some(vec![Problem::of_matmul(op)]);
    }
    let Library::Conv2d(op) = library else { return None };
    // Places beyond the edges are counted as if there were memory.
    op.is_near().then(|| conv::problems(op))
}

/// The epilogue as it is compiled.
fn prepared(problems: &[Problem], epilogue: &Epilogue, target: Target) -> Option<PtxEpilogue> {
    PtxEpilogue::new(epilogue, problems.first()?.c.width, |kernel| nest::prepared(kernel, target))
}

/// Launches under way.
struct Lowering<'a> {
    target: Target,
    epilogue: Option<&'a PtxEpilogue>,
    all: Launches,
}

impl Lowering<'_> {
    fn product(&mut self, problem: &Problem) -> Result<()> {
        let limit = 1 << 31;
        let rows = problem.n_products().saturating_mul(problem.m);
        // Numbers of rows and columns have 32 bits, those of the matrix of the result too.
        let extents = [rows, problem.n, problem.k, problem.c.last_row(), problem.c.width];
        if extents.iter().any(|extent| *extent >= limit) {
            return Err(Error::Unsupported(format!("products of {rows} by {} by {}", problem.n, problem.k)));
        }
        if problem.k == 0 {
            let sum = if problem.c.dtype == DType::F64 { DType::F64 } else { DType::F32 };
            return self.second_pass(problem, sum, 0);
        }
        let config = Config::choose(problem, self.target);
        let split_k = config.split_k(problem);
        let emission = Emission { problem, config, split_k };
        let n = problem.n;
        let (store, results, shared) = match (split_k.n > 1, self.epilogue) {
            (true, _) => (TileStore::Part { m: problem.m, n }, smallvec![Argument::Scratch(0)], 0),
            (false, None) => (TileStore::Store { to: &problem.c, n }, self.results(), 0),
            (false, Some(epilogue)) => (
                TileStore::Fuse { to: &problem.c, n, epilogue },
                self.results(),
                StagingBuffer::new(&config).bytes(&config),
            ),
        };
        let mut arguments: Arguments = smallvec![Argument::Operand(0), Argument::Operand(1)];
        arguments.extend(results);
        let threads = config.threads() as u32;
        let mut f = PtxFunction::new(emission.name(), self.target, threads, arguments.len());
        // Two blocks of the largest tile on ordinary units are a register too many for the oldest devices.
        let is_large = threads == 256 && matches!(config.engine, MathUnit::Simt { .. });
        let min_blocks_per_sm = if self.target.arch() == 75 && is_large { 1 } else { config.min_blocks_per_sm };
        f.min_blocks_per_sm(min_blocks_per_sm as u32);
        emission.emit(&mut f, &store);
        let shared = emission.ring_bytes().max(shared) as u32;
        self.all.launches.push(Launch {
            module: f.finish(),
            grid: grid([emission.n_blocks(), 1, 1]),
            block: threads,
            shared,
            arguments,
        });
        if split_k.n > 1 {
            let bytes = split_k.n * problem.n_products() * problem.m * n * config.sum.size();
            self.all.scratch = self.all.scratch.max(bytes);
            self.second_pass(problem, config.sum, split_k.n)?;
        }
        Ok(())
    }

    /// The targets of the parameters after the operands.
    fn results(&self) -> Arguments {
        let n = self.epilogue.map_or(1, |epilogue| epilogue.others().count());
        (2..2 + n).map(Argument::Operand).collect()
    }

    /// Adds the launch that sums parts.
    fn second_pass(&mut self, problem: &Problem, sum: DType, n_parts: usize) -> Result<()> {
        let total = problem.n_products().saturating_mul(problem.m).saturating_mul(problem.n);
        if total >= 1 << 31 {
            return Err(Error::Unsupported(format!("parts of sums of {total} elements")));
        }
        let mut arguments: Arguments = smallvec![Argument::Scratch(0)];
        arguments.extend(self.results());
        let threads = split_k::THREADS as u32;
        let mut f = PtxFunction::new("sum_of_parts", self.target, threads, arguments.len());
        split_k::emit(&mut f, problem, sum, n_parts, self.epilogue);
        let grid = grid([total.div_ceil(split_k::THREADS), 1, 1]);
        self.all.launches.push(Launch { module: f.finish(), grid, block: threads, shared: 0, arguments });
        Ok(())
    }
}
