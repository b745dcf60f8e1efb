//! Derivatives of slices: cotangents that are zero outside a window, joined where windows do not overlap.

use retape::{Form, Result, Tensor, accelerate, concat, stack};

/// Numbers of which all sums below are exact.
fn counting(shape: &[usize]) -> Tensor {
    (0..shape.iter().product()).map(|n: usize| n as f64).collect::<Tensor>().reshape(shape)
}

/// The gradient of the sum of `factors[n] * x[start[n]..start[n] + len[n]]` along an axis, by loops.
fn expected(shape: &[usize], axis: usize, slices: &[(usize, usize, f64)]) -> Vec<f64> {
    let inner: usize = shape[axis + 1..].iter().product();
    let factor = |at: usize| {
        let along = at / inner % shape[axis];
        slices.iter().filter(|(start, len, _)| (*start..start + len).contains(&along)).map(|slice| slice.2).sum()
    };
    (0..shape.iter().product()).map(factor).collect()
}

#[test]
fn slices_give_the_sum_of_their_windows() -> Result<()> {
    let shape = [3, 8, 2];
    let cases: [&[(usize, usize, f64)]; 6] = [
        &[(0, 2, 1.0), (2, 3, 2.0), (5, 3, 4.0)],
        &[(5, 2, 1.0), (1, 1, 2.0)],
        &[(0, 3, 1.0), (2, 3, 2.0), (5, 1, 4.0), (4, 4, 8.0)],
        &[(3, 1, 1.0), (3, 1, 2.0)],
        &[(0, 8, 1.0), (2, 2, 2.0), (6, 1, 4.0)],
        &[(0, 0, 1.0), (1, 2, 2.0), (4, 1, 4.0)],
    ];
    for axis in [1, 0, 2] {
        for slices in cases {
            let fit: Vec<_> = slices.iter().copied().filter(|(start, len, _)| start + len <= shape[axis]).collect();
            if fit.is_empty() {
                continue;
            }
            let sum = |x: &Tensor| {
                let term = |&(start, len, factor): &(usize, usize, f64)| {
                    (x.slice_axis(axis, start..start + len) * factor).sum(..)
                };
                fit.iter().map(term).sum::<Tensor>()
            };
            let gradient = accelerate(|x: &Tensor| sum(x).grad(x)).call(counting(&shape))?;
            assert_eq!(gradient.to_vec::<f64>()?, expected(&shape, axis, &fit), "axis {axis}, {fit:?}");
        }
    }
    Ok(())
}

#[test]
fn many_windows_that_overlap_add_up() -> Result<()> {
    // Equal windows, all of which overlap; and those of a few places, which make a join each.
    for (n, n_places) in [(3000, 1), (3001, 7), (500, 97)] {
        let slices: Vec<_> = (0..n).map(|i| (i * 31 % n_places, 1 + i % 3, (i % 5) as f64)).collect();
        let sum = |x: &Tensor| {
            let term = |&(start, len, factor): &(usize, usize, f64)| x.slice_axis(0, start..start + len) * factor;
            concat(&slices.iter().map(term).collect::<Vec<_>>().iter().collect::<Vec<_>>(), 0).sum(..)
        };
        let gradient = accelerate(|x: &Tensor| sum(x).grad(x)).call(counting(&[100]))?;
        assert_eq!(gradient.to_vec::<f64>()?, expected(&[100], 0, &slices), "{n} slices of {n_places} places");
    }
    Ok(())
}

#[test]
fn windows_along_two_axes_and_whole_uses_add_up() -> Result<()> {
    let f = |x: &Tensor| {
        let rows = x.index_axis(0, 0).sum(..) + x.index_axis(0, 2).sum(..) * 2.0;
        let columns = x.index_axis(1, 1).sum(..) * 4.0 + x.slice_axis(1, 2..4).sum(..) * 8.0;
        rows + columns + x.sum(..) * 16.0
    };
    let gradient = accelerate(|x: &Tensor| f(x).grad(x)).call(counting(&[3, 4]))?;
    let expected = [17.0, 21.0, 25.0, 25.0, 16.0, 20.0, 24.0, 24.0, 18.0, 22.0, 26.0, 26.0];
    assert_eq!(gradient.to_vec::<f64>()?, expected);
    Ok(())
}

#[test]
fn joined_windows_are_differentiated_again() -> Result<()> {
    // The second derivative of the sum of the cubes, in parts.
    let cubes = |x: &Tensor| x.chunk(0, 4).iter().map(|part| part.pow(3).sum(..)).sum::<Tensor>();
    let second = accelerate(|x: &Tensor| cubes(x).grad(x).sum(..).grad(x));
    let x = counting(&[8, 3]);
    let expected: Vec<f64> = (0..24).map(|n| 6.0 * f64::from(n)).collect();
    assert_eq!(second.call(&x)?.to_vec::<f64>()?, expected);
    Ok(())
}

#[test]
fn many_slices_are_joined_once() -> Result<()> {
    let steps = 40;
    let f = move |x: &Tensor| {
        let parts: Vec<Tensor> = (0..steps).map(|n| x.index_axis(1, n).square()).collect();
        stack(&parts.iter().collect::<Vec<_>>(), 1).sum(..)
    };
    let gradient = accelerate(move |x: &Tensor| f(x).grad(x));
    let x = counting(&[3, steps, 2]);
    let doubled: Vec<f64> = (0..3 * steps * 2).map(|n| 2.0 * n as f64).collect();
    assert_eq!(gradient.call(&x)?.to_vec::<f64>()?, doubled);
    let signature = gradient.signature(&x);
    let plan = gradient.text(&signature, Form::Plan)?;
    assert_eq!(plan.matches("join{").count(), 1, "{plan}");
    assert!(!plan.contains("pad"), "{plan}");
    Ok(())
}

#[test]
fn thousands_are_joined() -> Result<()> {
    let parts: Vec<Tensor> = (0..5000).map(|n| Tensor::from([n as f32, -1.0])).collect();
    let joined = concat(&parts.iter().collect::<Vec<_>>(), 0).to_vec::<f32>()?;
    assert!(joined.chunks(2).enumerate().all(|(n, pair)| pair == [n as f32, -1.0]));
    Ok(())
}
