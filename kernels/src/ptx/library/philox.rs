//! Random numbers: one thread computes the four words of a counter.

use super::{BLOCK, KernelWriter, NumberType, blocks};
use crate::library::Philox;
use crate::ptx::{Argument, Class, Launches, Reg, Target, ptx};
use retape_runtime::DType;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// The launches of [`Philox`].
pub(in crate::ptx) fn philox(kernel: &Philox, target: Target) -> Launches {
    let len = kernel.len;
    if len == 0 {
        return Launches::default();
    }
    let counters = len.div_ceil(4);
    let mut c = KernelWriter::new("philox", target, BLOCK, 2, len + 4 * BLOCK as usize);
    let (key, out) = (c.param(0), c.param(1));
    let counter = c.global_thread(BLOCK);
    let exists = c.test("lt", counter, counters);
    c.if_then(exists, |c| {
        let words = words(c, key, counter, kernel.stream);
        let [w0, w1, w2, w3] = words;
        let to = c.at(out, counter, 16);
        let whole = c.test("lt", counter, len / 4);
        c.if_else(
            whole,
            |c| ptx!(c, "st.global.v4.b32 [{to}], {{{w0}, {w1}, {w2}, {w3}}}"),
            |c| {
                for (i, word) in words.into_iter().enumerate().take(len % 4) {
                    c.store(NumberType(DType::U32), to, 4 * i, word);
                }
            },
        );
    });
    Launches {
        launches: vec![c.launch(blocks(counters), BLOCK, &[Argument::Operand(0), Argument::Operand(1)])],
        scratch: 0,
    }
}

/// The random words of a counter of a stream.
fn words(c: &mut KernelWriter, key: Reg, counter: Reg, stream: u32) -> [Reg; 4] {
    let mut keys = [0, 4].map(|offset| c.load(NumberType(DType::U32), key, offset));
    let high = if counter.class == Class::B64 {
        let high = c.shr(counter, 32);
        c.low(high)
    } else {
        c.op(Class::B32, "mov.b32", format_args!("0"))
    };
    let [stream, zero] = [stream, 0].map(|word| c.op(Class::B32, "mov.b32", format_args!("{word}")));
    let mut x = [c.low(counter), high, stream, zero];
    for round in 0..ROUNDS {
        let [(p_low, p_high), (q_low, q_high)] = [0, 1]
            .map(|n| {
                ["mul.lo.u32", "mul.hi.u32"]
                    .map(|op| c.op(Class::B32, op, format_args!("{}, {}", x[2 * n], MULTIPLIERS[n])))
            })
            .map(<(Reg, Reg)>::from);
        let mut mix = |a: Reg, b: Reg, key: Reg| {
            let mixed = c.xor(a, b);
            c.xor(mixed, key)
        };
        x = [mix(q_high, x[1], keys[0]), q_low, mix(p_high, x[3], keys[1]), p_low];
        if round + 1 < ROUNDS {
            keys = [0, 1].map(|n| c.add(keys[n], WEYL[n]));
        }
    }
    x
}
