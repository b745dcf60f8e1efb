//! Transposes: a thread per element of the result, so that neighbouring threads write neighbours.

use super::join::bits;
use super::{BLOCK, KernelWriter, blocks};
use crate::library::{Transpose, reached};
use crate::ptx::{Argument, Launches, Target};

/// The launches of [`Transpose`].
pub(in crate::ptx) fn transpose(kernel: &Transpose, target: Target) -> Launches {
    let Transpose { batch, between, rows, cols, offset, .. } = *kernel;
    // A stride that reaches no second element can be any number.
    let stride = |n: usize, extent: usize| if extent == 1 { 0 } else { reached(kernel.strides[n]) };
    let [to_matrix, to_other, pitch] = [stride(0, batch), stride(1, between), stride(2, rows)];
    let len = batch * between * rows * cols;
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
        let (matrix, element) = c.div_rem(item, cols * between * rows);
        let (column, element) = c.div_rem(element, between * rows);
        let (other, row) = c.div_rem(element, rows);
        let from = c.mad(row, pitch, column);
        let from = c.mad(other, to_other, from);
        let from = c.mad(matrix, to_matrix, from);
        let from = c.add(from, offset);
        let (from, to) = (c.at(x, from, number.size()), c.at(out, item, number.size()));
        let element = c.load(number, from, 0);
        c.store(number, to, 0, element);
    });
    Launches { launches: vec![c.launch(blocks(len), BLOCK, &arguments)], scratch: 0 }
}
