//! Library kernels: what no loop nest expresses well, written by hand once for all element types.
//!
//! Each kernel is a descriptor: plain data that says which function on which shapes, and nothing else. It lists its
//! buffers (`inputs`, `outputs`), computes them (`run`), has a naive twin that it is tested against (`reference`) and
//! a text form. Buffers are dense, row-major and aligned to their elements. Results depend on shapes and inputs only, never
//! on the number of threads. Shapes of operations along one axis are `(outer, len, inner)`: the extents before, at
//! and after the axis.

mod arg_reduce;
mod cast_half;
mod conv;
mod dense;
mod linalg;
mod matmul;
mod micro;
mod number;
mod philox;
mod pool;
mod print;
mod scan;
mod scatter;
mod sort;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::fmt;

use retape_runtime::DType;

pub use arg_reduce::{ArgReduce, Extreme};
pub use cast_half::CastHalf;
pub use conv::{Conv2d, ConvPass};
pub use dense::{Epilogue, Tile};
pub use linalg::{Cholesky, TriangularSolve};
pub use matmul::{MatMul, Operand};
pub use philox::Philox;
pub use pool::{Pool2d, PoolKind, PoolPass};
pub use print::{Label, Print, set_print_sink};
pub use scan::{Scan, ScanKind};
pub use scatter::ScatterAdd;
pub use sort::Sort;

/// Declares [`Library`] from one row per kernel. Rows hold no code.
macro_rules! library {
    ($($type:ident,)*) => {
        /// A library kernel.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Library {
            $(
                #[doc = concat!("See [`", stringify!($type), "`].")]
                $type($type),
            )*
        }

        impl Library {
            /// The name of the kernel in the text form.
            pub fn name(&self) -> &'static str {
                match self { $(Library::$type(_) => $type::NAME,)* }
            }

            /// The dtype and the number of elements of each input.
            pub fn inputs(&self) -> Vec<(DType, usize)> {
                match self { $(Library::$type(kernel) => kernel.inputs(),)* }
            }

            /// The dtype and the number of elements of each output.
            pub fn outputs(&self) -> Vec<(DType, usize)> {
                match self { $(Library::$type(kernel) => kernel.outputs(),)* }
            }

            /// Computes the outputs.
            ///
            /// # Panics
            /// If the number, the lengths or the alignment of the buffers are not as `inputs` and `outputs` say.
            pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
                match self { $(Library::$type(kernel) => kernel.run(inputs, outputs),)* }
            }

            /// Computes the outputs in the naive way.
            ///
            /// # Panics
            /// As [`run`](Library::run).
            pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
                match self { $(Library::$type(kernel) => kernel.reference(inputs, outputs),)* }
            }

            /// Reads what `Display` printed.
            pub fn parse(text: &str) -> Option<Library> {
                let (name, _) = text.split_once('{')?;
                match name {
                    $($type::NAME => $type::parse(text).map(Library::$type),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for Library {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Library::$type(kernel) => kernel.fmt(f),)* }
            }
        }

        $(
            impl From<$type> for Library {
                fn from(kernel: $type) -> Library {
                    Library::$type(kernel)
                }
            }
        )*
    };
}

library! {
    ArgReduce,
    CastHalf,
    Cholesky,
    Conv2d,
    MatMul,
    Philox,
    Pool2d,
    Print,
    Scan,
    ScatterAdd,
    Sort,
    TriangularSolve,
}
