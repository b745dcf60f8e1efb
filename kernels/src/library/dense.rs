//! The common parts of matrix products and convolutions: views of buffers, and checks.

use std::fmt;

use retape_runtime::{DType, Element};

use super::CastHalf;
use super::extents::Checked;
use super::micro::{Engine, Real, with_scratch};
use super::tile::{Tile, TileCallback};
use crate::ensure::ensure;

/// A kernel that is computed in `f64`, or in `f32` for all other floats, and may end in epilogues.
pub(super) trait DenseKernel: fmt::Display + Sized {
    /// Elements of operands and result.
    fn dtype(&self) -> DType;

    /// The same kernel of `f32`.
    fn in_f32(&self) -> Self;

    /// Whether its fields fit each other.
    fn is_valid(&self) -> bool;

    /// Elements of a row of the result.
    fn row_len(&self) -> usize;

    /// Computes elements of one type.
    fn run_typed<T: Real>(
        &self,
        engine: &Engine,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        epilogue: TileCallback<'_>,
    );

    /// The naive loops for elements of one type.
    fn reference_typed<T: Real>(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]);

    /// Computes the kernel on a given engine.
    fn run_on(&self, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]], epilogue: TileCallback<'_>) {
        assert!(self.is_valid(), "{self}");
        match self.dtype() {
            DType::F16 | DType::Bf16 => {
                self.run_halves(engine, inputs, outputs);
                self.finish_all(outputs, epilogue);
            }
            DType::F64 => self.run_typed::<f64>(engine, inputs, outputs, epilogue),
            DType::F32 => self.run_typed::<f32>(engine, inputs, outputs, epilogue),
            dtype @ (DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool) => {
                unreachable!("a valid product of {dtype}")
            }
        }
    }

    /// Computes the kernel on 16-bit floats.
    fn run_halves(&self, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run_in_single(engine, inputs, outputs);
    }

    /// Computes the kernel on whole operands in single precision.
    fn run_in_single(&self, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let single = self.in_f32();
        in_single(self.dtype(), inputs, outputs, |inputs, outputs| single.run_on(engine, inputs, outputs, &|_| {}));
    }

    /// Computes the kernel by naive loops, with sums in `f64`.
    fn run_reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        match self.dtype() {
            DType::F16 | DType::Bf16 => {
                let single = self.in_f32();
                in_single(self.dtype(), inputs, outputs, |inputs, outputs| single.run_reference(inputs, outputs));
            }
            DType::F64 => self.reference_typed::<f64>(inputs, outputs),
            DType::F32 => self.reference_typed::<f32>(inputs, outputs),
            dtype @ (DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool) => {
                unreachable!("a valid product of {dtype}")
            }
        }
    }

    /// Tells the epilogue of the whole result at once.
    fn finish_all(&self, outputs: &mut [&mut [u8]], epilogue: TileCallback<'_>) {
        let (width, size) = (self.row_len(), self.dtype().size());
        let rows = outputs[0].len() / (width * size).max(1);
        if rows > 0 {
            epilogue(Tile { rows: 0..rows, cols: 0..width, data: outputs[0].as_mut_ptr(), row_stride: width, size });
        }
    }
}

/// The elements of a buffer, which holds exactly `len` of them.
pub(super) fn view<'a, T: Element>(bytes: &'a [u8], len: usize, what: &str) -> &'a [T] {
    assert_eq!(bytes.len(), len * size_of::<T>(), "{what}: bytes of {len} elements of {}", T::DTYPE);
    if len == 0 {
        return &[];
    }
    assert!(bytes.as_ptr().cast::<T>().is_aligned(), "{what}: aligned to its element");
    // SAFETY: length and alignment are checked, and an element has no invalid bit patterns (`T` is a float here).
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), len) }
}

/// [`view`], to write to.
pub(super) fn view_mut<'a, T: Element>(bytes: &'a mut [u8], len: usize, what: &str) -> &'a mut [T] {
    if view::<T>(bytes, len, what).is_empty() {
        return &mut [];
    }
    // SAFETY: as in `view`; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) }
}

/// Asserts that a kernel is called with as many buffers as it has.
pub(super) fn check_arity(inputs: &[&[u8]], outputs: &[&mut [u8]], n_inputs: usize) {
    assert_eq!(inputs.len(), n_inputs, "number of input buffers");
    assert_eq!(outputs.len(), 1, "number of output buffers");
}

/// Refuses dtypes that there are no products of.
pub(super) fn check_dtype(dtype: DType) -> Checked {
    ensure!(dtype.is_float() || dtype.is_half(), "products are of floats, not of {dtype}");
    Ok(())
}

/// Calls `body` with two operands of 16-bit floats in single precision, and rounds the result that it leaves there.
fn in_single(dtype: DType, inputs: &[&[u8]], outputs: &mut [&mut [u8]], body: impl FnOnce(&[&[u8]], &mut [&mut [u8]])) {
    check_arity(inputs, outputs, 2);
    let len = |bytes: &[u8]| bytes.len() / dtype.size();
    let widen = |from: &[u8], to: &mut [f32]| {
        CastHalf { from: dtype, to: DType::F32, len: to.len() }.run(&[from], &mut [bytes_mut(to)]);
    };
    with_scratch(len(inputs[0]), |a| {
        widen(inputs[0], a);
        with_scratch(len(inputs[1]), |b| {
            widen(inputs[1], b);
            with_scratch(len(outputs[0]), |c: &mut [f32]| {
                let narrow = CastHalf { from: DType::F32, to: dtype, len: c.len() };
                body(&[bytes_mut(a), bytes_mut(b)], &mut [bytes_mut(c)]);
                narrow.run(&[bytes_mut(c)], outputs);
            });
        });
    });
}

/// The bytes of some floats.
fn bytes_mut(floats: &mut [f32]) -> &mut [u8] {
    // SAFETY: floats have no padding, every pattern of bytes is one, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats)) }
}
