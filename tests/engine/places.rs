//! Large values that an output is made from lie where the output will, unless an argument could be written over then.

use retape::{Form, Tensor, accelerate};

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
