//! Diagonals, traces and determinants, against loops and Gaussian elimination.

use retape::{DType, Result, Tensor, accelerate, value_and_grad};

/// Numbers between -1 and 1 without a pattern.
fn numbers(n: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + 11) % 101) as f64 / 50.0 - 1.0).collect()
}

/// `n` rows of `n`, as `B Bᵀ + 2 I`.
fn positive_definite(n: usize, seed: usize) -> Vec<f64> {
    let b = numbers(n * n + seed)[seed..].to_vec();
    let product = |i: usize, j: usize| (0..n).map(|k| b[i * n + k] * b[j * n + k]).sum::<f64>();
    (0..n * n).map(|at| product(at / n, at % n) + if at / n == at % n { 2.0 } else { 0.0 }).collect()
}

/// The determinant and the inverse, by Gauss and Jordan's elimination with row pivots.
fn eliminated(matrix: &[f64], n: usize) -> (f64, Vec<f64>) {
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let unit = (0..n).map(|j| f64::from(u8::from(i == j)));
            matrix[i * n..(i + 1) * n].iter().copied().chain(unit).collect()
        })
        .collect();
    let mut determinant = 1.0;
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()));
        let pivot = pivot.expect("there are rows left");
        if pivot != column {
            rows.swap(pivot, column);
            determinant = -determinant;
        }
        let scale = rows[column][column];
        determinant *= scale;
        rows[column].iter_mut().for_each(|x| *x /= scale);
        let own = rows[column].clone();
        for (other, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != column) {
            let factor = row[column];
            assert_ne!(other, column);
            row.iter_mut().zip(&own).for_each(|(x, y)| *x -= factor * y);
        }
    }
    (determinant, rows.iter().flat_map(|row| row[n..].to_vec()).collect())
}

#[test]
fn diagonals_are_those_of_loops() -> Result<()> {
    for (batch, rows, columns) in
        [(1, 1, 1), (2, 3, 5), (3, 5, 3), (2, 4, 4), (2, 1, 6), (0, 3, 3), (2, 0, 3), (2, 3, 0)]
    {
        let x = Tensor::from_vec(numbers(batch * rows * columns), [batch, rows, columns])?;
        let values = x.to_vec::<f64>()?;
        for k in -7_i64..=7 {
            let coordinates: Vec<(usize, usize)> = (0..rows as i64)
                .map(|i| (i, i + k))
                .filter(|&(_, j)| 0 <= j && j < columns as i64)
                .map(|(i, j)| (i as usize, j as usize))
                .collect();
            let of = |b: usize| coordinates.iter().map(move |&(i, j)| (b * rows + i) * columns + j);
            let expected: Vec<f64> = (0..batch).flat_map(of).map(|at| values[at]).collect();
            let traced = accelerate(move |x: &Tensor| x.diagonal(k)).call(&x)?;
            for diagonal in [x.diagonal(k), traced] {
                assert_eq!(diagonal.shape(), [batch, coordinates.len()], "{rows} x {columns}, {k}");
                assert_eq!(diagonal.to_vec::<f64>()?, expected, "{rows} x {columns}, {k}");
            }
            // The derivative is one on the diagonal and zero elsewhere.
            let (_, slope) = value_and_grad(|x: &Tensor| x.diagonal(k).sum(..), &x)?;
            let mut ones = vec![0.0; values.len()];
            (0..batch).flat_map(of).for_each(|at| ones[at] = 1.0);
            assert_eq!(slope.to_vec::<f64>()?, ones, "{rows} x {columns}, {k}");
        }
        let sums: Vec<f64> =
            (0..batch).map(|b| (0..rows.min(columns)).map(|i| values[(b * rows + i) * columns + i]).sum()).collect();
        assert_eq!(x.trace().to_vec::<f64>()?, sums);
    }
    for far in [i64::MIN, i64::MAX] {
        assert_eq!(Tensor::ones([2, 3]).diagonal(far).shape(), [0]);
    }
    assert_eq!(Tensor::from([[1_i32, 2], [3, 4]]).trace().item::<i32>()?, 5);
    assert_eq!(Tensor::from([[true, false], [false, true]]).diagonal(0).to_vec::<bool>()?, [true, true]);
    Ok(())
}

#[test]
fn logarithms_of_determinants_are_those_of_elimination() -> Result<()> {
    for n in [1, 2, 5, 9] {
        let matrices: Vec<Vec<f64>> = (0..3).map(|seed| positive_definite(n, seed)).collect();
        let x = Tensor::from_vec(matrices.concat(), [3, n, n])?;
        let f = |x: &Tensor| x.logdet_positive_definite();
        let value = accelerate(f).call(&x)?;
        assert_eq!(value.shape(), [3]);
        let (_, slope) = value_and_grad(|x: &Tensor| f(x).sum(..), &x)?;
        for (b, matrix) in matrices.iter().enumerate() {
            let (determinant, inverse) = eliminated(matrix, n);
            assert!((value.to_vec::<f64>()?[b] - determinant.ln()).abs() < 1e-13 * n as f64);
            let slope = slope.at(b).to_vec::<f64>()?;
            assert!(slope.iter().zip(&inverse).all(|(x, y)| (x - y).abs() < 1e-12), "{slope:?}, {inverse:?}");
        }
    }
    // Far beyond where the determinant itself is a number.
    let large = Tensor::eye_of(DType::F64, 200) * 1e-5;
    assert!((large.logdet_positive_definite().item::<f64>()? - 200.0 * 1e-5_f64.ln()).abs() < 1e-9);
    assert!(Tensor::from([[1.0_f64, 2.0], [2.0, 1.0]]).logdet_positive_definite().item::<f64>()?.is_nan());
    Ok(())
}

/// Along a direction D, the second derivative of log det A is minus the trace of (A⁻¹ D)² for symmetric D.
#[test]
fn logarithms_of_determinants_have_second_derivatives() -> Result<()> {
    let n = 4;
    let matrix = positive_definite(n, 5);
    let direction: Vec<f64> = (0..n * n).map(|at| ((at / n) * (at % n) + 1) as f64 / 10.0).collect();
    let (x, d) = (Tensor::from_vec(&matrix, [n, n])?, Tensor::from_vec(&direction, [n, n])?);
    let along = |x: &Tensor| (x.logdet_positive_definite().grad(x) * &d).sum(..);
    let second = (value_and_grad(along, &x)?.1 * &d).sum(..).item::<f64>()?;
    let (_, inverse) = eliminated(&matrix, n);
    let times = |a: &[f64], b: &[f64]| -> Vec<f64> {
        (0..n * n).map(|at| (0..n).map(|k| a[at / n * n + k] * b[k * n + at % n]).sum()).collect()
    };
    let product = times(&inverse, &direction);
    let square = times(&product, &product);
    let expected = -(0..n).map(|i| square[i * n + i]).sum::<f64>();
    assert!((second - expected).abs() < 1e-12, "{second}, expected {expected}");
    Ok(())
}

#[test]
fn matrices_that_do_not_fit_are_refused() {
    let vector = Tensor::ones([3]);
    let wide = Tensor::ones([2, 3]);
    let whole = Tensor::from([[1_i32, 0], [0, 1]]);
    for (refused, name, words) in [
        (vector.diagonal(0), "diagonal", "f32[3] must have at least two axes"),
        (vector.trace(), "trace", "f32[3]"),
        (wide.logdet_positive_definite(), "logdet_positive_definite", "f32[2, 3]"),
        (wide.solve_positive_definite(&vector), "solve_positive_definite", "f32[2, 3]"),
        (whole.logdet_positive_definite(), "logdet_positive_definite", "i32[2, 2]"),
    ] {
        let Some(retape::Error::Type { op, message, at, .. }) = refused.error() else { panic!("{refused}") };
        assert_eq!((*op, at.file()), (name, file!()));
        assert!(message.contains(words), "{message}");
    }
}
