//! Large values that an output is made from lie where the output will, unless an argument could be written over then.

use retape::{DType, Form, Tensor, accelerate};

fn ramp(rows: usize, columns: usize) -> Tensor {
    let n = rows * columns;
    Tensor::from_vec((0..n).map(|i| ((i * 7919) % 1013) as f32 * 1e-2 - 5.0).collect::<Vec<_>>(), [rows, columns])
        .unwrap()
}

/// The bytes of the arena and the donations of a plan.
fn memory(plan: &str) -> (usize, &str) {
    let arena = plan.lines().find_map(|line| line.strip_prefix("  arena ")?.strip_suffix(" bytes")).unwrap();
    let donations = plan.lines().find(|line| line.starts_with("  donations ")).unwrap_or_default();
    (arena.parse().unwrap(), donations)
}

#[test]
fn exponentials_of_a_softmax_lie_where_it_will() {
    let softmax = accelerate(|x: &Tensor| x.softmax(-1));
    for (rows, columns) in [(64, 1000), (70, 300)] {
        let x = ramp(rows, columns);
        let expected = x.softmax(-1).to_vec::<f32>().unwrap();
        let is_close = |x: &[f32]| x.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-6 * y.abs());
        let kept = softmax.call(&x).unwrap();
        let plan = softmax.text(&softmax.signature(&x), Form::Plan).unwrap();
        let (arena, donations) = memory(&plan);
        assert!(arena <= 2 * 4 * rows.next_multiple_of(16), "{plan}");
        assert_eq!(donations.trim(), "donations (output 0 over input 0)", "{plan}");
        let given = softmax.call(x).unwrap();
        let [kept, given] = [kept, given].map(|found| found.to_vec::<f32>().unwrap());
        assert!(kept == given && is_close(&kept), "{plan}");
    }
}

/// A parameter can be written over by the next one only if nothing else lies there before it is read.
#[test]
fn an_argument_that_is_read_later_can_still_be_given_away() {
    let step = accelerate(|x: &Tensor, w: &Tensor| {
        let y = (x - x.max(-1).unsqueeze(-1)).exp();
        let total = y.sum(-1).unsqueeze(-1);
        w - y / total
    });
    let (x, w) = (ramp(64, 1000), ramp(64, 1000));
    let expected = (&w - &x.softmax(-1)).to_vec::<f32>().unwrap();
    let kept = step.call(&x, &w).unwrap();
    let plan = step.text(&step.signature(&x, &w), Form::Plan).unwrap();
    assert!(memory(&plan).1.contains("output 0 over input 1"), "{plan}");
    let given = step.call(&x, w).unwrap();
    for found in [kept, given] {
        let found = found.to_vec::<f32>().unwrap();
        assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-5), "{plan}");
    }
}

/// Places that a library step's accumulator takes, and outputs of another dtype of the same size, are not begun early.
#[test]
fn products_and_casts_keep_their_places() {
    let [x, y, w, v] = [(256, 64), (256, 48), (64, 512), (48, 512)].map(|(rows, columns)| ramp(rows, columns));
    let sum = accelerate(|x: &Tensor, y: &Tensor, w: &Tensor, v: &Tensor| x.matmul(w) + y.matmul(v));
    let expected = x.matmul(&w) + y.matmul(&v);
    let is_close = |found: Tensor, expected: Tensor| {
        let [found, expected] = [found, expected].map(|x| x.to_vec::<f64>().unwrap());
        found.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-3 * y.abs().max(1.0))
    };
    let as_f64 = |x: &Tensor| x.cast(DType::F64);
    assert!(is_close(as_f64(&sum.call(&x, &y, &w, &v).unwrap()), as_f64(&expected)));

    let shared = accelerate(|x: &Tensor, y: &Tensor, w: &Tensor| {
        (x.matmul(w).square().sum(..) + y.matmul(&w.slice_axis(0, 0..48)).square().sum(..)).grad(w)
    });
    let gradient = (x.t().matmul(&x.matmul(&w)) * 2.0).to_vec::<f32>().unwrap();
    let found = shared.call(&x, &y, &w).unwrap().to_vec::<f32>().unwrap();
    // The rows that the second product does not see.
    assert!(found[48 * 512..].iter().zip(&gradient[48 * 512..]).all(|(x, y)| (x - y).abs() <= 1e-3 * y.abs().max(1.0)));

    let counts = accelerate(|x: &Tensor, y: &Tensor| (x + y).cumsum(1).cast(DType::F32) * 0.5);
    let (row, column) = (Tensor::ones([1, 512]).cast(DType::I32), Tensor::ones([256, 1]).cast(DType::I32));
    let found = counts.call(&row, &column).unwrap().to_vec::<f32>().unwrap();
    assert!(found.iter().enumerate().all(|(at, &x)| x == (at % 512 + 1) as f32));

    let order = accelerate(|x: &Tensor, y: &Tensor| x.matmul(y).argsort(1).cast(DType::F64) * 0.5);
    let expected = as_f64(&x.matmul(&w).argsort(1)) * 0.5;
    assert!(order.call(&x, &w).unwrap().to_vec::<f64>().unwrap() == expected.to_vec::<f64>().unwrap());
}
