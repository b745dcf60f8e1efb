//! Movement, indices and linear algebra at their edges: empty tensors, indices out of range, systems solved.

use retape::ops::{ConvOptions, Padding, Triangular};
use retape::{DType, Result, Tensor, accelerate, concat, einsum, stack, value_and_grad};

#[test]
fn empty_tensors_pass_through() -> Result<()> {
    let (empty, x) = (Tensor::zeros([2, 0]), Tensor::ones([2, 3]));
    assert_eq!(concat(&[&empty, &x, &empty], 1).to_vec::<f32>()?, [1.0; 6]);
    assert_eq!(concat(&[&empty, &empty], 1).shape(), [2, 0]);
    assert_eq!(empty.pad(&[0, 1], &[0, 1], 7.0).to_vec::<f32>()?, [7.0; 4]);
    assert_eq!(x.slice_axis(1, 2..2).shape(), [2, 0]);
    assert_eq!(empty.flip(..).shape(), [2, 0]);
    assert_eq!(empty.matmul(&Tensor::zeros([0, 3])).to_vec::<f32>()?, [0.0; 6]);
    assert_eq!(empty.argsort(1).shape(), [2, 0]);
    assert_eq!(x.take(&Tensor::zeros_of(DType::I64, [0]), 1).shape(), [2, 0]);
    let none = Tensor::from([0_i64]);
    assert!(empty.take(&none, 1).to_vec::<f32>()?.iter().all(|x| x.is_nan()));
    let (_, gradient) = value_and_grad(|x: &Tensor| x.slice_axis(1, 1..1).sum(..) + x.sum(..), &x)?;
    assert_eq!(gradient.to_vec::<f32>()?, [1.0; 6]);
    Ok(())
}

#[test]
fn products_read_parts_of_what_is_stored() -> Result<()> {
    let x: Tensor = (0..24).map(f64::from).collect();
    let x = x.reshape([2, 3, 4]);
    let f = |x: &Tensor| {
        let (a, b) = (x.slice_axis(1, ..2), x.slice_axis(2, 1..3).transpose());
        let c = x.index_axis(0, 0).slice_axis(0, ..2).t().matmul(&x.index_axis(0, 1).slice_axis(0, ..2));
        (a.matmul(&a.t()), b.matmul(&b.t()), c, x.flip(2).matmul(&x.t()))
    };
    // The same with every part stored on its own first.
    let stored = |x: &Tensor| Tensor::from_vec(x.to_vec::<f64>()?, x.shape());
    let (a, b) = (stored(&x.slice_axis(1, ..2))?, stored(&x.slice_axis(2, 1..3).transpose())?);
    let c = [x.index_axis(0, 0).slice_axis(0, ..2).t(), x.index_axis(0, 1).slice_axis(0, ..2)];
    let (c, flipped) = (stored(&c[0])?.matmul(&stored(&c[1])?), stored(&x.flip(2))?.matmul(&stored(&x.t())?));
    let expected = [a.matmul(&stored(&a.t())?), b.matmul(&stored(&b.t())?), c, flipped];
    let traced = retape::accelerate(f).call(&x)?;
    for results in [f(&x), traced] {
        for (result, expected) in [results.0, results.1, results.2, results.3].iter().zip(&expected) {
            assert_eq!((result.shape(), result.to_vec::<f64>()?), (expected.shape(), expected.to_vec::<f64>()?));
        }
    }
    let (scalar, none) = (Tensor::from(2.0_f64), Tensor::zeros_of(DType::F64, [0, 3]));
    let product = retape::accelerate(move |x: &Tensor, y: &Tensor| x.t().matmul(&y.broadcast_to([0, 2])));
    assert_eq!(product.call(&none, &scalar)?.to_vec::<f64>()?, [0.0; 6]);
    Ok(())
}

#[test]
fn indices_count_from_the_end_and_may_be_out_of_range() -> Result<()> {
    let x = Tensor::from([1.0_f64, 2.0, 3.0]);
    let indices = Tensor::from([-1_i64, 3, -4, 0]);
    let taken = x.take(&indices, 0).to_vec::<f64>()?;
    assert_eq!((taken[0], taken[3]), (3.0, 1.0));
    assert!(taken[1].is_nan() && taken[2].is_nan());
    let (_, gradient) = value_and_grad(
        |x: &Tensor| {
            let taken = x.take(&indices, 0);
            taken.is_nan().select(0.0, &taken).sum(..)
        },
        &x,
    )?;
    assert_eq!(gradient.to_vec::<f64>()?, [1.0, 0.0, 1.0]);
    let integers = Tensor::from([5_i32]).take(&Tensor::from([9_u32]), 0);
    assert_eq!(integers.to_vec::<i32>()?, [i32::MIN]);

    let updates = Tensor::from([1.0_f64, 10.0, 100.0, 1000.0]);
    assert_eq!(x.scatter_add(0, &indices, &updates).to_vec::<f64>()?, [1001.0, 2.0, 4.0]);
    let (_, gradient) = value_and_grad(|updates: &Tensor| x.scatter_add(0, &indices, updates).sum(..), &updates)?;
    assert_eq!(gradient.to_vec::<f64>()?, [1.0, 0.0, 0.0, 1.0]);
    Ok(())
}

#[test]
fn parts_join_to_the_whole() -> Result<()> {
    let x: Tensor = (0..24).collect();
    let x = x.reshape([2, 3, 4]);
    for axis in -3..3 {
        let parts = x.chunk(axis, x.dim(axis));
        assert_eq!(concat(&parts.iter().collect::<Vec<_>>(), axis).to_vec::<i32>()?, x.to_vec::<i32>()?);
        let slices: Vec<Tensor> = (0..x.dim(axis)).map(|index| x.index_axis(axis, index as isize)).collect();
        let joined = stack(&slices.iter().collect::<Vec<_>>(), axis);
        assert_eq!((joined.shape(), joined.to_vec::<i32>()?), (x.shape(), x.to_vec::<i32>()?));
    }
    assert_eq!(x.slice_axis(-1, ..=1).shape(), [2, 3, 2]);
    assert_eq!(x.slice_axis(2, -3..-1).index_axis(0, 0).index_axis(0, 0).to_vec::<i32>()?, [1, 2]);
    assert_eq!(x.tile(&[1, 2, 1]).shape(), [2, 6, 4]);
    assert_eq!(x.transpose().shape(), [2, 4, 3]);
    assert_eq!(x.swap_axes(0, -1).shape(), [4, 3, 2]);
    Ok(())
}

#[test]
fn storage_dtypes_move() -> Result<()> {
    for dtype in [DType::F16, DType::Bf16, DType::Bool, DType::U8] {
        let x = Tensor::from([[1.0_f32, 0.0], [1.0, 1.0]]).cast(dtype);
        let moved = concat(&[&x.t(), &x.pad(&[0, 1], &[0, 0], 0.0).slice_axis(1, 1..)], 0).flip(0);
        let moved = moved.take(&Tensor::from([3_i64, 2, 1, 0]), 0).tril(0);
        assert_eq!(moved.dtype(), dtype);
        assert_eq!(moved.cast(DType::F32).to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    }
    Ok(())
}

#[test]
fn sorts_go_both_ways_with_nan_last() -> Result<()> {
    let x = Tensor::from([2.0_f64, f64::NAN, 3.0, 1.0]);
    assert_eq!(x.sort(0).to_vec::<f64>()?[..3], [1.0, 2.0, 3.0]);
    assert_eq!(x.sort_descending(0).to_vec::<f64>()?[..3], [3.0, 2.0, 1.0]);
    assert!(x.sort_descending(0).to_vec::<f64>()?[3].is_nan());
    let (_, gradient) = value_and_grad(|x: &Tensor| x.top_k(2, 0).0.sum(..), &Tensor::from([2.0_f64, 5.0, 3.0]))?;
    assert_eq!(gradient.to_vec::<f64>()?, [0.0, 1.0, 1.0]);
    Ok(())
}

#[test]
fn systems_are_solved() -> Result<()> {
    // A = B Bᵀ + 3 I for three matrices of five rows.
    let b: Tensor = (0..75_i64).map(|i| ((i * 37 % 41) as f64) / 20.0 - 1.0).collect();
    let b = b.reshape([3, 5, 5]);
    let a = b.matmul(&b.t()) + Tensor::eye_of(DType::F64, 5) * 3.0;
    let rhs = b.slice_axis(2, ..2);
    let zero = |x: &Tensor| -> Result<()> {
        assert!(x.to_vec::<f64>()?.iter().all(|x| x.abs() < 1e-12), "{x}");
        Ok(())
    };
    zero(&(a.matmul(&a.solve_positive_definite(&rhs)) - &rhs))?;
    let l = a.cholesky();
    zero(&(l.matmul(&l.t()) - &a))?;
    for (form, matrix) in [
        (Triangular::LOWER, a.tril(0)),
        (Triangular::LOWER.transposed(), a.tril(0).t()),
        (Triangular::UPPER, a.triu(0)),
        (Triangular::UPPER.unit_diagonal(), a.triu(1) + Tensor::eye_of(DType::F64, 5)),
    ] {
        zero(&(matrix.matmul(&a.solve_triangular(&rhs, form)) - &rhs).maximum(-1e9))?;
    }
    let vector = Tensor::from([1.0_f64, 2.0, 3.0, 4.0, 5.0]);
    let x = a.solve_triangular(&vector, Triangular::LOWER);
    assert_eq!(x.shape(), [3, 5]);
    Ok(())
}

#[test]
fn cholesky_has_second_derivatives() -> Result<()> {
    let base: Tensor = [2.0_f64, 0.3, 0.1, 0.3, 3.0, -0.4, 0.1, -0.4, 2.5].into_iter().collect();
    let (base, direction) = (base.reshape([3, 3]), (0..9).map(|i| f64::from(i) / 9.0 - 0.4).collect::<Tensor>());
    let direction = direction.reshape([3, 3]);
    let weights = (0..9).map(|i| f64::from(i * 5 % 7) / 7.0).collect::<Tensor>().reshape([3, 3]);
    let value = |a: &Tensor| (a.cholesky() * &weights).sum(..);
    let slope = |a: &Tensor| (value(a).grad(a) * &direction).sum(..);
    let (_, second) = value_and_grad(slope, &base)?;
    let second = (second * &direction).sum(..).item::<f64>()?;
    let at = |t: f64| value(&(&base + &direction * t)).item::<f64>();
    let h = 1e-3;
    let difference = (at(h)? - 2.0 * at(0.0)? + at(-h)?) / (h * h);
    assert!((second - difference).abs() < 1e-5 * (1.0 + second.abs()), "{second} and {difference}");
    Ok(())
}

#[test]
fn index_notation_agrees_with_plain_ops() -> Result<()> {
    let a: Tensor = (0..6).map(f64::from).collect();
    let a = a.reshape([2, 3]);
    let same = |x: &Tensor, y: &Tensor| -> Result<()> {
        assert_eq!((x.shape(), x.to_vec::<f64>()?), (y.shape(), y.to_vec::<f64>()?));
        Ok(())
    };
    same(&einsum("ij->ji", &[&a]), &a.t())?;
    same(&einsum("ij->", &[&a]), &a.sum(..))?;
    same(&einsum("ij,ij->i", &[&a, &a]), &a.square().sum(1))?;
    same(&einsum("ij,kl->ik", &[&a, &a]), &a.sum(1).outer(&a.sum(1)))?;
    same(&einsum("ij,jk", &[&a, &a.t()]), &a.matmul(&a.t()))?;
    let square = a.matmul(&a.t());
    same(&einsum("ii->i", &[&square]), &Tensor::from([5.0_f64, 50.0]))?;
    same(&einsum("ii,ij->j", &[&square, &a]), &Tensor::from([150.0_f64, 205.0, 260.0]))?;
    Ok(())
}

#[test]
fn means_of_padded_windows_leave_the_padding_out() -> Result<()> {
    let x = Tensor::ones([1, 3, 3, 2]);
    let y = x.avg_pool2d([2, 2], [2, 2], Padding::Same);
    assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[1, 2, 2, 2][..], vec![1.0; 8]));
    assert_eq!(x.global_avg_pool2d().to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn refusals_name_what_does_not_fit() {
    let x = Tensor::zeros([2, 3]);
    let image = Tensor::zeros([1, 5, 5, 4]);
    let refusals: Vec<(Tensor, &[&str])> = vec![
        (x.matmul(&x), &["f32[2, 3]", "3 columns", "2 rows"]),
        (x.matmul(&Tensor::from(1.0_f32)), &["scalar", "`*`"]),
        (x.matmul(&Tensor::zeros_of(DType::F64, [3, 2])), &["f64[3, 2]", "cast"]),
        (Tensor::zeros([2, 1, 3]).matmul(&Tensor::zeros([4, 3, 1])), &["batch"]),
        (x.dot(&x), &["not a vector"]),
        (einsum("ij,jk->ik", &[&x, &x]), &["`j`", "3", "2"]),
        (einsum("ij->i", &[&image]), &["operand 0", "2 letters"]),
        (concat(&[&x, &image], 0), &["argument 1"]),
        (concat(&[], 0), &["at least one"]),
        (stack(&[&x, &image], 0), &["argument 1 is f32[1, 5, 5, 4], argument 0 is f32[2, 3]", "must be equal"]),
        (x.slice_axis(1, 2..5), &["axis 1", "f32[2, 3]"]),
        (x.index_axis(0, 2), &["index 2", "axis 0"]),
        (x.slice(&[0], &[1], &[1]), &["one entry for each axis"]),
        (x.pad(&[1], &[1], 0.0), &["one entry for each axis"]),
        (x.take(&x, 0), &["i64", "cast"]),
        (x.take_along(&Tensor::zeros_of(DType::I64, [3, 3]), 1), &["axes but 1"]),
        (x.scatter_add(0, &Tensor::from([0_i64]), &x), &["argument 2", "f32[1, 3]"]),
        (x.one_hot(3), &["integers"]),
        (x.cholesky(), &["square"]),
        (x.solve_triangular(&x, Triangular::LOWER), &["square"]),
        (x.permute([0, 0]), &["permutation"]),
        (x.squeeze(0), &["extent 1"]),
        (x.flip(2), &["axis 2"]),
        (image.conv2d(&Tensor::zeros([3, 3, 3, 8]), ConvOptions::default()), &["f32[3, 3, 3, 8]", "third axis"]),
        (image.conv2d(&Tensor::zeros([7, 3, 4, 8]), ConvOptions::default()), &["does not fit"]),
        (image.conv2d(&Tensor::zeros([3, 3, 4, 8]), ConvOptions::default().stride(0)), &["positive"]),
        (image.conv2d(&Tensor::zeros([3, 3, 4, 8]), ConvOptions::default().groups(3)), &["3 groups"]),
        (x.max_pool2d([2, 2], [2, 2], Padding::Valid), &["[batch, height, width, channels]"]),
        (image.max_pool2d([2, 2], [1, 1], Padding::Explicit([[2, 0], [0, 0]])), &["less than the window"]),
    ];
    for (result, parts) in refusals {
        let message = result.error().map(ToString::to_string).unwrap_or_default();
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in `{message}`");
        }
        assert!(message.contains("shapes.rs"), "{message}");
    }
}

/// Long lists are joined some at a time; nothing of that is to be seen.
#[test]
fn long_lists_are_joined() -> Result<()> {
    for n in [16, 17, 33, 257, 700] {
        let parts: Vec<Tensor> = (0..n).map(|i| Tensor::full([2, i % 4], i as f32)).collect();
        let expected: Vec<f32> = (0..2).flat_map(|_| (0..n).flat_map(|i| vec![i as f32; i % 4])).collect();
        let join = accelerate(|parts: &Vec<Tensor>| concat(&parts.iter().collect::<Vec<_>>(), 1));
        assert_eq!(join.call(&parts)?.to_vec::<f32>()?, expected, "{n}");
        join.configure(|options| options.enabled = false);
        assert_eq!(join.call(&parts)?.to_vec::<f32>()?, expected, "{n}, op by op");
        let weighted = |parts: &Vec<Tensor>| {
            let all = concat(&parts.iter().collect::<Vec<_>>(), 1);
            (&all * &Tensor::arange(all.shape()[1]).cast(DType::F32)).sum(..)
        };
        let gradients = accelerate(|parts: &Vec<Tensor>| value_and_grad(weighted, parts).unwrap().1).call(&parts)?;
        let mut next = 0;
        for (gradient, part) in gradients.iter().zip(&parts) {
            let row: Vec<f32> = (next..next + part.shape()[1]).map(|i| i as f32).collect();
            next += part.shape()[1];
            assert_eq!(gradient.to_vec::<f32>()?, [row.clone(), row].concat(), "{n}");
        }
    }
    let mut parts = vec![Tensor::ones([2, 3]); 40];
    parts[35] = Tensor::ones([3, 3]);
    let refused = concat(&parts.iter().collect::<Vec<_>>(), 1).error().unwrap().to_string();
    assert!(refused.contains("argument 35 is f32[3, 3], argument 0 is f32[2, 3]"), "{refused}");
    Ok(())
}
