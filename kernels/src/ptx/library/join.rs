//! Joins: launches that copy some inputs each, with blocks of their own, to their parts of the result.

use retape_runtime::DType;

use super::{BLOCK, KernelWriter, NumberType, blocks};
use crate::library::Join;
use crate::ptx::{Argument, Launch, Launches, Target};

/// Inputs of a launch at most: fewer launches to make and to queue, against tests that each block runs.
const INPUTS: usize = 32;

/// An input that is not empty, and its part of each line of the result.
struct Copied {
    input: usize,
    start: usize,
    width: usize,
}

/// The launches of [`Join`].
pub(in crate::ptx) fn join(kernel: &Join, target: Target) -> Launches {
    let parts = kernel.parts().enumerate().map(|(input, (start, width))| Copied { input, start, width });
    let copied: Vec<Copied> = parts.filter(|part| kernel.outer * part.width > 0).collect();
    Launches { launches: copied.chunks(INPUTS).map(|parts| launch(kernel, parts, target)).collect(), scratch: 0 }
}

/// Copies some inputs, a thread per element.
fn launch(kernel: &Join, parts: &[Copied], target: Target) -> Launch {
    let arguments = parts.iter().map(|part| part.input).chain([kernel.lens.len()]);
    let arguments: Vec<Argument> = arguments.map(Argument::Operand).collect();
    let largest = kernel.outer * kernel.line() + (parts.len() + 1) * BLOCK as usize;
    let mut c = KernelWriter::new("join", target, BLOCK, arguments.len(), largest);
    let mut n_blocks = 0;
    for (position, part) in parts.iter().enumerate() {
        let first = n_blocks;
        n_blocks += blocks(kernel.outer * part.width);
        let block = c.block();
        let (from, to) = (c.test("ge", block, first), c.test("lt", block, n_blocks));
        let is_own = c.and(from, to);
        c.if_then(is_own, |c| copy(c, kernel, part, [position, parts.len()], first));
    }
    c.launch(n_blocks, BLOCK, &arguments)
}

/// Copies the element of a thread of the blocks from `first` on, if it has one, between two parameters.
fn copy(c: &mut KernelWriter, kernel: &Join, part: &Copied, [x, out]: [usize; 2], first: usize) {
    let number = bits(kernel.dtype);
    let (x, out) = (c.param(x), c.param(out));
    let thread = c.global_thread(BLOCK);
    let item = c.sub(thread, first * BLOCK as usize);
    let exists = c.test("lt", item, kernel.outer * part.width);
    c.if_then(exists, |c| {
        let (outer, column) = c.div_rem(item, part.width);
        let column = c.add(column, part.start);
        let place = c.mad(outer, kernel.line(), column);
        let (from, to) = (c.at(x, item, number.size()), c.at(out, place, number.size()));
        let element = c.load(number, from, 0);
        c.store(number, to, 0, element);
    });
}

/// A dtype of the same size that is loaded and stored as it is: a copy changes no bit.
pub(super) fn bits(dtype: DType) -> NumberType {
    NumberType(match dtype.size() {
        1 => DType::U8,
        2 => DType::Bf16,
        4 => DType::U32,
        _ => DType::I64,
    })
}
