//! Index notation against loops over all letters.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use retape::ops::einsum;
use retape::{Form, Result, Tensor, accelerate};

/// The extent of a letter: another one for each.
fn extent(letter: char) -> usize {
    match letter {
        'i' => 3,
        'j' => 5,
        'k' => 4,
        'l' => 2,
        other => panic!("no extent for {other}"),
    }
}

fn shape(letters: &str) -> Vec<usize> {
    letters.chars().map(extent).collect()
}

/// Small integers, whose sums are exact in any order.
fn integers(letters: &str, factor: usize) -> Vec<f32> {
    (0..shape(letters).iter().product()).map(|i: usize| (i * factor % 11) as f32 - 5.0).collect()
}

/// The place of an element whose letters have these values.
fn place(letters: &str, values: &BTreeMap<char, usize>) -> usize {
    letters.chars().fold(0, |at, letter| at * extent(letter) + values[&letter])
}

/// The sum of products, and the gradients of its sum with the weights `w`, by one loop over all letters.
fn by_loops([a, b, result]: [&str; 3], [x, y, w]: [&[f32]; 3]) -> [Vec<f32>; 3] {
    let mut letters: Vec<char> = a.chars().chain(b.chars()).collect();
    letters.sort_unstable();
    letters.dedup();
    let mut sums = [vec![0.0; w.len()], vec![0.0; x.len()], vec![0.0; y.len()]];
    for number in 0..letters.iter().map(|&letter| extent(letter)).product() {
        let mut rest: usize = number;
        let mut values = BTreeMap::new();
        for &letter in &letters {
            values.insert(letter, rest % extent(letter));
            rest /= extent(letter);
        }
        let [at_x, at_y, at] = [a, b, result].map(|letters| place(letters, &values));
        sums[0][at] += x[at_x] * y[at_y];
        sums[1][at_x] += w[at] * y[at_y];
        sums[2][at_y] += w[at] * x[at_x];
    }
    sums
}

/// Letters in any order on either side, whether both operands have them, one has all, or neither.
#[test]
fn sums_of_products_are_those_of_loops_over_all_letters() -> Result<()> {
    let equations = [
        "ij,ij->j",
        "ij,ij->ji",
        "ij,ji->i",
        "ji,ij->j",
        "ji,ij->ij",
        "ij,j->ji",
        "j,ij->i",
        "j,ij->ji",
        "i,ij->ij",
        "ij,ij->",
        "iij,ij->j",
        "iij,j->ij",
        "ijk,ij->j",
        "ij,ijk->j",
        "ij,ji->ji",
        "ijk,ik->jk",
        "ik,ijk->kj",
        "kji,ik->ji",
        "ijk,kij->j",
        "jik,kij->ik",
        "ijk,kji->",
        "i,j->ji",
        "ij,kj->kij",
        "ji,jk->ijk",
        "ij,jk->ki",
        "kij,jk->ik",
        "ijkl,jl->ki",
        "lj,ijkl->kl",
        "ki,lkj->jli",
    ];
    for equation in equations {
        let (operands, result) = equation.split_once("->").unwrap();
        let (a, b) = operands.split_once(',').unwrap();
        let values = [integers(a, 7), integers(b, 5), integers(result, 3)];
        let tensor = |letters: &str, values: &[f32]| values.iter().copied().collect::<Tensor>().reshape(shape(letters));
        let (x, y, w) = (tensor(a, &values[0]), tensor(b, &values[1]), tensor(result, &values[2]));
        let all = accelerate(move |x: &Tensor, y: &Tensor, w: &Tensor| {
            let product = einsum(equation, &[x, y]);
            let loss = (&product * w).sum(..);
            (product, loss.grad(x), loss.grad(y))
        });
        let (product, dx, dy) = all.call(&x, &y, &w)?;
        assert_eq!(product.shape(), shape(result), "{equation}");
        let expected = by_loops([a, b, result], [&values[0], &values[1], &values[2]]);
        for (what, (actual, expected)) in
            ["value", "first", "second"].iter().zip([product, dx, dy].iter().zip(expected))
        {
            assert_eq!(actual.to_vec::<f32>()?, expected, "{equation}: {what}");
        }
    }
    Ok(())
}

/// An operand that has all letters is read as it lies, and its gradient lies as it does.
#[test]
fn an_operand_with_all_letters_stays_as_it_lies() -> Result<()> {
    for (equation, a, b) in [("ij,ij->j", "ij", "ij"), ("j,ij->ij", "j", "ij"), ("ijk,ik->ijk", "ijk", "ik")] {
        let gradient = accelerate(move |x: &[Tensor; 2]| einsum(equation, &[&x[0], &x[1]]).square().sum(..).grad(x));
        let x = [Tensor::ones(shape(a)), Tensor::ones(shape(b))];
        gradient.call(&x)?;
        let graph = gradient.text(&gradient.signature(&x), Form::Graph)?;
        assert!(!graph.contains("permute"), "{equation}\n{graph}");
    }
    Ok(())
}
