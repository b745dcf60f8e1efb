//! Sums, products and library kernels at sizes of many warps and blocks, and at awkward ones: values and gradients
//! against the processor, and the same bits in all four orders of blocks and warps.

use retape::nn::{self, Mask};
use retape::ops::{ConvOptions, Padding, Triangular};
use retape::{DType, Tensor, accelerate, concat, einsum, vjp};

use crate::compare::{all_bits, apart, ramp, to};
use crate::device::{gpu, in_every_order, on_older_devices};

/// How far results may be apart, in proportion to the largest element of each tensor.
const F64_BOUND: f64 = 1e-13;
const F32_BOUND: f64 = 4e-6;

type Formula<'f> = &'f dyn Fn(&[Tensor]) -> Tensor;

/// Values and gradients in these dtypes, each with its bound.
fn check_in(dtypes: &[(DType, f64)], name: &str, inputs: &[Tensor], formula: Formula<'_>) {
    for &(dtype, bound) in dtypes {
        let inputs: Vec<Tensor> = inputs.iter().map(|x| x.cast(dtype)).collect();
        let ct = ramp(formula(&inputs).shape(), 77).cast(formula(&inputs).dtype());
        let function = accelerate(|inputs: &Vec<Tensor>, ct: &Tensor| {
            vjp(|inputs: &Vec<Tensor>| formula(inputs), inputs, ct).expect("a failed op is reported by the call")
        });
        let run = |device| {
            let found = function.call(to(&inputs, device), ct.to(device));
            found.unwrap_or_else(|e| panic!("{name} of {dtype} on {device}: {e}"))
        };
        let (here, there) = (run(retape::Device::Cpu), run(gpu()));
        let outputs = |(value, gradients): &(Tensor, Vec<Tensor>)| [vec![value.clone()], gradients.clone()].concat();
        let mut worst = 0.0_f64;
        for (position, (here, there)) in outputs(&here).iter().zip(outputs(&there)).enumerate() {
            let apart = apart(here, &there);
            assert!(apart <= bound, "{name} of {dtype}, output {position}: {apart}");
            worst = worst.max(apart);
        }
        println!("{name} of {dtype}: {worst:.1e}");
        let expected = all_bits(&there);
        in_every_order(|order| assert!(all_bits(&run(gpu())) == expected, "{name} of {dtype}: other bits, {order:?}"));
    }
}

/// Values and gradients in `f64` and `f32`.
fn check(name: &str, inputs: &[Tensor], formula: impl Fn(&[Tensor]) -> Tensor) {
    check_in(&[(DType::F64, F64_BOUND), (DType::F32, F32_BOUND)], name, inputs, &formula);
}

/// Results that are integers or moved elements: the bits of the processor, in `f64`, `f32` and `i64`.
fn check_exact(name: &str, inputs: &[Tensor], formula: impl Fn(&[Tensor]) -> Tensor) {
    for dtype in [DType::F64, DType::F32, DType::I64] {
        let inputs: Vec<Tensor> = inputs.iter().map(|x| (x * 100.0).cast(dtype)).collect();
        let function = accelerate(|inputs: &Vec<Tensor>| formula(inputs));
        let expected = all_bits(&function.call(&inputs).unwrap_or_else(|e| panic!("{name} of {dtype}: {e}")));
        let there = to(&inputs, gpu());
        assert!(all_bits(&function.call(&there).unwrap()) == expected, "{name} of {dtype}");
        in_every_order(|order| {
            assert!(all_bits(&function.call(&there).unwrap()) == expected, "{name} of {dtype}: other bits, {order:?}");
        });
    }
}

#[test]
fn older_devices_compute_the_same() {
    on_older_devices(&["sizes::", "cases::everything_else", "training::", "samples::gradients"]);
}

#[test]
fn sums() {
    let long = ramp(&[100_003], 1) + 1.5;
    check("mean of all", std::slice::from_ref(&long), |x| x[0].mean(..));
    check("product of all", &[ramp(&[3001], 2)], |x| (&x[0] * 1e-3 + 1.0).prod(..));
    check("sum of squares", &[ramp(&[1025], 3)], |x| x[0].square().sum(..));
    check("sums of a short axis", &[ramp(&[3000, 3], 4) + 1.5], |x| x[0].sum(1));
    let x = ramp(&[37, 129, 65], 5) + 1.5;
    for axes in [vec![0], vec![1], vec![2], vec![0, 2], vec![1, 2], vec![0, 1, 2]] {
        check(&format!("mean over {axes:?}"), std::slice::from_ref(&x), |x| x[0].mean(axes.clone()));
    }
    check("largest of all", &[ramp(&[5001], 6)], |x| x[0].max(..));
    check("smallest of rows", &[ramp(&[9, 700], 6)], |x| x[0].min(1));
    check("spread", &[ramp(&[70, 90], 7)], |x| x[0].var(0));
    check_exact("sums of integers", &[ramp(&[60, 300], 8)], |x| x[0].cast(DType::I64).sum(1));
    check_exact("products of truths", &[ramp(&[60, 300], 8)], |x| x[0].gt(-90.0).all(0));
    check_exact("extremes", &[ramp(&[60, 300], 9)], |x| concat(&[&x[0].max(1), &x[0].min(1)], 0));
}

#[test]
fn sums_beside_formulas() {
    for (shape, axis) in [([33, 1000], 1), ([1000, 33], 0), ([257, 5], 1)] {
        let x = [ramp(&shape, 1)];
        check(&format!("softmax {shape:?}"), &x, |x| x[0].softmax(axis));
        check(&format!("log_softmax {shape:?}"), &x, |x| x[0].log_softmax(axis));
        check(&format!("logsumexp {shape:?}"), &x, |x| x[0].logsumexp(axis));
    }
    let affine = [ramp(&[40, 257], 2), ramp(&[257], 3), ramp(&[257], 4)];
    check("layer_norm", &affine, |x| nn::layer_norm(&x[0], &x[1], &x[2], 1e-5));
    let affine = [ramp(&[6, 9, 7, 5], 2), ramp(&[5], 3), ramp(&[5], 4)];
    check("batch_norm", &affine, |x| nn::batch_norm(&x[0], &x[1], &x[2], 1e-5).0);
    let cell = [[12, 20], [12, 9], [12, 9], [20, 36], [9, 36]].map(|shape| ramp(&shape, shape[0] + shape[1]));
    let cell = [cell.to_vec(), vec![ramp(&[36], 1)]].concat();
    check("lstm_cell", &cell, |x| {
        let (h, c) = nn::lstm_cell(&x[0], &x[1], &x[2], &x[3], &x[4], &x[5]);
        h + c
    });
    let heads = [1, 2, 3].map(|seed| ramp(&[2, 40, 3, 16], seed));
    check("attention", &heads, |x| nn::attention(&x[0], &x[1], &x[2], 0.25, Mask::Causal));
}

#[test]
fn products() {
    let shapes = [
        ([1, 1000], [1000, 1]),
        ([1, 500], [500, 77]),
        ([77, 500], [500, 1]),
        ([65, 33], [33, 129]),
        ([128, 64], [64, 128]),
        ([3, 1000], [1000, 5]),
        ([200, 7], [7, 3]),
        ([1, 1], [1, 300]),
    ];
    for (a, b) in shapes {
        check(&format!("matmul {a:?} {b:?}"), &[ramp(&a, 1), ramp(&b, 2)], |x| x[0].matmul(&x[1]));
    }
    let stacks = [ramp(&[5, 17, 9], 1), ramp(&[5, 9, 21], 2)];
    check("matmul of stacks", &stacks, |x| x[0].matmul(&x[1]));
    check("matmul that spreads", &[ramp(&[2, 1, 8, 9], 1), ramp(&[3, 9, 4], 2)], |x| x[0].matmul(&x[1]));
    check("matmul of a transpose", &[ramp(&[90, 70], 1), ramp(&[90, 50], 2)], |x| x[0].t().matmul(&x[1]));
    check("matmul with itself", &[ramp(&[70, 70], 1)], |x| x[0].matmul(&x[0].t()));
    check("einsum", &[ramp(&[4, 20, 30], 1), ramp(&[4, 25, 30], 2)], |x| einsum("bik,bjk->bij", &[&x[0], &x[1]]));
    let dense = [ramp(&[50, 60], 1), ramp(&[60, 40], 2), ramp(&[40], 3)];
    check("dense and relu", &dense, |x| nn::dense(&x[0], &x[1], &x[2]).relu());
    check("dense and gelu", &dense, |x| nn::dense(&x[0], &x[1], &x[2]).gelu_tanh() + &x[2]);
}

/// Sums of products are of `f32` and rounded once: apart by one unit in the last place.
#[test]
fn products_of_halves() {
    for (half, bound) in [(DType::Bf16, 2.0_f64.powi(-7)), (DType::F16, 2.0_f64.powi(-10))] {
        let f32s = [(DType::F32, bound)];
        let cast = |x: &[Tensor]| [x[0].cast(half), x[1].cast(half)];
        for (a, b) in [([65, 33], [33, 129]), ([128, 64], [64, 128]), ([3, 300], [300, 5])] {
            let inputs = [ramp(&a, 1), ramp(&b, 2)];
            check_in(&f32s, &format!("matmul {a:?} {b:?} of {half}"), &inputs, &|x| {
                let [a, b] = cast(x);
                a.matmul(&b).cast(DType::F32)
            });
        }
        let inputs = [ramp(&[2, 9, 9, 8], 1), ramp(&[3, 3, 8, 16], 2)];
        check_in(&f32s, &format!("conv2d of {half}"), &inputs, &|x| {
            let [x, filter] = cast(x);
            x.conv2d(&filter, ConvOptions::same()).cast(DType::F32)
        });
    }
}

#[test]
fn convolutions_and_windows() {
    let x = ramp(&[2, 13, 11, 6], 1);
    let same = ConvOptions::same;
    let convolutions = [
        ("3 x 3", [3, 3, 6, 8], same()),
        ("5 x 5, every other", [5, 5, 6, 4], same().stride(2)),
        ("1 x 1", [1, 1, 6, 20], same()),
        ("spread", [3, 3, 6, 4], same().dilation(2)),
        ("in groups", [3, 3, 2, 9], same().groups(3)),
        ("inside", [3, 2, 6, 5], same().padding(Padding::Valid)),
    ];
    for (name, filter, options) in convolutions {
        check(&format!("conv2d {name}"), &[x.clone(), ramp(&filter, 2)], |x| x[0].conv2d(&x[1], options));
    }
    check("conv_transpose2d", &[x.clone(), ramp(&[3, 3, 8, 6], 2)], |x| x[0].conv_transpose2d(&x[1], same().stride(2)));
    let one = std::slice::from_ref(&x);
    check("max_pool2d", one, |x| x[0].max_pool2d([3, 3], [2, 2], Padding::Same));
    check("avg_pool2d", one, |x| x[0].avg_pool2d([3, 2], [2, 1], Padding::Same));
    check("global_avg_pool2d", one, |x| x[0].global_avg_pool2d());
}

#[test]
fn scans_sorts_and_indices() {
    for (shape, axis) in [([7, 1500], 1), ([1500, 7], 0)] {
        let x = [ramp(&shape, 1) + 1.5];
        check(&format!("cumsum {shape:?}"), &x, |x| x[0].cumsum(axis));
        check(&format!("cumprod {shape:?}"), &x, |x| (&x[0] * 1e-3 + 1.0).cumprod(axis));
        check(&format!("cummax {shape:?}"), &x, |x| x[0].cummax(axis));
        check(&format!("linear_recurrence {shape:?}"), &x, |x| x[0].linear_recurrence(&x[0] * 1e-3 + 0.9, axis));
        check(&format!("sort {shape:?}"), &x, |x| x[0].sort(axis));
        check_exact(&format!("argsort {shape:?}"), &x, |x| x[0].argsort(axis));
        check_exact(&format!("argmax {shape:?}"), &x, |x| x[0].argmax(axis) + x[0].argmin(axis));
        check_exact(&format!("top_k {shape:?}"), &x, |x| x[0].top_k(5, axis).1);
    }
    // Many updates of one place, in an order that is fixed.
    let ids = Tensor::from_vec((0..400).map(|k| (k * 7 % 11) as i64).collect::<Vec<_>>(), [400]).unwrap();
    let at = |device: retape::Device| ids.to(device);
    check("take with repeats", &[ramp(&[11, 30], 1)], |x| x[0].take(&at(x[0].device()), 0));
    check("embedding", &[ramp(&[11, 30], 1)], |x| nn::embedding(&x[0], &at(x[0].device())));
    check("scatter_add", &[ramp(&[11, 30], 1), ramp(&[400, 30], 2)], |x| {
        x[0].scatter_add(0, &at(x[0].device()), &x[1])
    });
}

#[test]
fn triangles() {
    let dtypes = [(DType::F64, 1e-12), (DType::F32, 5e-5)];
    check_in(&dtypes, "cholesky", &[ramp(&[2, 24, 24], 1)], &|x| {
        let eye = Tensor::from_vec((0..576).map(|k| f64::from(u8::from(k % 25 == 0))).collect::<Vec<_>>(), [24, 24]);
        let eye = eye.unwrap().cast(x[0].dtype()) * 30.0;
        (x[0].matmul(&x[0].transpose()) + eye.to(x[0].device())).cholesky()
    });
    check_in(&dtypes, "solve_triangular", &[ramp(&[2, 24, 24], 1), ramp(&[2, 24, 9], 2)], &|x| {
        let diagonal = (0..576).map(|k| f64::from(u8::from(k % 25 == 0))).collect::<Vec<_>>();
        let diagonal = Tensor::from_vec(diagonal, [24, 24]).unwrap().cast(x[0].dtype()) * 30.0;
        (&x[0] + diagonal.to(x[0].device())).solve_triangular(&x[1], Triangular::LOWER)
    });
}

/// Movements, which only move elements, and formulas over much of it.
#[test]
fn movements() {
    let (x, y) = (ramp(&[131, 57], 1), ramp(&[57], 2));
    check("broadcasts", &[x.clone(), y.clone()], |x| &x[0] * &x[1] + x[0].sum_keep(1) * 1e-2);
    check("columns and rows", &[ramp(&[300, 1], 1), ramp(&[1, 130], 2)], |x| (&x[0] + &x[1]).tanh());
    check("pad, flip, slice", std::slice::from_ref(&x), |x| {
        let padded = x[0].pad(&[2, 0], &[1, 3], 0.5).flip([0]);
        padded.slice(&[1, 0], &[133, 59], &[2, 1]).sin()
    });
    check("concat of views", &[x, y], |x| concat(&[&x[0].t(), &x[1].reshape([57, 1])], 1).exp());
}
