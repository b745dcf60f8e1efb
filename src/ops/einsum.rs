//! Sums of products by index notation: permute, multiply or contract, permute.

use std::panic::Location;

use retape_runtime::Shape;

use super::matmul::refused_among;
use super::{ReduceSum, Slice};
use crate::error::Caller;
use crate::method::method;
use crate::tensor::Tensor;

/// A sum of products of one or two tensors in index notation, as NumPy's `einsum`.
///
/// Each letter names an axis. Letters missing from the result are summed over; a letter twice in one operand takes
/// its diagonal. Without `->` the result has the letters that occur once, in alphabetical order.
///
/// ```
/// # use retape::{Tensor, einsum};
/// let a = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(einsum("ij,kj->ik", &[&a, &a]).to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// assert_eq!(einsum("ii->", &[&a]).item::<f32>()?, 5.0);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Tensor {
    let (at, _method) = (Location::caller(), method("einsum"));
    if let Some(poisoned) = operands.iter().find(|operand| operand.error().is_some()) {
        return Tensor::clone(poisoned);
    }
    match Equation::parse(equation).and_then(|equation| equation.apply(operands, at)) {
        Ok(result) => result,
        Err(message) => {
            let message = format!("`{equation}`: {message}");
            refused_among(operands, message, at)
        }
    }
}

/// Index notation: the letters of each operand and of the result.
#[derive(Debug, PartialEq, Eq)]
struct Equation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
}

impl Equation {
    fn parse(text: &str) -> Result<Equation, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let letters = |part: &str| match part.chars().find(|c| !c.is_ascii_alphabetic()) {
            Some('.') => Err("`...` is not supported; give each axis a letter".to_owned()),
            Some(c) => Err(format!("`{c}` is not a letter")),
            None => Ok(part.chars().collect::<Vec<char>>()),
        };
        let operands = left.split(',').map(letters).collect::<Result<Vec<_>, _>>()?;
        let used: Vec<char> = operands.iter().flatten().copied().collect();
        let result = match right {
            Some(right) => letters(right)?,
            None => {
                let mut once: Vec<char> =
                    used.iter().copied().filter(|c| used.iter().filter(|d| c == *d).count() == 1).collect();
                once.sort_unstable();
                once
            }
        };
        for (position, c) in result.iter().enumerate() {
            if result[..position].contains(c) {
                return Err(format!("`{c}` is twice in the result"));
            }
            if !used.contains(c) {
                return Err(format!("`{c}` of the result is in no operand"));
            }
        }
        Ok(Equation { operands, result })
    }

    fn apply(&self, operands: &[&Tensor], at: Caller) -> Result<Tensor, String> {
        if self.operands.len() != operands.len() {
            return Err(format!("names {} operands, was given {}", self.operands.len(), operands.len()));
        }
        for (position, (letters, operand)) in self.operands.iter().zip(operands).enumerate() {
            if letters.len() != operand.rank() {
                return Err(format!(
                    "operand {position} is {}, but has {} letters",
                    operand.type_text(),
                    letters.len()
                ));
            }
        }
        self.check_extents(operands)?;
        let mut parts = self.operands.iter().zip(operands).map(|(letters, operand)| {
            LetteredTensor { tensor: Tensor::clone(operand), letters: letters.clone() }.without_repeats(at)
        });
        let product = match (parts.next(), parts.next(), parts.next()) {
            (Some(only), None, None) => only.summed(|c| self.result.contains(&c), at),
            (Some(a), Some(b), None) => {
                let a = a.summed(|c| self.result.contains(&c) || b.letters.contains(&c), at);
                let b = b.summed(|c| self.result.contains(&c) || a.letters.contains(&c), at);
                a.times(&b, &self.result, at)
            }
            _ => return Err("takes one or two operands; contract more of them pair by pair".to_owned()),
        };
        Ok(product.ordered(&self.result, at).tensor)
    }

    /// A letter has one extent wherever it stands.
    fn check_extents(&self, operands: &[&Tensor]) -> Result<(), String> {
        let all =
            || self.operands.iter().zip(operands).flat_map(|(letters, operand)| letters.iter().zip(operand.shape()));
        for (position, (letter, extent)) in all().enumerate() {
            if let Some((_, other)) = all().take(position).find(|(other, _)| *other == letter)
                && other != extent
            {
                return Err(format!("`{letter}` is {other} and {extent}"));
            }
        }
        Ok(())
    }
}

/// A tensor with a letter for each axis.
#[derive(Clone)]
struct LetteredTensor {
    tensor: Tensor,
    letters: Vec<char>,
}

impl LetteredTensor {
    fn extent(&self, letter: char) -> usize {
        self.letters.iter().position(|&c| c == letter).map_or(1, |axis| self.tensor.extent(axis as isize))
    }

    /// Takes the diagonal for each letter that stands twice.
    fn without_repeats(mut self, at: Caller) -> LetteredTensor {
        while let Some(second) =
            (1..self.letters.len()).find(|&axis| self.letters[..axis].contains(&self.letters[axis]))
        {
            let letter = self.letters[second];
            let first = self.letters.iter().position(|&c| c == letter).unwrap_or(0);
            let others: Vec<usize> = (0..self.letters.len()).filter(|&axis| axis != first && axis != second).collect();
            let order: Vec<usize> = others.iter().copied().chain([first, second]).collect();
            let n = self.tensor.extent(first as isize);
            let lead: Vec<usize> = others.iter().map(|&axis| self.tensor.extent(axis as isize)).collect();
            let merged: Shape = lead.iter().copied().chain([n * n]).collect();
            // The diagonal of rows of length n is every element n + 1 after the one before.
            let mut step: smallvec::SmallVec<[i64; 4]> = lead.iter().map(|_| 1).collect();
            step.push(n as i64 + 1);
            let slice = Slice {
                start: step.iter().map(|_| 0).collect(),
                step,
                shape: lead.iter().copied().chain([n]).collect(),
            };
            self.tensor = Tensor::apply_at(slice, &[&self.tensor.permuted(&order, at).reshape_at(merged, at)], at);
            self.letters = others.iter().map(|&axis| self.letters[axis]).chain([letter]).collect();
        }
        self
    }

    /// Sums over the letters that are not kept.
    fn summed(self, kept: impl Fn(char) -> bool, at: Caller) -> LetteredTensor {
        let axes: smallvec::SmallVec<[usize; 4]> =
            (0..self.letters.len()).filter(|&axis| !kept(self.letters[axis])).collect();
        if axes.is_empty() {
            return self;
        }
        let letters = self.letters.iter().copied().filter(|&c| kept(c)).collect();
        LetteredTensor { tensor: Tensor::apply_at(ReduceSum { axes }, &[&self.tensor], at), letters }
    }

    /// The axes in another order.
    fn ordered(self, letters: &[char], at: Caller) -> LetteredTensor {
        let axis = |letter: &char| self.letters.iter().position(|c| c == letter);
        match letters.iter().map(axis).collect::<Option<Vec<usize>>>() {
            Some(order) => LetteredTensor {
                tensor: self.tensor.unless_poisoned(|t| t.permuted(&order, at)),
                letters: letters.to_vec(),
            },
            None => self,
        }
    }

    /// The letters of each part that lie together in its order as one axis, under the first of them: another order of the
    /// axes leaves them together.
    fn with_runs_as_one(&self, parts: [&[char]; 2], at: Caller) -> LetteredTensor {
        let is_run = |part: &[char]| part.len() > 1 && self.letters.windows(part.len()).any(|run| run == part);
        let runs: smallvec::SmallVec<[&[char]; 2]> = parts.into_iter().filter(|part| is_run(part)).collect();
        let letters: Vec<char> =
            self.letters.iter().copied().filter(|c| !runs.iter().any(|run| run[1..].contains(c))).collect();
        if letters.len() == self.letters.len() {
            return self.clone();
        }
        let extent = |c: &char| match runs.iter().find(|run| run[0] == *c) {
            Some(run) => run.iter().map(|&c| self.extent(c)).product(),
            None => self.extent(*c),
        };
        let shape = letters.iter().map(extent).collect();
        LetteredTensor { tensor: self.tensor.unless_poisoned(|tensor| tensor.reshape_at(shape, at)), letters }
    }

    /// The product with another tensor, summed over the letters that both have and the result has not.
    fn times(&self, other: &LetteredTensor, result: &[char], at: Caller) -> LetteredTensor {
        let pick = |from: &LetteredTensor, keep: &dyn Fn(char) -> bool| -> Vec<char> {
            from.letters.iter().copied().filter(|&c| keep(c)).collect()
        };
        let shared = |c: char| self.letters.contains(&c) && other.letters.contains(&c);
        let batch = pick(self, &|c| shared(c) && result.contains(&c));
        let contracted = pick(self, &|c| shared(c) && !result.contains(&c));
        let (left, right) = (pick(self, &|c| !shared(c)), pick(other, &|c| !shared(c)));
        let is_turned = !contracted.is_empty()
            && !right.is_empty()
            && result.last().is_some_and(|last| left.contains(last))
            && self.tensor.dtype().is_float()
            && self.tensor.dtype() == other.tensor.dtype();
        // The columns of a product lie together, so they are what lies together in the result.
        let [(a, left), (b, right)] =
            if is_turned { [(other, right), (self, left)] } else { [(self, left), (other, right)] };
        let letters = [&batch[..], &left, &right].concat();
        if contracted.is_empty() || (left.is_empty() && right.is_empty()) {
            // An operand with all letters, the first one if both have them, stays as it lies, and so does its gradient.
            let all = match (left.is_empty(), right.is_empty()) {
                (_, true) => a.letters.clone(),
                (true, false) => b.letters.clone(),
                (false, false) => letters.clone(),
            };
            let product = &a.spread(&all, at) * &b.spread(&all, at);
            return LetteredTensor { tensor: product, letters: all }.summed(|c| letters.contains(&c), at);
        }
        let group = |from: &LetteredTensor, first: &[char], second: &[char]| {
            let from = from.with_runs_as_one([first, second], at);
            let of_run = |part: &[char]| part.iter().copied().filter(|c| from.letters.contains(c)).collect::<Vec<_>>();
            let [first, second] = [first, second].map(of_run);
            let ordered = from.clone().ordered(&[&batch[..], &first, &second].concat(), at);
            let merged = [first, second].map(|part| part.iter().map(|&c| from.extent(c)).product());
            ordered.tensor.reshape_at(batch.iter().map(|&c| from.extent(c)).chain(merged).collect(), at)
        };
        let product = group(a, &left, &contracted).matmul(&group(b, &contracted, &right));
        let either = |c: char| if self.letters.contains(&c) { self.extent(c) } else { other.extent(c) };
        let shape = letters.iter().map(|&c| either(c)).collect();
        LetteredTensor { tensor: product.unless_poisoned(|product| product.reshape_at(shape, at)), letters }
    }

    /// The axes in the order of `letters`, of which missing ones get extent 1.
    fn spread(&self, letters: &[char], at: Caller) -> Tensor {
        let own: Vec<char> = letters.iter().copied().filter(|c| self.letters.contains(c)).collect();
        let ordered = self.clone().ordered(&own, at).tensor;
        ordered.unless_poisoned(|ordered| ordered.reshape_at(letters.iter().map(|&c| self.extent(c)).collect(), at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    #[test]
    fn equations_parse() {
        let parsed = Equation::parse("bij, bkj -> bik").unwrap();
        assert_eq!(parsed, Equation { operands: vec![letters("bij"), letters("bkj")], result: letters("bik") });
        assert_eq!(Equation::parse("ij,jk").unwrap().result, letters("ik"));
        assert_eq!(Equation::parse("ii").unwrap().result, letters(""));
    }

    #[test]
    fn bad_equations_say_why() {
        for (text, part) in
            [("ij->ik", "`k`"), ("ij->ii", "twice"), ("i1->i", "`1`"), ("...i->i", "letter"), ("ij->i->j", "`-`")]
        {
            let message = Equation::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
