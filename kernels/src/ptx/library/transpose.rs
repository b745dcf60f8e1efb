//! Transposes: a thread per element of the result, so that neighbouring threads write neighbours.

use super::join::bits;
use super::{BLOCK, KernelWriter, blocks};
use crate::library::Transpose;
use crate::ptx::{Argument, Launches, Target};

/// The launches of [`Transpose`].
pub(in crate::ptx) fn transpose(kernel: &Transpose, target: Target) -> Launches {
    let Transpose { batch, rows, cols, .. } = *kernel;
    let len = batch * rows * cols;
    if len == 0 {
        return Launches::default();
    }
    let number = bits(kernel.dtype);
    let arguments = [0, 1].map(Argument::Operand);
    let mut c = KernelWriter::new("transpose", target, BLOCK, arguments.len(), len + BLOCK as usize);
    let (x, out) = (c.param(0), c.param(1));
    let item = c.global_thread(BLOCK);
    let exists = c.test("lt", item, len);
    c.if_then(exists, |c| {
        let (matrix, element) = c.div_rem(item, rows * cols);
        let (column, row) = c.div_rem(element, rows);
        let line = c.mad(matrix, rows, row);
        let from = c.mad(line, cols, column);
        let (from, to) = (c.at(x, from, number.size()), c.at(out, item, number.size()));
        let element = c.load(number, from, 0);
        c.store(number, to, 0, element);
    });
    Launches { launches: vec![c.launch(blocks(len), BLOCK, &arguments)], scratch: 0 }
}
