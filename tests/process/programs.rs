//! Random functions of square matrices, shared by tests of what is given by value.

use retape::Tensor;

/// Splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % n as u64) as usize
    }
}

/// A random function of square matrices: ops with their arguments, and which values are results.
pub(crate) struct Program {
    ops: Vec<(usize, usize, usize)>,
    results: Vec<usize>,
}

impl Program {
    pub(crate) fn new(random: &mut Random, n_args: usize) -> Program {
        let n_ops = 3 + random.below(8);
        let ops = (0..n_ops).map(|k| {
            let n_values = n_args + k;
            (random.below(9), random.below(n_values), random.below(n_values))
        });
        let ops = ops.collect();
        let n_values = n_args + n_ops;
        Program { ops, results: (0..1 + random.below(5)).map(|_| n_values - 1 - random.below(n_ops + 1)).collect() }
    }

    pub(crate) fn run(&self, args: Vec<Tensor>) -> Vec<Tensor> {
        let mut values = args;
        let side = values[0].dim(0);
        for &(op, x, y) in &self.ops {
            let (x, y) = (&values[x], &values[y]);
            values.push(match op {
                0 => x + y,
                1 => x * 0.5 - y,
                2 => x.tanh() * y,
                3 => x.permute([1, 0]) + y,
                4 => x.matmul(y) * 0.1,
                5 => x + y.mean_keep(0),
                6 => x.flip([0]) - y * 0.25,
                7 => x.sigmoid(),
                _ => x.reshape([side * side]).reshape([side, side]) + y.mean_keep(1).tanh(),
            });
        }
        self.results.iter().map(|&value| values[value].clone()).collect()
    }
}
