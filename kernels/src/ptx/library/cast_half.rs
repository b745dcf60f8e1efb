//! Casts from and to the 16-bit floats, eight elements a thread.

use super::{BLOCK, KernelWriter, blocks};
use crate::library::CastHalf;
use crate::ptx::{Argument, Launches, Reg, RegValue, Target, cast, load_many, store_many};

/// Elements of a thread.
const GROUP: usize = 8;

/// The launches of [`CastHalf`].
pub(in crate::ptx) fn cast_half(kernel: &CastHalf, target: Target) -> Launches {
    let CastHalf { from, to, len } = *kernel;
    if len == 0 {
        return Launches::default();
    }
    let groups = len.div_ceil(GROUP);
    let mut c = KernelWriter::new("cast_half", target, BLOCK, 2, len + GROUP * BLOCK as usize);
    let (source, target) = (c.param(0), c.param(1));
    let group = c.global_thread(BLOCK);
    let exists = c.test("lt", group, groups);
    c.if_then(exists, |c| {
        let (x, out) = (c.at(source, group, GROUP * from.size()), c.at(target, group, GROUP * to.size()));
        let whole = c.test("lt", group, len / GROUP);
        let convert = |c: &mut KernelWriter, n: usize, x: Reg, out: Reg| {
            let values = load_many(c, from, n, x, 0, GROUP * from.size());
            let values: Vec<RegValue> = values.into_iter().map(|x| cast(c, to, x)).collect();
            store_many(c, &values, out, 0, GROUP * to.size(), None);
        };
        c.if_else(whole, |c| convert(c, GROUP, x, out), |c| convert(c, len % GROUP, x, out));
    });
    let arguments = [Argument::Operand(0), Argument::Operand(1)];
    Launches { launches: vec![c.launch(blocks(groups), BLOCK, &arguments)], scratch: 0 }
}
