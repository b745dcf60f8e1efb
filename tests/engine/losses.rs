//! Losses: labels that are no classes, labels that are left out, and shapes that do not match; against plain loops.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::nn;
use retape::{DType, Error, Tensor, accelerate, trace, value_and_grad, vjp};

/// Logits of four rows and three classes.
const LOGITS: [[f64; 3]; 4] = [[0.5, -1.0, 2.0], [0.1, 0.2, 0.3], [-3.0, 4.0, 1.5], [0.0, 0.0, 7.0]];

/// The cross-entropy of a row with a class.
fn entropy(row: [f64; 3], class: usize) -> f64 {
    row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[class]
}

/// The derivative of the cross-entropy of a row with a class.
fn slope(row: [f64; 3], class: usize) -> [f64; 3] {
    let sum: f64 = row.iter().map(|x| x.exp()).sum();
    std::array::from_fn(|i| row[i].exp() / sum - f64::from(u8::from(i == class)))
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-14 || found.is_nan() && expected.is_nan()
}

/// The value and the gradient of a loss of logits and labels: op by op, compiled, and interpreted.
fn everywhere(
    loss: impl Fn(&Tensor, &Tensor) -> Tensor + Copy,
    logits: &Tensor,
    labels: &Tensor,
) -> Vec<(f64, Vec<f64>)> {
    let numbers = |value: &Tensor, gradient: &Tensor| (value.item::<f64>().unwrap(), gradient.to_vec::<f64>().unwrap());
    let both = move |logits: &Tensor, labels: &Tensor| {
        let value = loss(logits, labels);
        let gradient = value.grad(logits);
        (value, gradient)
    };
    let (value, gradient) = value_and_grad(|logits: &Tensor| loss(logits, labels), logits).unwrap();
    let compiled = accelerate(both).call(logits, labels).unwrap();
    let graph = trace(|(logits, labels): &(Tensor, Tensor)| both(logits, labels), &(logits.clone(), labels.clone()));
    let interpreted = graph.unwrap().evaluate(&[logits.clone(), labels.clone()]).unwrap();
    vec![numbers(&value, &gradient), numbers(&compiled.0, &compiled.1), numbers(&interpreted[0], &interpreted[1])]
}

/// Labels of every integer dtype that has these numbers.
fn of_all_dtypes(labels: [i64; 4]) -> Vec<Tensor> {
    let whole = Tensor::from(labels);
    let all = [DType::I64, DType::I32, DType::U32, DType::U8].map(|dtype| whole.cast(dtype));
    all.into_iter().filter(|x| x.cast(DType::I64).to_vec::<i64>().unwrap() == labels).collect()
}

#[test]
fn a_logit_of_minus_infinity_rules_a_class_out() {
    let ruled_out = f64::NEG_INFINITY;
    let logits = Tensor::from([[0.5, -1.0, ruled_out], [ruled_out, 0.2, 0.3]]);
    let expected = (entropy([0.5, -1.0, ruled_out], 1) + entropy([ruled_out, 0.2, 0.3], 2)) / 2.0;
    let slopes = [slope([0.5, -1.0, ruled_out], 1), slope([ruled_out, 0.2, 0.3], 2)].concat();
    for (value, gradient) in everywhere(nn::softmax_cross_entropy_labels, &logits, &Tensor::from([1_i64, 2])) {
        assert!(close(value, expected), "{value}, expected {expected}");
        assert!(gradient.iter().zip(&slopes).all(|(x, y)| close(*x, y / 2.0)), "{gradient:?}, expected {slopes:?} / 2");
    }
    let ignoring = |logits: &Tensor, labels: &Tensor| nn::softmax_cross_entropy_labels_ignoring(logits, labels, -1);
    for (value, gradient) in everywhere(ignoring, &logits, &Tensor::from([1_i64, -1])) {
        assert!(close(value, entropy([0.5, -1.0, ruled_out], 1)), "{value}");
        assert!(gradient.iter().all(|x| x.is_finite()), "{gradient:?}");
    }
    // A label of a class that is ruled out has an infinite loss; a label that is no class still makes it NaN.
    for (value, _) in everywhere(nn::softmax_cross_entropy_labels, &logits, &Tensor::from([2_i64, 2])) {
        assert_eq!(value, f64::INFINITY);
    }
    for (value, _) in everywhere(nn::softmax_cross_entropy_labels, &logits, &Tensor::from([1_i64, 3])) {
        assert!(value.is_nan(), "{value}");
    }
}

#[test]
fn dtypes_that_differ_are_told_by_the_positions_of_the_call() {
    let targets = Tensor::from([[0_i64, 1, 0]; 4]);
    let message = nn::softmax_cross_entropy(&Tensor::from(LOGITS), &targets).error().unwrap().to_string();
    assert!(message.contains("argument 1 is i64[4, 3], argument 0 is f64[4, 3]"), "{message}");
}

#[test]
fn a_label_that_is_no_class_makes_the_loss_nan() {
    let logits = Tensor::from(LOGITS);
    let mut checked = 0;
    for labels in [[1, 2, 0, 2], [1, 2, 3, 0], [3, 4, 5, 255], [-1, 0, 1, 2], [i64::MIN, 0, 1, 1], [0, 1, 1 << 40, 2]] {
        let class = |row: usize| usize::try_from(labels[row]).ok().filter(|label| *label < 3);
        let terms = (0..4).map(|row| class(row).map_or(f64::NAN, |class| entropy(LOGITS[row], class)));
        let expected = terms.sum::<f64>() / 4.0;
        for labels in of_all_dtypes(labels) {
            for (value, gradient) in everywhere(nn::softmax_cross_entropy_labels, &logits, &labels) {
                assert!(close(value, expected), "{labels}: {value}, expected {expected}");
                for (row, found) in gradient.chunks(3).enumerate() {
                    let expected = class(row).map_or([f64::NAN; 3], |class| slope(LOGITS[row], class).map(|x| x / 4.0));
                    assert!(found.iter().zip(expected).all(|(x, y)| close(*x, y)), "{labels}: {found:?}");
                }
            }
            checked += 1;
        }
    }
    assert!(checked >= 13, "{checked}");
}

/// Three classes that are predicted well, and labels that begin at 1: the loss was small.
#[test]
fn labels_that_begin_at_one_are_noticed() {
    let logits = Tensor::eye(3) * 5.0;
    for labels in [[1, 2, 3], [3, 4, 5]] {
        let loss = nn::softmax_cross_entropy_labels(&logits, &Tensor::from(labels));
        assert!(loss.item::<f32>().unwrap().is_nan());
    }
}

#[test]
fn the_trap_names_the_label() {
    let loss = accelerate(|logits: &Tensor, labels: &Tensor| {
        let scaled = logits * 5.0;
        nn::softmax_cross_entropy_labels(&scaled, labels)
    });
    loss.configure(|options| options.trap_nonfinite = true);
    for enabled in [true, false] {
        loss.configure(|options| options.enabled = enabled);
        loss.call(Tensor::eye(3), Tensor::from([0_i64, 1, 2])).unwrap();
        for (labels, wrong) in [([0_i64, 3, 2], 3.0), ([0, -1, 2], -1.0)] {
            let error = loss.call(Tensor::eye(3), Tensor::from(labels)).unwrap_err();
            let Error::NonFinite(found) = &error else { panic!("{error}") };
            // The first element of the row of the label.
            assert_eq!((found.op, found.n_nan, found.first), ("one_hot", 3, 3), "{error}");
            assert_eq!(found.inputs[0].at_first, Some(wrong), "{error}");
            let at = found.at.unwrap();
            assert_eq!(at.file(), file!());
            let line = include_str!("losses.rs").lines().nth(at.line() as usize - 1).unwrap();
            assert!(line.contains("nn::softmax_cross_entropy_labels(&scaled"), "{line}");
        }
    }
}

#[test]
fn rows_of_no_class_are_what_is_read_out_of_range() {
    let labels = Tensor::from([1_i64, 3, -1]);
    let rows = |dtype| labels.one_hot_of(dtype, 3);
    let float = rows(DType::F64).to_vec::<f64>().unwrap();
    assert_eq!(float[..3], [0.0, 1.0, 0.0]);
    assert!(float[3..].iter().all(|x| x.is_nan()));
    assert!(rows(DType::Bf16).cast(DType::F32).to_vec::<f32>().unwrap()[3..].iter().all(|x| x.is_nan()));
    let (low, high) = (i32::MIN, u8::MAX);
    assert_eq!(rows(DType::I32).to_vec::<i32>().unwrap(), [0, 1, 0, low, low, low, low, low, low]);
    assert_eq!(rows(DType::U8).to_vec::<u8>().unwrap(), [0, 1, 0, high, high, high, high, high, high]);
    // As the rows of a unit matrix, except that a negative label does not count from the end.
    for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U8, DType::Bool] {
        let labels = Tensor::from([0_i64, 2, 3, 100]);
        let taken = Tensor::eye_of(dtype, 3).take(&labels, 0);
        assert_eq!(format!("{taken}"), format!("{}", labels.one_hot_of(dtype, 3)));
    }
    assert!(nn::embedding(&Tensor::eye(3), &Tensor::from([3])).to_vec::<f32>().unwrap().iter().all(|x| x.is_nan()));
    assert!(retape::data::one_hot(&[3], 3).is_err());
    assert_eq!(Tensor::from([[1_u8], [0]]).one_hot(2).shape(), [2, 1, 2]);
    assert_eq!(Tensor::from(1_u8).one_hot(2).to_vec::<f32>().unwrap(), [0.0, 1.0]);
    assert_eq!(Tensor::from([1_u8]).one_hot(0).shape(), [1, 0]);
}

#[test]
fn labels_and_their_rows_have_one_loss() {
    let logits = Tensor::from(LOGITS);
    for labels in [[0_i64, 1, 2, 0], [0, 3, -1, 2]] {
        let labels = Tensor::from(labels);
        let by_labels = nn::softmax_cross_entropy_labels(&logits, &labels).item::<f64>().unwrap();
        let by_rows = nn::softmax_cross_entropy(&logits, &labels.one_hot_of(DType::F64, 3)).item::<f64>().unwrap();
        assert!(by_labels.to_bits() == by_rows.to_bits() || by_labels.is_nan() && by_rows.is_nan());
    }
}

/// The mean is over the rows that count, and nothing comes from the others or goes to them.
#[test]
fn ignored_rows_do_not_count() {
    let mut rows = LOGITS;
    rows[1] = [f64::NAN, f64::INFINITY, 1.0];
    let logits = Tensor::from(rows);
    for (labels, ignored) in [
        ([2, -1, 1, 0], -1),
        ([2, i64::MIN, 1, 0], i64::MIN),
        ([2, 255, 1, 0], 255),
        ([2, 0, 1, 2], 0),
        ([2, 4_294_967_295, 1, 0], 4_294_967_295),
        ([2, -100, -100, 1], -100),
        ([2, -1, 3, 0], -1),
        ([-1, -1, -1, -1], -1),
    ] {
        let counts = |row: usize| labels[row] != ignored;
        let class = |row: usize| usize::try_from(labels[row]).ok().filter(|label| *label < 3);
        let n = (0..4).filter(|row| counts(*row)).count() as f64;
        let term = |row| class(row).map_or(f64::NAN, |class| entropy(rows[row], class));
        let expected = (0..4).filter(|row| counts(*row)).map(term).sum::<f64>() / n;
        for labels in of_all_dtypes(labels) {
            let loss = move |x: &Tensor, labels: &Tensor| nn::softmax_cross_entropy_labels_ignoring(x, labels, ignored);
            for (value, gradient) in everywhere(loss, &logits, &labels) {
                assert!(close(value, expected), "{labels}: {value}, expected {expected}");
                for (row, found) in gradient.chunks(3).enumerate() {
                    let expected = match class(row) {
                        _ if !counts(row) && n > 0.0 => [0.0; 3],
                        Some(class) if counts(row) => slope(rows[row], class).map(|x| x / n),
                        _ => [f64::NAN; 3],
                    };
                    // Of the mean of nothing there is no gradient to speak of.
                    let fits = n == 0.0 || found.iter().zip(expected).all(|(x, y)| close(*x, y));
                    assert!(fits, "{labels}: row {row} is {found:?}, expected {expected:?}");
                }
            }
        }
    }
}

#[test]
fn an_ignored_label_is_no_reason_for_the_trap_and_another_one_is() {
    let loss =
        accelerate(|logits: &Tensor, labels: &Tensor| nn::softmax_cross_entropy_labels_ignoring(logits, labels, -1));
    loss.configure(|options| options.trap_nonfinite = true);
    loss.call(Tensor::eye(3), Tensor::from([0_i64, -1, 2])).unwrap();
    let error = loss.call(Tensor::eye(3), Tensor::from([0_i64, -1, 7])).unwrap_err();
    assert!(matches!(&error, Error::NonFinite(found) if found.op == "one_hot"), "{error}");
}

/// `[4, 1]` and `[4]` would make a matrix of 16 differences.
#[test]
fn nothing_is_broadcast_in_a_loss() {
    let (column, row) = (Tensor::ones([4, 1]), Tensor::ones([4]));
    let labels = Tensor::from([[0_i64], [0], [0], [0]]);
    let refused = [
        ("mse", nn::mse(&column, &row), ["f32[4, 1]", "f32[4]"]),
        ("mse", nn::mse(&row, &column), ["f32[4]", "f32[4, 1]"]),
        ("mse", nn::mse(&row, &Tensor::from(1.0_f32)), ["f32[4]", "f32[]"]),
        ("half_mse", nn::half_mse(&column, &row), ["f32[4, 1]", "f32[4]"]),
        ("softmax_cross_entropy", nn::softmax_cross_entropy(&column, &row), ["f32[4, 1]", "f32[4]"]),
        (
            "softmax_cross_entropy_labels",
            nn::softmax_cross_entropy_labels(&column, &labels),
            ["f32[4, 1]", "i64[4, 1]"],
        ),
        (
            "softmax_cross_entropy_labels_ignoring",
            nn::softmax_cross_entropy_labels_ignoring(&column, &labels, -1),
            ["f32[4, 1]", "i64[4, 1]"],
        ),
    ];
    for (name, loss, types) in refused {
        let error = loss.error().unwrap();
        assert!(matches!(error, Error::Type { op, at, .. } if *op == name && at.file() == file!()), "{error}");
        let text = error.to_string();
        assert!(text.contains("reshape") && types.iter().all(|ty| text.contains(ty)), "{text}");
    }
    for loss in [nn::mse, nn::half_mse, nn::softmax_cross_entropy] {
        let traced = accelerate(move |x: &Tensor, y: &Tensor| loss(x, y));
        assert!(matches!(traced.call(&column, &row), Err(Error::Type { .. })));
        assert_eq!(
            traced.call(&column, &column).unwrap().item::<f32>().unwrap(),
            loss(&column, &column).item::<f32>().unwrap()
        );
    }
}

#[test]
fn softmax_of_nothing_is_nothing() {
    let empty = Tensor::zeros_of(DType::F64, [2, 0]);
    type Method = fn(&Tensor) -> Tensor;
    let cases: [(Method, &[usize], &[f64]); 8] = [
        (|x| x.softmax(1), &[2, 0], &[]),
        (|x| x.log_softmax(1), &[2, 0], &[]),
        (|x| x.softmax(0), &[2, 0], &[]),
        (|x| x.softmax(..), &[2, 0], &[]),
        (|x| x.logsumexp(1), &[2], &[f64::NEG_INFINITY; 2]),
        (|x| x.logsumexp_keep(1), &[2, 1], &[f64::NEG_INFINITY; 2]),
        (|x| x.logsumexp(..), &[], &[f64::NEG_INFINITY]),
        (|x| x.logsumexp(0), &[0], &[]),
    ];
    for (f, shape, expected) in cases {
        let interpreted = trace(|x: &Tensor| f(x), &empty).unwrap().evaluate(std::slice::from_ref(&empty)).unwrap();
        let (value, gradient) = vjp(|x: &Tensor| f(x), &empty, &Tensor::zeros_of(DType::F64, shape)).unwrap();
        assert_eq!(gradient.shape(), [2, 0]);
        for value in [f(&empty), accelerate(|x: &Tensor| f(x)).call(&empty).unwrap(), interpreted[0].clone(), value] {
            assert_eq!((value.shape(), &value.to_vec::<f64>().unwrap()[..]), (shape, expected));
        }
    }
}
