//! Metrics against plain loops over all examples at once.

use retape::{DType, Tensor, accelerate};
use retape_train::metrics::{Accuracy, Confusion, GradientNorm, Mean, Rmse, Throughput, TopK, gradient_norm};

use super::chance;

const CLASSES: usize = 7;

/// Logits with ties (they are multiples of 1/4), and labels.
struct Data {
    logits: Vec<f32>,
    labels: Vec<i64>,
}

impl Data {
    fn new(n: usize) -> Data {
        let mut next = chance(11);
        let logits = (0..n * CLASSES).map(|_| (16.0 * next()).floor() as f32 / 4.0).collect();
        Data { logits, labels: (0..n).map(|_| (next() * CLASSES as f64) as i64).collect() }
    }

    /// Batches of 32, the last one smaller.
    fn batches(&self) -> Vec<(Tensor, Tensor)> {
        let rows = self.logits.chunks(32 * CLASSES).zip(self.labels.chunks(32));
        let batch = |(logits, labels): (&[f32], &[i64])| {
            let logits = Tensor::from_vec(logits, [labels.len(), CLASSES]).unwrap();
            (logits, Tensor::from_vec(labels, [labels.len()]).unwrap())
        };
        rows.map(batch).collect()
    }

    /// The classes of each example in falling order of logits, the lower class first.
    fn orders(&self) -> Vec<Vec<usize>> {
        let order = |row: &[f32]| {
            let mut classes: Vec<usize> = (0..CLASSES).collect();
            // A stable sort keeps the order of equals.
            classes.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            classes
        };
        self.logits.chunks_exact(CLASSES).map(order).collect()
    }

    fn share(&self, k: usize) -> f64 {
        let is_right = |(order, label): &(Vec<usize>, &i64)| order[..k].contains(&(**label as usize));
        let n_right = self.orders().into_iter().zip(&self.labels).filter(is_right).count();
        n_right as f64 / self.labels.len() as f64
    }
}

#[test]
fn accuracy_over_batches_is_that_over_all_examples() {
    let data = Data::new(32 * 5 + 3);
    let ties = data.logits.chunks_exact(CLASSES).filter(|row| {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        row.iter().filter(|x| **x == largest).count() > 1
    });
    assert!(ties.count() > 10, "there are no ties to break");
    let (mut whole, mut parts) = (Accuracy::new(), [Accuracy::new(), Accuracy::new()]);
    let mut found = Accuracy::new();
    let mut top = [1, 3, CLASSES].map(|k| TopK::new(k).unwrap());
    for (n, (logits, labels)) in data.batches().iter().enumerate() {
        whole.add(logits, labels).unwrap();
        parts[n % 2].add(&logits.cast(DType::F64), &labels.one_hot(CLASSES)).unwrap();
        found.add_predictions(&logits.argmax(1), &labels.cast(DType::U8)).unwrap();
        top.iter_mut().for_each(|top| top.add(logits, &labels.cast(DType::I32)).unwrap());
    }
    assert_eq!((whole.value(), whole.n()), (data.share(1), 163));
    let [mut merged, second] = parts;
    merged.merge(&second);
    assert_eq!((merged, found), (whole, whole));
    assert_eq!(top.map(|top| top.value()), [data.share(1), data.share(3), 1.0]);
    let other = TopK::new(2).unwrap();
    assert!(top[0].merge(&other).unwrap_err().to_string().contains("watch/metrics.rs"));
}

#[test]
fn a_confusion_matrix_counts_every_pair() {
    let data = Data::new(100);
    let (mut confusion, mut second) = (Confusion::new(CLASSES).unwrap(), Confusion::new(CLASSES).unwrap());
    let mut found = Confusion::new(CLASSES).unwrap();
    for (n, (logits, labels)) in data.batches().iter().enumerate() {
        let to = if n == 1 { &mut second } else { &mut confusion };
        to.add(logits, labels).unwrap();
        found.add_predictions(&logits.argmax(1), labels).unwrap();
    }
    confusion.merge(&second).unwrap();
    let mut expected = vec![vec![0; CLASSES]; CLASSES];
    for (order, &label) in data.orders().iter().zip(&data.labels) {
        expected[label as usize][order[0]] += 1;
    }
    assert_eq!(confusion.value(), expected);
    assert_eq!(confusion, found);
    assert_eq!((confusion.n(), confusion.accuracy()), (100, data.share(1)));
    for class in 0..CLASSES {
        let row: u64 = expected[class].iter().sum();
        let column: u64 = expected.iter().map(|row| row[class]).sum();
        let right = expected[class][class] as f64;
        let (recall, precision) = (right / row as f64, right / column as f64);
        assert_eq!((confusion.recall(class), confusion.precision(class)), (recall, precision));
        let f1 = if right > 0.0 { 2.0 * recall * precision / (recall + precision) } else { 0.0 };
        assert!((confusion.f1(class) - f1).abs() < 1e-12, "{} {f1}", confusion.f1(class));
    }
    assert!(Confusion::new(2).unwrap().recall(0).is_nan() && Confusion::new(2).unwrap().accuracy().is_nan());
    assert_eq!((confusion.count_of(CLASSES, 0), confusion.count_of(0, CLASSES)), (0, 0));
}

#[test]
fn nan_is_never_right() {
    let nan = f32::NAN;
    let logits = Tensor::from([[nan, 0.0], [1.0, nan], [nan, nan], [1.0, 0.0], [f32::NEG_INFINITY, f32::INFINITY]]);
    let labels = Tensor::from([0_i64, 0, 1, 0, 1]);
    let (mut accuracy, mut top, mut confusion) = (Accuracy::new(), TopK::new(2).unwrap(), Confusion::new(2).unwrap());
    accuracy.add(&logits, &labels).unwrap();
    top.add(&logits, &labels).unwrap();
    confusion.add(&logits, &labels).unwrap();
    assert_eq!((accuracy.n_right(), accuracy.n(), top.value()), (2, 5, 0.4));
    assert_eq!((confusion.value(), confusion.unpredicted()), (vec![vec![1, 0], vec![0, 1]], &[2, 1][..]));
    assert_eq!((confusion.accuracy(), confusion.recall(0), confusion.precision(0)), (0.4, 1.0 / 3.0, 1.0));
}

#[test]
fn ignored_labels_do_not_count() {
    let logits = Tensor::from([[[1.0_f32, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]);
    let labels = Tensor::from([[0_i64, -100], [1, -100]]);
    let mut accuracy = Accuracy::new().ignore(-100);
    accuracy.add(&logits, &labels).unwrap();
    // A row of zeros is of no class; the row that `one_hot` makes of such a label is NaN, as of a wrong one.
    let rows = Tensor::from([[[1.0_f32, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]);
    accuracy.add(&logits, &rows).unwrap();
    let error = accuracy.add(&logits, &labels.one_hot(2)).unwrap_err().to_string();
    assert!(error.contains("row 1 of the labels f32[2, 2, 2] is not one-hot"), "{error}");
    accuracy.add_predictions(&logits.argmax(-1), &labels).unwrap();
    assert_eq!((accuracy.n_right(), accuracy.n()), (3, 6));
    let mut confusion = Confusion::new(2).unwrap().ignore(-100);
    confusion.add(&logits, &labels).unwrap();
    assert_eq!(confusion.value(), [[1, 0], [1, 0]]);
}

#[test]
fn what_does_not_fit_is_refused_and_not_counted() {
    let mut accuracy = Accuracy::new();
    let logits = Tensor::zeros([3, 4]);
    let cases = [
        (logits.clone(), Tensor::from([0_i64, 4, 1]), "4 at 1 is no class of 0..4"),
        (logits.clone(), Tensor::from([0_i64, -1, 1]), "-1 at 1 is no class of 0..4"),
        (logits.clone(), Tensor::from([0_i64, 1]), "i64[2], and the logits f32[3, 4]"),
        (logits.clone(), Tensor::from([0.0_f32, 1.0, 2.0]), "f32[3], not integers"),
        (logits.cast(DType::I32), Tensor::from([0_i64, 1, 2]), "i32[3, 4], not floats"),
        (logits.clone(), Tensor::zeros([3, 4]), "row 0 of the labels f32[3, 4] is not one-hot"),
        (logits.clone(), Tensor::ones([3, 4]), "not one-hot"),
        (logits.clone(), Tensor::eye(4).slice_axis(0, 0..3) * 0.5, "not one-hot"),
        (Tensor::zeros([3, 0]), Tensor::from([0_i64, 1, 2]), "no classes"),
        (Tensor::zeros([2]) + Tensor::zeros([3]), Tensor::from([0_i64]), "add"),
        (logits.clone(), Tensor::zeros([2]) + Tensor::zeros([3]), "add"),
    ];
    for (logits, labels, message) in cases {
        let error = accuracy.add(&logits, &labels).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("watch/metrics.rs:"), "{error}");
    }
    assert_eq!(accuracy, Accuracy::new());
    assert!(accuracy.value().is_nan());
    let error = TopK::new(5).unwrap().add(&logits, &Tensor::from([0_i64, 1, 2])).unwrap_err().to_string();
    assert!(error.contains("first 5 of 4 classes"), "{error}");
    let error = Confusion::new(3).unwrap().add(&logits, &Tensor::from([0_i64, 1, 2])).unwrap_err().to_string();
    assert!(error.contains("4 classes, and a matrix of 3"), "{error}");
    assert!(TopK::new(0).is_err() && Confusion::new(0).is_err());
    let error = accuracy.add_predictions(&Tensor::from([0_i64, 1]), &Tensor::from([0_i64, -1])).unwrap_err();
    assert!(error.to_string().contains("-1 at 1 is no class"), "{error}");
    assert!(accuracy.add_predictions(&Tensor::from([0_i64]), &Tensor::from([0_i64, 1])).is_err());
    let mut rmse = Rmse::new();
    let error = rmse.add(&Tensor::zeros([2]), &Tensor::zeros([2, 1])).unwrap_err().to_string();
    assert!(error.contains("f32[2], and the targets f32[2, 1]"), "{error}");
    assert!(Mean::new().add(&Tensor::zeros([2]), 2).unwrap_err().to_string().contains("one number, not f32[2]"));
    // Inside a trace there are no values yet; the error is that of the call, too.
    let traced = accelerate(|x: &Tensor| {
        let error = Accuracy::new().add(x, &Tensor::from([0_i64])).unwrap_err().to_string();
        assert!(error.contains("traced") && error.contains("watch/metrics.rs"), "{error}");
        x * 2.0
    });
    let error = traced.call(Tensor::zeros([1, 2])).unwrap_err().to_string();
    assert!(error.contains("traced") && error.contains("watch/metrics.rs"), "{error}");
}

#[test]
fn means_and_roots_weigh_a_partial_batch_by_its_examples() {
    let mut next = chance(5);
    let values: Vec<f64> = (0..75).map(|_| next() - 0.5).collect();
    let (mut mean, mut each, mut second) = (Mean::new(), Mean::new(), Mean::new());
    let (mut rmse, mut other) = (Rmse::new(), Rmse::new());
    for (n, batch) in values.chunks(32).enumerate() {
        let tensor = Tensor::from_vec(batch, [batch.len()]).unwrap();
        mean.add(&tensor.mean(..), batch.len()).unwrap();
        if n == 0 { &mut second } else { &mut each }.add_each(&tensor).unwrap();
        let zeros = Tensor::zeros_of(DType::F32, [batch.len()]);
        if n == 0 { &mut other } else { &mut rmse }.add(&tensor, &zeros).unwrap();
    }
    each.merge(&second);
    rmse.merge(&other);
    let expected = values.iter().sum::<f64>() / 75.0;
    let root = (values.iter().map(|x| x * x).sum::<f64>() / 75.0).sqrt();
    for (value, expected) in [(mean.value(), expected), (each.value(), expected), (rmse.value(), root)] {
        assert!((value - expected).abs() < 1e-15, "{value} {expected}");
    }
    assert_eq!((mean.n(), each.n(), rmse.n()), (75, 75, 75));
    mean.add_number(f64::NAN, 0);
    assert!(mean.value().is_finite() && Mean::new().value().is_nan() && Rmse::new().value().is_nan());
    mean.add_number(f64::INFINITY, 1);
    assert_eq!(mean.value(), f64::INFINITY);
}

#[test]
fn gradient_norms_are_the_same_traced_and_eager_in_every_dtype() {
    let mut next = chance(3);
    let values: Vec<f32> = (0..60).map(|_| (next() - 0.5) as f32).collect();
    let tree = |scale: f64| {
        let whole = Tensor::from_vec(&values[..], [60]).unwrap().cast(DType::F64) * scale;
        (
            whole.slice_axis(0, 0..20).cast(DType::F32),
            vec![whole.slice_axis(0, 20..40).cast(DType::Bf16), whole.slice_axis(0, 40..60)],
        )
    };
    // The squares of these are beyond the range of `f32`, above and below.
    for scale in [1.0, 1e25, 1e-25] {
        let tree = tree(scale);
        let wide = |x: &Tensor| x.cast(DType::F64).to_vec::<f64>().unwrap();
        let leaves = [wide(&tree.0), wide(&tree.1[0]), wide(&tree.1[1])].concat();
        let expected = leaves.iter().map(|x| (x / scale) * (x / scale)).sum::<f64>().sqrt() * scale;
        let eager = gradient_norm(&tree).item::<f64>().unwrap();
        let traced = accelerate(|tree: &(Tensor, Vec<Tensor>)| gradient_norm(tree));
        let traced = traced.call(&tree).unwrap().item::<f64>().unwrap();
        assert!((eager / expected - 1.0).abs() < 1e-14 && (traced / expected - 1.0).abs() < 1e-14, "{eager} {traced}");
    }
    let counted = (Tensor::from([3.0_f32, 4.0]), Tensor::from([1000_i64]));
    assert_eq!(gradient_norm(&counted).item::<f64>().unwrap(), 5.0);
    assert_eq!(gradient_norm(&Vec::<Tensor>::new()).item::<f64>().unwrap(), 0.0);
    let (mut norm, mut later) = (GradientNorm::new(), GradientNorm::new());
    norm.add(&Tensor::from([9.0_f64])).unwrap();
    norm.add(&Tensor::from([1.0_f32])).unwrap();
    later.add(&Tensor::from([2.0_f32])).unwrap();
    norm.merge(&later);
    norm.merge(&GradientNorm::new());
    assert_eq!((norm.n(), norm.value(), norm.last(), norm.max()), (3, 4.0, 2.0, 9.0));
    norm.add(&Tensor::from([f32::NAN])).unwrap();
    norm.add(&Tensor::from([1.0_f32])).unwrap();
    assert!(norm.max().is_nan() && norm.last() == 1.0);
}

#[test]
fn throughput_is_examples_over_time() {
    use std::time::Duration;
    let seconds = Duration::from_secs;
    let (mut one, mut two) = (Throughput::new(), Throughput::new());
    one.add_timed(100, seconds(4), seconds(1));
    one.add_timed(20, seconds(1), seconds(0));
    two.add_timed(180, seconds(3), seconds(1));
    assert_eq!((one.value(), one.waiting(), one.n()), (24.0, 0.2, 120));
    // Side by side: 300 examples while 5 seconds went by, of 8 that both worked 2 were spent waiting.
    one.merge(&two);
    assert_eq!((one.value(), one.waiting(), one.n()), (60.0, 0.25, 300));
    assert!(Throughput::new().value().is_nan() && Throughput::new().waiting().is_nan());

    let mut timed = Throughput::new();
    std::thread::sleep(Duration::from_millis(60));
    timed.restart(); // that time is left out
    for _ in 0..2 {
        let n = timed.wait(|| {
            std::thread::sleep(Duration::from_millis(30));
            10
        });
        std::thread::sleep(Duration::from_millis(10));
        timed.add(n);
    }
    // Sleeps are never shorter than asked for: 20 examples in 80 ms or more, of which 60 or more were waited.
    let elapsed = 20.0 / timed.value();
    assert!(timed.n() == 20 && elapsed >= 0.08, "{elapsed}");
    assert!(timed.waiting() * elapsed >= 0.06 && timed.waiting() < 1.0, "{} of {elapsed}", timed.waiting());
}
