//! Indices and ranges in every way they are written, against loops over coordinates.

use std::ops::Bound;

use retape::{DType, Error, Form, Result, Tensor, accelerate, concat, stack, value_and_grad};

/// The numbers 0, 1, .. as `[2, 3, 4]`: element `(i, j, k)` is `12 i + 4 j + k`.
fn numbers() -> Tensor {
    let x: Tensor = (0..24).map(f64::from).collect();
    x.reshape([2, 3, 4])
}

/// The elements of [`numbers`] at the given coordinates, in row-major order.
fn expected(is: &[usize], js: &[usize], ks: &[usize]) -> Vec<f64> {
    let at = |i: usize, j: usize, k: usize| (12 * i + 4 * j + k) as f64;
    is.iter().flat_map(|&i| js.iter().flat_map(move |&j| ks.iter().map(move |&k| at(i, j, k)))).collect()
}

#[test]
fn literals_and_every_integer_type_name_axes_and_positions() -> Result<()> {
    let x = numbers();
    let (i, n): (usize, isize) = (1, -1);
    let row = expected(&[1], &[0, 1, 2], &[0, 1, 2, 3]);
    for part in [
        x.index_axis(0, 1),
        x.index_axis(0, i),
        x.index_axis(0_usize, n),
        x.index_axis(-3, -1),
        x.index_axis(0_i32, 1_isize),
        x.at(1),
        x.at(i),
        x.at(n),
        x.at((1,)),
        x.at((i, ..)),
        x.at((n, .., 0..)),
    ] {
        assert_eq!((part.shape(), part.to_vec::<f64>()?), (&[3, 4][..], row.clone()));
    }
    let middle = expected(&[0, 1], &[1, 2], &[0, 1, 2, 3]);
    let end = x.dim(1);
    for part in [
        x.slice_axis(1, 1..3),
        x.slice_axis(1, 1..),
        x.slice_axis(1, i..end),
        x.slice_axis(1, i..=2),
        x.slice_axis(-2, -2..),
        x.slice_axis(1, -2..=-1),
        x.slice_axis(1, n - 1..),
        x.slice_axis(1_usize, (Bound::Excluded(0), Bound::Unbounded)),
        x.at((.., 1..)),
        x.at((0..2, i..end, ..)),
    ] {
        assert_eq!((part.shape(), part.to_vec::<f64>()?), (&[2, 2, 4][..], middle.clone()));
    }
    assert_eq!(x.slice_axis(0, ..).shape(), x.shape());
    assert_eq!(x.slice_axis(2, ..2).shape(), [2, 3, 2]);
    assert_eq!(x.slice_axis(2, ..=2_usize).shape(), [2, 3, 3]);
    assert_eq!(x.slice_axis(2, 4..).shape(), [2, 3, 0]);
    Ok(())
}

#[test]
fn subscripts_choose_along_several_axes_at_once() -> Result<()> {
    let x = numbers();
    let cases: [(Tensor, &[usize], Vec<f64>); 8] = [
        (x.at(..), &[2, 3, 4], expected(&[0, 1], &[0, 1, 2], &[0, 1, 2, 3])),
        (x.at((1, 2, 3)), &[], expected(&[1], &[2], &[3])),
        (x.at((-1, -1, -1)), &[], expected(&[1], &[2], &[3])),
        (x.at((.., 1)), &[2, 4], expected(&[0, 1], &[1], &[0, 1, 2, 3])),
        (x.at((.., .., 2)), &[2, 3], expected(&[0, 1], &[0, 1, 2], &[2])),
        (x.at((0, 1.., ..-1)), &[2, 3], expected(&[0], &[1, 2], &[0, 1, 2])),
        (x.at((0..1, 0, 1..=2)), &[1, 2], expected(&[0], &[0], &[1, 2])),
        (x.at(1..), &[1, 3, 4], expected(&[1], &[0, 1, 2], &[0, 1, 2, 3])),
    ];
    for (part, shape, elements) in &cases {
        assert_eq!((part.shape(), part.to_vec::<f64>()?), (*shape, elements.clone()));
    }
    let six = Tensor::arange(64).reshape([2; 6]);
    assert_eq!(six.at((1, 0, 1, 0, 1, 0)).item::<i64>()?, 0b10_1010);
    Ok(())
}

#[test]
fn methods_take_an_axis_of_any_integer_type() {
    let x = numbers();
    let (last, first): (usize, isize) = (2, -3);
    assert_eq!((x.dim(last), x.dim(first), x.dim(1), x.dim(3), x.dim(-4)), (4, 2, 3, 1, 1));
    assert_eq!(x.unsqueeze(x.rank()).shape(), [2, 3, 4, 1]);
    assert_eq!(x.swap_axes(last, first).shape(), [4, 3, 2]);
    assert_eq!(x.permute([last, 0, 1]).shape(), [4, 2, 3]);
    let order = vec![-1_isize, 0, 1];
    assert_eq!((x.permute(&order).shape(), x.permute(&order[..]).shape()), (&[4, 2, 3][..], &[4, 2, 3][..]));
    assert_eq!((x.permute(order).shape(), x.sum([1, last]).shape()), (&[4, 2, 3][..], &[2][..]));
    assert_eq!(x.permute(..).shape(), [2, 3, 4]);
    assert_eq!((x.flatten_from(1_usize).shape(), x.cumsum(last).shape()), (&[2, 12][..], &[2, 3, 4][..]));
    assert_eq!((x.sum(last).shape(), x.sum([0, last]).shape()), (&[2, 3][..], &[3][..]));
    assert_eq!((x.sum(1..).shape(), x.sum(..-1).shape()), (&[2][..], &[4][..]));
    assert_eq!((x.argmax(last).shape(), x.sort(first).shape()), (&[2, 3][..], &[2, 3, 4][..]));
    assert_eq!(x.take(&Tensor::from([0_i64]), last).shape(), [2, 3, 1]);
    assert_eq!(concat(&[&x, &x], last).shape(), [2, 3, 8]);
    assert_eq!(stack(&[&x, &x], x.rank()).shape(), [2, 3, 4, 2]);
    assert_eq!(x.split(last, &[1, 3])[1].shape(), [2, 3, 3]);
    assert_eq!(Tensor::iota(DType::I64, [2, 3], -1).to_vec::<i64>().unwrap(), [0, 1, 2, 0, 1, 2]);
}

/// The derivative of a part is one inside of it and zero outside.
#[test]
fn parts_are_differentiated() -> Result<()> {
    let x = numbers();
    let f = |x: &Tensor| (x.at((1, 1.., ..-1)) * x.at((0, ..2, 1..))).sum(..);
    let (_, gradient) = value_and_grad(f, &x)?;
    let compiled = accelerate(move |x: &Tensor| f(x).grad(x)).call(&x)?;
    let values = x.to_vec::<f64>()?;
    let at = |i: usize, j: usize, k: usize| 12 * i + 4 * j + k;
    let mut slope = vec![0.0; 24];
    for j in 0..2 {
        for k in 0..3 {
            slope[at(1, j + 1, k)] += values[at(0, j, k + 1)];
            slope[at(0, j, k + 1)] += values[at(1, j + 1, k)];
        }
    }
    assert_eq!((gradient.to_vec::<f64>()?, compiled.to_vec::<f64>()?), (slope.clone(), slope));
    Ok(())
}

#[test]
fn chunks_come_as_an_array() -> Result<()> {
    let x = numbers();
    let [a, b, c, d] = x.chunk_array(-1);
    for (k, part) in [a, b, c, d].iter().enumerate() {
        assert_eq!(part.shape(), [2, 3, 1]);
        assert_eq!(part.to_vec::<f64>()?, expected(&[0, 1], &[0, 1, 2], &[k]));
    }
    assert_eq!(x.chunk_array::<3>(1).map(|part| part.at((0, 0, 0)).item::<f64>().unwrap_or(f64::NAN)), [0.0, 4.0, 8.0]);
    let f = |x: &Tensor| {
        let [a, b] = x.chunk_array(2_usize);
        (a * b).sum(..)
    };
    let gradient = accelerate(move |x: &Tensor| f(x).grad(x)).call(&x)?;
    let swapped: Vec<f64> = x.to_vec::<f64>()?.chunks(4).flat_map(|row| [row[2], row[3], row[0], row[1]]).collect();
    assert_eq!(gradient.to_vec::<f64>()?, swapped);
    Ok(())
}

#[test]
fn what_lies_outside_is_refused_with_its_line() {
    let x = numbers();
    let (i, huge) = (1, usize::MAX);
    let [a, b, c] = x.chunk_array(2);
    let refusals: [(&Tensor, &str, &[&str]); 14] = [
        (&x.at(2), "at", &["index 2 is out of range for axis 0 of f64[2, 3, 4]"]),
        (&x.at((0, -4)), "at", &["index -4", "axis 1"]),
        (&x.at((.., 1..5)), "at", &["the range 1..5 does not lie within axis 1"]),
        (&x.at((0, 0, 0, 0)), "at", &["4 subscripts", "f64[2, 3, 4]"]),
        (&x.at(huge), "at", &["out of range for axis 0"]),
        (&x.slice_axis(0, ..=2), "slice_axis", &["the range ..=2 does not lie within axis 0"]),
        (&x.slice_axis(0, i + 1..i), "slice_axis", &["the range 2..1"]),
        (&x.slice_axis(3, ..), "slice_axis", &["axis 3 does not exist"]),
        (&x.index_axis(huge, 0), "index_axis", &["does not exist in a tensor of rank 3"]),
        (&x.sum(1..4), "sum", &["axes 1..4 do not exist in a tensor of rank 3"]),
        (&Tensor::iota(DType::I64, [2], 1), "iota", &["axis 1 does not exist"]),
        (&x.split(0, &[])[0], "split", &["do not add up to axis 0 of f64[2, 3, 4]"]),
        (&a, "chunk_array", &["axis 2 of f64[2, 3, 4] does not divide into 3 equal parts"]),
        (&(b + c), "chunk_array", &["3 equal parts"]),
    ];
    for (refused, name, words) in refusals {
        let Some(Error::Type { op, message, at, .. }) = refused.error() else { panic!("{refused}") };
        assert_eq!((*op, at.file()), (name, file!()), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    // In a trace the call fails, also if no part is used.
    let unused = accelerate(|x: &Tensor| {
        let [] = x.chunk_array(0);
        let _ = x.split(0, &[]);
        x.clone()
    });
    assert!(unused.call(&x).unwrap_err().to_string().contains("0 equal parts"));
}

/// Zeros that updates are scattered to are no operand; a base of another sign, or of other numbers, is one.
#[test]
fn updates_are_scattered_from_zeros_that_are_not_read() -> Result<()> {
    let indices = Tensor::from([1_i64, -1, 1, 7]);
    let updates = Tensor::from([1.0_f32, -0.0, 4.0, 8.0]);
    for (base, reads, expected) in
        [(0.0_f32, false, [0.0_f32, 5.0, 0.0]), (-0.0, true, [-0.0, 5.0, -0.0]), (2.0, true, [2.0, 7.0, 2.0])]
    {
        let scatter = accelerate({
            let indices = indices.clone();
            move |x: &Tensor| x.slice_axis(0, 0..3).full_like(base).scatter_add(0, &indices, x)
        });
        let sum = scatter.call(&updates)?.to_vec::<f32>()?;
        assert_eq!(bits(&sum), bits(&expected), "{base}");
        let plan = scatter.text(&scatter.signature(&updates), Form::Plan)?;
        assert_eq!(plan.contains("from_zeros=false"), reads, "{plan}");
        assert_eq!(plan.contains("splat"), reads, "{plan}");
    }
    // Zeros that are wanted for themselves as well.
    let both = accelerate(move |x: &Tensor| {
        let zeros = x.zeros_like();
        (zeros.scatter_add(0, &Tensor::from([3_i64, 3, 0, 9]), x), zeros)
    });
    let (sum, zeros) = both.call(&updates)?;
    assert_eq!((sum.to_vec::<f32>()?, zeros.to_vec::<f32>()?), (vec![4.0, 0.0, 0.0, 1.0], vec![0.0; 4]));
    Ok(())
}

/// The bits of numbers, by which the zeros differ and NaN is equal.
fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// The largest elements are the first ones of the stable sort, whatever way finds them: NaN last, equal ones in order.
#[test]
fn the_k_largest_are_the_first_of_a_sort() -> Result<()> {
    let number = |i: i64| if i % 11 == 0 { f32::NAN } else { (i * 37 % 50) as f32 };
    let x = (0..6 * 200).map(number).collect::<Tensor>();
    for (shape, axis) in [([6, 200], 1), ([200, 6], 0), ([6, 200], -2)] {
        let x = x.reshape(shape);
        let extent = x.dim(axis);
        for k in [0, 1, 5, 33, 190, 200].into_iter().filter(|k| *k <= extent) {
            let largest = accelerate(move |x: &Tensor| x.top_k(k, axis));
            let (values, indices) = largest.call(&x)?;
            let expected = x.argsort_descending(axis).slice_axis(axis, 0..k);
            assert_eq!(indices.shape(), expected.shape());
            assert_eq!(indices.to_vec::<i64>()?, expected.to_vec::<i64>()?, "{k} of {shape:?}");
            let taken = x.take_along(&expected, axis).to_vec::<f32>()?;
            assert_eq!(bits(&values.to_vec::<f32>()?), bits(&taken), "{k} of {shape:?}");
            let plan = largest.text(&largest.signature(&x), Form::Plan)?;
            assert!(k == 0 || plan.contains(&format!("kept={k}")), "{plan}");
        }
    }
    let refused = x.reshape([6, 200]).top_k(7, 0).0.to_vec::<f32>().unwrap_err().to_string();
    assert!(refused.contains("axis 0 of f32[6, 200] has fewer than 7 elements"), "{refused}");
    Ok(())
}

/// Indices near the ends of what their dtypes and 32 bits hold, and of an axis of `n`.
fn edges(n: i64) -> Vec<i64> {
    let ends = [i64::MIN, -(1 << 32), i32::MIN.into(), -n, 0, n, i32::MAX.into(), 1 << 31, u32::MAX.into(), 1 << 32];
    let near = ends.into_iter().flat_map(|end| (-2..=2).map(move |by| end.saturating_add(by)));
    near.chain((0..5).map(|by| i64::MAX - by)).collect()
}

#[test]
fn indices_out_of_range_stay_out_of_range_in_any_number_of_bits() -> Result<()> {
    for (n, width) in [(1, 1), (2, 3), (7, 2), (7, 5), (40, 3), (5, 16)] {
        let x = Tensor::from_vec((0..n * width).map(|i| i as f32).collect::<Vec<f32>>(), [n, width])?;
        let len = n as i64;
        let of_dtypes = [
            (DType::I64, i64::MIN..=i64::MAX),
            (DType::I32, i32::MIN.into()..=i32::MAX.into()),
            (DType::U32, 0..=u32::MAX.into()),
        ];
        for (dtype, range) in of_dtypes {
            // Short rows of so many indices become one axis.
            let at: Vec<i64> = edges(len).repeat(8).into_iter().filter(|at| range.contains(at)).collect();
            let indices = Tensor::from(&at[..]).cast(dtype);
            let row =
                |at: i64| usize::try_from(if at < 0 { at.saturating_add(len) } else { at }).ok().filter(|&row| row < n);
            let element = |row: Option<usize>, column: usize| row.map_or(f32::NAN, |row| (row * width + column) as f32);
            let rows = |all: &[i64]| -> Vec<f32> {
                all.iter().flat_map(|&at| (0..width).map(move |column| element(row(at), column))).collect()
            };
            let take = accelerate(|(x, indices): &(Tensor, Tensor)| x.take(indices, 0));
            let taken = take.call(&(x.clone(), indices.clone()))?.to_vec::<f32>()?;
            assert_eq!(bits(&taken), bits(&rows(&at)), "{n} rows of {width} at {dtype} indices");
            let along = accelerate(|(x, indices): &(Tensor, Tensor)| {
                let indices = indices.unsqueeze(1).broadcast_to([indices.dim(0), x.dim(1)]);
                (x.take_along(&indices, 0), x.t().take_along(&indices.t(), 1).t())
            });
            let (down, across) = along.call(&(x.clone(), indices.clone()))?;
            for taken in [down, across] {
                let taken = taken.to_vec::<f32>()?;
                assert_eq!(bits(&taken), bits(&rows(&at)), "{n} rows of {width} along {dtype} indices");
            }
            let count = accelerate(|(x, indices): &(Tensor, Tensor)| {
                x.zeros_like().scatter_add(0, indices, &Tensor::ones([indices.dim(0), x.dim(1)]))
            });
            let counts = count.call(&(x.clone(), indices))?.to_vec::<f32>()?;
            let expected = |place: usize| at.iter().filter(|&&at| row(at) == Some(place / width)).count() as f32;
            assert_eq!(
                counts,
                (0..n * width).map(expected).collect::<Vec<_>>(),
                "{n} rows of {width} at {dtype} indices"
            );
        }
    }
    Ok(())
}
