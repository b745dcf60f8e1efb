//! Derivatives by what many products share: one product of the joined operands.

use retape::{Form, Result, Tensor, accelerate};

/// Small whole numbers, of which all sums below are exact.
fn counting(shape: &[usize], period: usize) -> Tensor {
    (0..shape.iter().product()).map(|n: usize| (n % period) as f64 - 2.0).collect::<Tensor>().reshape(shape)
}

/// The gradient of a function of a weight, compiled and op by op, and the number of products it takes when compiled. The
/// losses here are linear, so their own products are not needed.
fn gradient(weight: &Tensor, x: &Tensor, loss: fn(&Tensor, &Tensor) -> Tensor) -> Result<(Vec<f64>, usize)> {
    let f = accelerate(move |w: &Tensor, x: &Tensor| loss(w, x).grad(w));
    let fast = f.call(weight, x)?.to_vec::<f64>()?;
    let plan = f.text(&f.signature(weight, x), Form::Plan)?;
    f.configure(|options| options.enabled = false);
    assert_eq!(f.call(weight, x)?.to_vec::<f64>()?, fast, "eagerly");
    Ok((fast, plan.matches("matmul{").count()))
}

/// The products of each step with a cotangent of its own, which is the number of the step, as rows.
fn steps(x: &Tensor, product: impl Fn(&Tensor) -> Tensor) -> Tensor {
    (0..x.dim(0)).map(|step| (product(&x.at(step)) * (step + 1) as f64).sum(..)).sum()
}

/// The gradient by a weight `[inputs, outputs]`: each column the sum over steps and rows of inputs times steps.
fn expected(x: &Tensor, n_outputs: usize) -> Result<Vec<f64>> {
    let (n_steps, n_inputs) = (x.dim(0), x.dim(-1));
    let elements = x.to_vec::<f64>()?;
    let rows = elements.len() / n_steps / n_inputs;
    let row = |input: usize| {
        let of = |at: usize| elements[at * n_inputs + input] * (at / rows + 1) as f64;
        (0..n_steps * rows).map(of).sum::<f64>()
    };
    Ok((0..n_inputs).flat_map(|input| vec![row(input); n_outputs]).collect())
}

#[test]
fn steps_of_matrices_are_one_product() -> Result<()> {
    let (weight, x) = (counting(&[40, 30], 7), counting(&[12, 2, 40], 5));
    let (found, n) = gradient(&weight, &x, |w, x| steps(x, |x| x.matmul(w)))?;
    assert_eq!(found, expected(&x, 30)?);
    assert_eq!(n, 1);
    Ok(())
}

#[test]
fn steps_of_vectors_are_one_product() -> Result<()> {
    let (weight, x) = (counting(&[40, 30], 7), counting(&[12, 40], 5));
    let (found, _) = gradient(&weight, &x, |w, x| steps(x, |x| x.matmul(w)))?;
    assert_eq!(found, expected(&x, 30)?);
    // Vectors on the right, of which the weight has columns.
    let (found, n) = gradient(&weight.t(), &x, |w, x| steps(x, |x| w.matmul(x)))?;
    let transposed = Tensor::from_vec(expected(&x, 30)?, [40, 30])?.t().to_vec::<f64>()?;
    assert_eq!(found, transposed);
    assert_eq!(n, 1);
    Ok(())
}

#[test]
fn uses_of_a_transposed_weight_are_one_product() -> Result<()> {
    let (weight, x) = (counting(&[30, 40], 7), counting(&[12, 2, 40], 5));
    let (found, n) = gradient(&weight, &x, |w, x| steps(x, |x| x.matmul(&w.t())))?;
    assert_eq!(found, Tensor::from_vec(expected(&x, 30)?, [40, 30])?.t().to_vec::<f64>()?);
    assert_eq!(n, 1);
    Ok(())
}

#[test]
fn batches_of_products_are_joined_matrix_by_matrix() -> Result<()> {
    let (weight, x) = (counting(&[3, 40, 30], 7), counting(&[12, 3, 2, 40], 5));
    let (found, n) = gradient(&weight, &x, |w, x| steps(x, |x| x.matmul(w)))?;
    let by_batch = x.permute([1, 0, 2, 3]);
    let each = (0..3).map(|batch| expected(&by_batch.at(batch), 30)).collect::<Result<Vec<_>>>()?;
    assert_eq!(found, each.concat());
    assert_eq!(n, 1);
    Ok(())
}

#[test]
fn products_beside_other_uses_add_up() -> Result<()> {
    let (weight, x) = (counting(&[40, 30], 7), counting(&[12, 2, 40], 5));
    let (found, _) = gradient(&weight, &x, |w, x| steps(x, |x| x.matmul(w)) + w.square().sum(..))?;
    let doubled = (&weight * 2.0).to_vec::<f64>()?;
    let sums: Vec<f64> = expected(&x, 30)?.iter().zip(&doubled).map(|(a, b)| a + b).collect();
    assert_eq!(found, sums);
    Ok(())
}

#[test]
fn few_or_deep_products_are_added() -> Result<()> {
    let loss: fn(&Tensor, &Tensor) -> Tensor = |w, x| steps(x, |x| x.matmul(w));
    for (shape, n) in [([3, 20, 40], 3), ([12, 40, 40], 12)] {
        let x = counting(&shape, 5);
        let (found, products) = gradient(&counting(&[40, 30], 7), &x, loss)?;
        assert_eq!((found, products), (expected(&x, 30)?, n), "{shape:?}");
    }
    Ok(())
}

#[test]
fn merged_products_are_differentiated_again() -> Result<()> {
    // Of a cubic form, whose second derivative by the weight is linear in it.
    let f = |w: &Tensor, x: &Tensor| steps(x, |x| x.matmul(w).pow(3));
    let by = |order: f64| {
        let second = accelerate(move |w: &Tensor, x: &Tensor| (f(w, x).grad(w) * order).sum(..).grad(w));
        second.call(counting(&[6, 5], 3), counting(&[8, 2, 6], 4))
    };
    let second = by(1.0)?;
    // Along all directions at once: the sum over elements of 6 y (sum of a row) x.
    let (w, x) = (counting(&[6, 5], 3), counting(&[8, 2, 6], 4));
    let y = x.matmul(&w);
    let weights: Tensor = (1..9).map(f64::from).collect::<Tensor>().reshape([8, 1, 1]);
    let ct = y * x.sum(-1).expand_dims(-1) * weights * 6.0;
    let expected = x.reshape([16, 6]).t().matmul(&ct.reshape([16, 5]));
    assert_eq!(second.to_vec::<f64>()?, expected.to_vec::<f64>()?);
    Ok(())
}
