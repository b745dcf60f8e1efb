//! Joins: launches that copy some inputs each, with blocks of their own, to their parts of the result.

use retape_runtime::DType;

use super::{BLOCK, KernelWriter, NumberType, blocks};
use crate::library::{Join, JoinedPart};
use crate::ptx::{Argument, Launch, Launches, Target};

/// Inputs of a launch at most: fewer launches to make and to queue, against tests that each block runs.
const INPUTS: usize = 32;

/// An input that is not empty.
struct Copied {
    input: usize,
    part: JoinedPart,
}

/// The launches of [`Join`].
pub(in crate::ptx) fn join(kernel: &Join, target: Target) -> Launches {
    let inputs = kernel.parts().enumerate().map(|(input, part)| Copied { input, part });
    let copied: Vec<Copied> = inputs.filter(|input| kernel.outer * input.part.width > 0).collect();
    Launches { launches: copied.chunks(INPUTS).map(|inputs| launch(kernel, inputs, target)).collect(), scratch: 0 }
}

/// Copies some inputs, a thread per element.
fn launch(kernel: &Join, inputs: &[Copied], target: Target) -> Launch {
    let arguments = inputs.iter().map(|input| input.input).chain([kernel.lens.len()]);
    let arguments: Vec<Argument> = arguments.map(Argument::Operand).collect();
    let longest = kernel.inputs().iter().map(|&(_, len)| len).max().unwrap_or(0);
    let largest = longest.max(kernel.outer * kernel.line()) + (inputs.len() + 1) * BLOCK as usize;
    let mut c = KernelWriter::new("join", target, BLOCK, arguments.len(), largest);
    let mut n_blocks = 0;
    for (position, Copied { part, .. }) in inputs.iter().enumerate() {
        let first = n_blocks;
        n_blocks += blocks(kernel.outer * part.width);
        let block = c.block();
        let (from, to) = (c.test("ge", block, first), c.test("lt", block, n_blocks));
        let is_own = c.and(from, to);
        c.if_then(is_own, |c| copy(c, kernel, part, [position, inputs.len()], first));
    }
    c.launch(n_blocks, BLOCK, &arguments)
}

/// Copies the element of a thread of the blocks from `first` on, if it has one, between two parameters.
fn copy(c: &mut KernelWriter, kernel: &Join, part: &JoinedPart, [x, out]: [usize; 2], first: usize) {
    let number = bits(kernel.dtype);
    let (x, out) = (c.param(x), c.param(out));
    let thread = c.global_thread(BLOCK);
    let item = c.sub(thread, first * BLOCK as usize);
    let exists = c.test("lt", item, kernel.outer * part.width);
    c.if_then(exists, |c| {
        let (outer, column) = c.div_rem(item, part.width);
        let (taken, column) = (c.add(column, part.offset), c.add(column, part.start));
        // A pitch without a second run may be any number.
        let pitch = if kernel.outer == 1 { 0 } else { part.pitch };
        let (taken, place) = (c.mad(outer, pitch, taken), c.mad(outer, kernel.line(), column));
        let (from, to) = (c.at(x, taken, number.size()), c.at(out, place, number.size()));
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
