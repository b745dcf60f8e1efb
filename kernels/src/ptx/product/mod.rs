//! Matrix products and convolutions.
//!
//! One writer of kernels serves all of them: a [`Problem`](problem::Problem) says where the elements of operands and
//! result lie, a [`Config`](choose::Config) what multiplies and in which tiles. The order of each sum follows from the
//! shape: along its index, or in parts of fixed length that a second launch adds in order.

mod choose;
mod conv;
mod emit;
mod finish;
mod index;
mod load;
mod matmul;
mod parts;
mod problem;
mod sums;
mod tile;

use retape_runtime::DType;
use smallvec::smallvec;

use self::choose::Config;
use self::emit::Emission;
use self::finish::Finish;
use self::problem::Problem;
use super::{Argument, Function, Launch, Launches, Target};
use crate::error::{Error, Result};
use crate::library::{Conv2d, MatMul};

/// The launches of a matrix product.
pub(super) fn lower_matmul(op: &MatMul, target: Target) -> Result<Launches> {
    lower(&[Problem::of_matmul(op)], target)
}

/// The launches of a pass of a convolution.
pub(super) fn lower_conv(op: &Conv2d, target: Target) -> Result<Launches> {
    lower(&conv::problems(op), target)
}

/// The launches of problems that share their operands and write different parts of one result.
fn lower(problems: &[Problem], target: Target) -> Result<Launches> {
    let mut all = Launches::default();
    for problem in problems {
        if problem.n_products() * problem.m * problem.n > 0 {
            lower_one(problem, target, &mut all)?;
        }
    }
    Ok(all)
}

fn lower_one(problem: &Problem, target: Target, all: &mut Launches) -> Result<()> {
    let limit = 1 << 31;
    let rows = problem.n_products().saturating_mul(problem.m);
    if [rows, problem.n, problem.k].iter().any(|extent| *extent >= limit) {
        return Err(Error::Unsupported(format!("products of {rows} by {} by {}", problem.n, problem.k)));
    }
    if problem.k == 0 {
        let sum = if problem.c.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        return second_pass(problem, target, sum, 0, all);
    }
    let config = Config::choose(problem, target);
    let parts = config.parts(problem);
    let emission = Emission { problem, config, parts };
    let is_cut = parts.n > 1;
    let n_blocks = u32::try_from(emission.n_blocks()).ok().filter(|n| *n < 1 << 31);
    let n_blocks = n_blocks.ok_or_else(|| Error::Unsupported("products of more than 2^31 tiles".into()))?;
    let mut f = Function::new(emission.name(), target, config.threads() as u32, 3);
    f.residents(config.residents as u32);
    let finish = match is_cut {
        true => Finish::Part { m: problem.m, n: problem.n },
        false => Finish::Store { to: &problem.c, n: problem.n },
    };
    emission.emit(&mut f, &finish);
    let to = if is_cut { Argument::Scratch(0) } else { Argument::Operand(2) };
    all.launches.push(Launch {
        module: f.finish(),
        grid: [n_blocks, 1, 1],
        block: config.threads() as u32,
        shared: emission.ring_bytes() as u32,
        arguments: smallvec![Argument::Operand(0), Argument::Operand(1), to],
    });
    if is_cut {
        let bytes = parts.n * problem.n_products() * problem.m * problem.n * config.sum.size();
        all.scratch = all.scratch.max(bytes);
        second_pass(problem, target, config.sum, parts.n, all)?;
    }
    Ok(())
}

/// Adds the launch that sums parts.
fn second_pass(problem: &Problem, target: Target, sum: DType, n_parts: usize, all: &mut Launches) -> Result<()> {
    let total = problem.n_products() * problem.m * problem.n;
    if total >= 1 << 31 {
        return Err(Error::Unsupported(format!("parts of sums of {total} elements")));
    }
    let mut f = Function::new("sum_of_parts", target, parts::THREADS as u32, 2);
    parts::emit(&mut f, problem, sum, n_parts);
    all.launches.push(Launch {
        module: f.finish(),
        grid: [total.div_ceil(parts::THREADS) as u32, 1, 1],
        block: parts::THREADS as u32,
        shared: 0,
        arguments: smallvec![Argument::Scratch(0), Argument::Operand(2)],
    });
    Ok(())
}
