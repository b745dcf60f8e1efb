//! Convolutions run about as fast as products of matrices: their tiles are the same, and a compiler that keeps the sums of
//! one in memory makes it three times as slow. Only a ratio is looked at, of the fastest of some tries that take turns.

use std::time::{Duration, Instant};

use retape_kernels::library::{Conv2d, ConvPass, Library, MatMul};
use retape_runtime::{Buffer, DType};

/// How many times as long as a product a convolution may take.
const MOST: u32 = 2;

/// Tries before a convolution counts as slow, for others use the machine as well, and before it counts as fast: the first
/// ones wait for memory and threads.
const TRIES: usize = 300;
const LEAST_TRIES: usize = 10;

struct Timed {
    kernel: Library,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    best: Duration,
}

impl Timed {
    fn new(kernel: impl Into<Library>) -> Timed {
        let kernel = kernel.into();
        let zeros = |(dtype, len): (DType, usize)| Buffer::zeroed(len * dtype.size()).expect("there is memory");
        let [inputs, outputs] = [kernel.inputs(), kernel.outputs()].map(|all| all.into_iter().map(zeros).collect());
        Timed { kernel, inputs, outputs, best: Duration::MAX }
    }

    fn run(&mut self) {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Buffer::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Buffer::bytes_mut).collect();
        let start = Instant::now();
        self.kernel.run(&inputs, &mut outputs);
        self.best = self.best.min(start.elapsed());
    }
}

#[test]
#[cfg_attr(
    any(debug_assertions, not(target_arch = "x86_64")),
    ignore = "the ratio is one of optimised code for vectors of x86-64"
)]
fn convolutions_are_about_as_fast_as_products() {
    for dtype in [DType::F32, DType::F64] {
        for &pass in ConvPass::ALL {
            // As many multiplications, within two in a hundred.
            let mut product = Timed::new(MatMul::contiguous(dtype, &[], [384; 3]));
            let mut convolution = Timed::new(Conv2d {
                dtype,
                batch: 32,
                height: 14,
                width: 14,
                in_channels: 32,
                out_channels: 32,
                groups: 1,
                kernel_height: 3,
                kernel_width: 3,
                stride: [1, 1],
                padding: [[1, 1]; 2],
                dilation: [1, 1],
                pass,
            });
            let is_fast = (0..TRIES).any(|n| {
                product.run();
                convolution.run();
                n >= LEAST_TRIES && convolution.best < product.best * MOST
            });
            assert!(is_fast, "{dtype} {pass:?}: {:?} beside {:?} of a product", convolution.best, product.best);
        }
    }
}
