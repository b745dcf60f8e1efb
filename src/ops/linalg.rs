//! Factorisations and triangular systems.

use std::panic::Location;

use retape_kernels::library::{self, Library};
use retape_runtime::{DType, Shape};

use super::attribute::attributes;
use super::check::{self, refuse};
use super::matmul::refused_among;
use super::{BroadcastTo, Cotangents, Facts, Lowering, OpDef, Sample, Site, Slice, TypeError};
use crate::error::Caller;
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The lower triangular L with L Lᵀ = A, for symmetric positive definite A, of which the lower triangle is read.
///
/// From the first column on whose pivot is not positive, all of the lower triangle is NaN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cholesky;

/// The solution X of op(A) X = B for triangular A; only the triangle of A is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SolveTriangular {
    /// Whether A is lower triangular, rather than upper.
    pub lower: bool,
    /// Whether op(A) is the transpose of A, rather than A.
    pub transpose: bool,
    /// Whether the diagonal is taken to be 1 and not read.
    pub unit_diagonal: bool,
}

attributes! {
    Cholesky {}
    SolveTriangular { lower, transpose, unit_diagonal }
}

/// The number of matrices and their rows, if they are square.
fn square(a: &TensorType) -> Result<(usize, usize), TypeError> {
    check::float(0, a)?;
    match &*a.shape {
        [batch @ .., rows, columns] if rows == columns => Ok((batch.iter().product(), *rows)),
        _ => refuse!("argument 0 is {a}, but its last two axes must be a square matrix"),
    }
}

impl OpDef for Cholesky {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [a] = check::exactly::<1>(args)?;
        square(a)?;
        Ok((*a).clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // With P = Φ(Lᵀ ct), where Φ keeps the lower triangle and halves its diagonal, the cotangent of a symmetric A
        // is the symmetric part of S = L⁻ᵀ P L⁻¹. Only the lower triangle is read, so its off-diagonal counts twice.
        let (l, ct) = (at.output, at.ct.tril(0));
        let solve = |b: &Tensor| {
            let solve = SolveTriangular { lower: true, transpose: true, unit_diagonal: false };
            Tensor::apply_at(solve, &[l, b], Location::caller())
        };
        let p = l.transpose().matmul(&ct);
        let p = (p.tril(0) + p.tril(-1)) * 0.5;
        let s = solve(&solve(&p).transpose());
        Cotangents::of([s.tril(0) + s.transpose().tril(-1)])
    }

    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
        let n = result.shape[result.rank() - 1];
        let batch = args[0].shape[..result.rank() - 2].iter().product();
        Lowering::Library(Library::Cholesky(library::Cholesky { dtype: result.dtype, batch, n }))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Cholesky, &[&[3, 1, 1]], 0.5..2.0)]
    }
}

impl OpDef for SolveTriangular {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [a, b] = check::exactly::<2>(args)?;
        square(a)?;
        let lead = a.rank() - 1;
        if a.dtype != b.dtype || b.rank() != a.rank() || a.shape[..lead] != b.shape[..lead] {
            refuse!("argument 0 is {a}, argument 1 is {b}: dtypes and all axes but the last must be equal");
        }
        Ok((*b).clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let (a, x) = (&at.args[0], at.output);
        let caller = Location::caller();
        let b_ct =
            Tensor::apply_at(SolveTriangular { transpose: !self.transpose, ..self.clone() }, &[a, at.ct], caller);
        let product = match self.transpose {
            false => b_ct.matmul(&x.transpose()),
            true => x.matmul(&b_ct.transpose()),
        };
        let off = i64::from(self.unit_diagonal);
        let a_ct = if self.lower { -product.tril(-off) } else { -product.triu(off) };
        Cotangents::of([a_ct, b_ct])
    }

    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
        let (batch, last) = result.shape.split_at(args[0].rank() - 2);
        Lowering::Library(Library::TriangularSolve(library::TriangularSolve {
            dtype: result.dtype,
            batch: batch.iter().product(),
            n: last[0],
            n_rhs: last[1],
            lower: self.lower,
            transpose: self.transpose,
            unit_diagonal: self.unit_diagonal,
        }))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |lower, transpose, unit_diagonal, shapes: &[&[usize]]| {
            Sample::floats(SolveTriangular { lower, transpose, unit_diagonal }, shapes, 0.5..1.0)
        };
        vec![
            of(true, false, false, &[&[3, 3], &[3, 2]]),
            of(true, true, false, &[&[3, 3], &[3, 2]]),
            of(false, false, true, &[&[2, 3, 3], &[2, 3, 1]]),
            of(false, true, false, &[&[2, 3, 3], &[2, 3, 1]]),
        ]
    }
}

/// Which triangle a matrix has and how it is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triangular {
    lower: bool,
    transpose: bool,
    unit_diagonal: bool,
}

impl Triangular {
    /// The matrix is lower triangular; elements above the diagonal are not read.
    pub const LOWER: Triangular = Triangular { lower: true, transpose: false, unit_diagonal: false };

    /// The matrix is upper triangular; elements below the diagonal are not read.
    pub const UPPER: Triangular = Triangular { lower: false, transpose: false, unit_diagonal: false };

    /// The system is that of the transpose of the matrix.
    pub const fn transposed(self) -> Triangular {
        Triangular { transpose: !self.transpose, ..self }
    }

    /// The diagonal is taken to be 1 and not read.
    pub const fn unit_diagonal(self) -> Triangular {
        Triangular { unit_diagonal: true, ..self }
    }
}

impl Tensor {
    /// The lower triangular L with L Lᵀ equal to the symmetric part of this tensor's matrices, which must be positive
    /// definite; otherwise L has NaN in its lower triangle.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let l = Tensor::from([[4.0_f64, 2.0], [2.0, 5.0]]).cholesky();
    /// assert_eq!(l.to_vec::<f64>()?, [2.0, 0.0, 1.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky(&self) -> Tensor {
        let (at, _method) = (Location::caller(), method("cholesky"));
        match self.ty().map(square) {
            Some(Err(e)) => self.refused(e.0, at),
            Some(Ok(_)) => Tensor::apply_at(Cholesky, &[&((self + self.transpose()) * 0.5)], at),
            None => self.clone(),
        }
    }

    /// The solution X of A X = B for triangular A, this tensor; B is a vector or has matrices in its last two axes,
    /// and axes before them are broadcast.
    ///
    /// ```
    /// # use retape::{Tensor, ops::Triangular};
    /// let a = Tensor::from([[2.0_f64, 0.0], [1.0, 4.0]]);
    /// let x = a.solve_triangular(&Tensor::from([2.0_f64, 9.0]), Triangular::LOWER);
    /// assert_eq!(x.to_vec::<f64>()?, [1.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn solve_triangular(&self, b: &Tensor, form: Triangular) -> Tensor {
        let _method = method("solve_triangular");
        self.solve_triangular_at(b, form, Location::caller())
    }

    /// The solution X of A X = B for symmetric positive definite A, this tensor; by its Cholesky factor.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let a = Tensor::from([[4.0_f64, 2.0], [2.0, 5.0]]);
    /// let x = a.solve_positive_definite(&Tensor::from([8.0_f64, 12.0])).to_vec::<f64>()?;
    /// assert!((x[0] - 1.0).abs() < 1e-15 && (x[1] - 2.0).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn solve_positive_definite(&self, b: &Tensor) -> Tensor {
        let (at, _method) = (Location::caller(), method("solve_positive_definite"));
        let l = self.cholesky();
        let y = l.solve_triangular_at(b, Triangular::LOWER, at);
        l.solve_triangular_at(&y, Triangular::LOWER.transposed(), at)
    }

    /// The logarithm of the determinant of symmetric positive definite matrices in the last two axes; by their Cholesky
    /// factor, so that it neither overflows nor vanishes as the determinant does. NaN for other symmetric matrices.
    ///
    /// As everywhere here the symmetric part is taken; its derivative is the inverse.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let a = Tensor::from([[4.0_f64, 2.0], [2.0, 5.0]]); // its determinant is 16
    /// assert!((a.logdet_positive_definite().item::<f64>()? - 16.0_f64.ln()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn logdet_positive_definite(&self) -> Tensor {
        let _method = method("logdet_positive_definite");
        let l = self.cholesky();
        l.unless_poisoned(|l| l.diagonal(0)).log().sum(-1) * 2.0
    }

    /// The elements along a diagonal of the matrices in the last two axes, which one axis replaces; diagonal `k` lies
    /// `k` columns right of the main one. A diagonal outside of the matrix is empty.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(x.diagonal(0).to_vec::<f32>()?, [1.0, 5.0]);
    /// assert_eq!(x.diagonal(1).to_vec::<f32>()?, [2.0, 6.0]);
    /// assert_eq!(x.diagonal(-1).to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn diagonal(&self, diagonal: i64) -> Tensor {
        let (at, _method) = (Location::caller(), method("diagonal"));
        // Elements of a diagonal lie one row and one column apart, which is one distance in row-major order.
        let [batch @ .., rows, columns] = self.shape() else {
            return self.refused(format!("{} must have at least two axes", self.type_text()), at);
        };
        let off = usize::try_from(diagonal.unsigned_abs()).unwrap_or(usize::MAX);
        let (start, len) = match diagonal < 0 {
            true => (off.saturating_mul(*columns), rows.saturating_sub(off).min(*columns)),
            false => (off, columns.saturating_sub(off).min(*rows)),
        };
        let (Some(n), Ok(step)) = (rows.checked_mul(*columns), i64::try_from(columns.saturating_add(1))) else {
            return self.refused(format!("the matrices of {} are too large to count", self.type_text()), at);
        };
        let lines: Shape = batch.iter().copied().chain([n]).collect();
        let mut slice = Slice::leading(&lines);
        let axis = batch.len();
        (slice.start[axis], slice.step[axis]) = (if len == 0 { 0 } else { start }, step);
        slice.shape.extents_mut()[axis] = len;
        Tensor::apply_at(slice, &[&self.reshape_at(lines, at)], at)
    }

    /// The sums of the main diagonals of the matrices in the last two axes.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]).trace().item::<f32>()?, 5.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn trace(&self) -> Tensor {
        let _method = method("trace");
        self.diagonal(0).unless_poisoned(|diagonal| diagonal.sum(-1))
    }

    fn solve_triangular_at(&self, b: &Tensor, form: Triangular, at: Caller) -> Tensor {
        if let Some(poisoned) = [self, b].into_iter().find(|tensor| tensor.error().is_some()) {
            return poisoned.clone();
        }
        if b.rank() == 1 {
            let x = self.solve_triangular_at(&b.with_axis(1, 1, at), form, at);
            return x.unless_poisoned(|x| x.drop_axes(&[x.rank() - 1], at));
        }
        if self.rank() < 2 || b.rank() < 2 {
            let message = format!("{} and {} must be matrices", self.type_text(), b.type_text());
            return refused_among(&[self, b], message, at);
        }
        let ((batch_a, a), (batch_b, last)) =
            (self.shape().split_at(self.rank() - 2), b.shape().split_at(b.rank() - 2));
        let batch = match check::broadcast(batch_a, batch_b) {
            Ok(batch) => batch,
            Err(e) => return refused_among(&[self, b], format!("batch axes: {e}"), at),
        };
        let spread = |tensor: &Tensor, last: &[usize]| {
            let shape: Shape = batch.iter().chain(last).copied().collect();
            if *shape == *tensor.shape() {
                tensor.clone()
            } else {
                Tensor::apply_at(BroadcastTo { shape }, &[tensor], at)
            }
        };
        let Triangular { lower, transpose, unit_diagonal } = form;
        let solve = SolveTriangular { lower, transpose, unit_diagonal };
        Tensor::apply_at(solve, &[&spread(self, a), &spread(b, last)], at)
    }
}
