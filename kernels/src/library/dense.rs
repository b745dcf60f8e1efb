//! What matrix products and convolutions share: finished blocks, views of buffers, checks, text.

use std::fmt;
use std::ops::Range;

use retape_runtime::{DType, Element};
use smallvec::SmallVec;

use super::micro::with_scratch;
use super::text::{Field, split, values};
use super::{CastHalf, Conv2d, ConvPass, MatMul, Operand};

/// A finished block of a kernel's result, still in cache when an epilogue sees it.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Which of the batch's matrices, in row-major order of the batch extents.
    pub batch: usize,
    /// Its rows; for a convolution these are pixels, counted over the whole batch.
    pub rows: Range<usize>,
    /// Its columns; for a convolution these are channels.
    pub cols: Range<usize>,
    /// First element of the block. Nobody else reads or writes the block during the call.
    pub data: *mut u8,
    /// Elements from one row to the next.
    pub row_stride: usize,
}

/// Code that is called once for each finished block; blocks cover the result exactly once.
pub type Epilogue<'a> = &'a (dyn Fn(Tile) + Sync);

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

/// The dtypes that there are products of.
pub(super) fn assert_float(dtype: DType) {
    assert!(dtype.is_float() || dtype.is_half(), "products are of floats, not of {dtype}");
}

/// Calls `body` with two operands of 16-bit floats in single precision, and rounds the result that it leaves there.
pub(super) fn in_single(
    dtype: DType,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    body: impl FnOnce(&[&[u8]], &mut [&mut [u8]]),
) {
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

impl Field for SmallVec<[usize; 4]> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (position, item) in self.iter().enumerate() {
            write!(f, "{}{item}", if position == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }

    fn read(text: &str) -> Option<Self> {
        split(text.strip_prefix('[')?.strip_suffix(']')?).into_iter().map(|item| item.parse().ok()).collect()
    }
}

/// `[offset,[batch strides],row stride,column stride]`.
impl Field for Operand {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{},", self.offset)?;
        self.batch_strides.print(f)?;
        write!(f, ",{},{}]", self.row_stride, self.col_stride)
    }

    fn read(text: &str) -> Option<Self> {
        let items = split(text.strip_prefix('[')?.strip_suffix(']')?);
        let [offset, batch_strides, row_stride, col_stride] = items[..] else { return None };
        Some(Operand {
            offset: offset.parse().ok()?,
            batch_strides: Field::read(batch_strides)?,
            row_stride: row_stride.parse().ok()?,
            col_stride: col_stride.parse().ok()?,
        })
    }
}

impl Field for ConvPass {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConvPass::Forward => "forward",
            ConvPass::InputGradient => "input_gradient",
            ConvPass::FilterGradient => "filter_gradient",
        })
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "forward" => Some(ConvPass::Forward),
            "input_gradient" => Some(ConvPass::InputGradient),
            "filter_gradient" => Some(ConvPass::FilterGradient),
            _ => None,
        }
    }
}

/// Text form of a descriptor that is declared as an ordinary struct.
macro_rules! text_form {
    ($type:ident $name:literal { $($field:ident),* }) => {
        impl $type {
            /// The name in the text form.
            pub const NAME: &'static str = $name;

            /// Reads what `Display` printed.
            pub fn parse(text: &str) -> Option<Self> {
                let mut values = values(text, $name, &[$(stringify!($field)),*])?.into_iter();
                Some($type { $($field: Field::read(values.next()?)?,)* })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut separator = concat!($name, "{");
                $(
                    write!(f, "{separator}{}=", stringify!($field))?;
                    self.$field.print(f)?;
                    separator = ",";
                )*
                let _ = separator;
                f.write_str("}")
            }
        }
    };
}

text_form! { MatMul "matmul" { dtype, batch, m, n, k, a, b } }
text_form! {
    Conv2d "conv2d" {
        dtype, batch, height, width, in_channels, kernel_height, kernel_width, out_channels, stride, padding, dilation,
        groups, pass
    }
}
