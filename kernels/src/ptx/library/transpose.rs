//! Transposes: a thread per element of the result, so that neighbouring threads write neighbours.

use super::join::bits;
use super::{BLOCK, KernelWriter, blocks};
use crate::library::{Transpose, reached};
use crate::ptx::{Argument, Launches, Target};

/// The launches of [`Transpose`].
pub(in crate::ptx) fn transpose(kernel: &Transpose, target: Target) -> Launches {
    let Transpose { batch, between, rows, cols, offset, strides, .. } = *kernel;
    // Axes of the result from the last one on, with their strides; one that reaches no second element can have any.
    let axes =
        [(rows, strides[4]), (between[1], strides[3]), (between[0], strides[2]), (cols, 1), (batch[1], strides[1])];
    let axes = axes.map(|(extent, stride)| (extent, if extent == 1 { 0 } else { reached(stride) }));
    let len = axes.iter().map(|(extent, _)| extent).product::<usize>() * batch[0];
    if len == 0 {
        return Launches::default();
    }
    let n_positions = kernel.inputs()[0].1.max(len);
    let number = bits(kernel.dtype);
    let arguments = [0, 1].map(Argument::Operand);
    let mut c = KernelWriter::new("transpose", target, BLOCK, arguments.len(), n_positions + BLOCK as usize);
    let (x, out) = (c.param(0), c.param(1));
    let item = c.global_thread(BLOCK);
    let exists = c.test("lt", item, len);
    c.if_then(exists, |c| {
        let (mut from, mut rest) = (None, item);
        for (extent, stride) in axes.into_iter().filter(|(extent, _)| *extent > 1) {
            let (outer, position) = c.div_rem(rest, extent);
            let step = c.mul(position, stride);
            from = Some(from.map_or(step, |from| c.add(from, step)));
            rest = outer;
        }
        let last = c.mul(rest, if batch[0] == 1 { 0 } else { reached(strides[0]) });
        let from = from.map_or(last, |from| c.add(from, last));
        let from = c.add(from, offset);
        let (from, to) = (c.at(x, from, number.size()), c.at(out, item, number.size()));
        let element = c.load(number, from, 0);
        c.store(number, to, 0, element);
    });
    Launches { launches: vec![c.launch(blocks(len), BLOCK, &arguments)], scratch: 0 }
}
