//! Library kernels: work that no loop nest expresses well, written by hand once for all element types.
//!
//! Each kernel is a descriptor: plain data that says which function on which shapes, and nothing else. It lists its
//! buffers (`inputs`, `outputs`), computes them (`run`), has a naive twin that it is tested against (`reference`), a
//! text form, and a check of its own numbers (`verify`), which all the rest relies on. Buffers are dense, row-major and
//! aligned to their elements. Results depend on shapes and inputs only, never on the number of threads. Shapes of operations
//! along one axis are `(outer, len, inner)`: the extents before, at and after the axis.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod arg_reduce;
mod attention;
mod cast_half;
mod collective;
mod communicator;
mod conv;
mod dense;
mod exchange;
mod extents;
mod flag;
mod halves;
mod join;
mod linalg;
mod matmul;
mod micro;
mod number;
mod philox;
mod plain;
mod pool;
mod print;
mod recurrence;
mod rows;
mod scan;
mod scatter;
mod sort;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod tile;
mod token;
mod transpose;
mod view;

use std::fmt;

use retape_runtime::DType;
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::ir::VerifyError;

pub use arg_reduce::{ArgReduce, Extreme};
pub use attention::{Attention, AttentionPass};
pub use cast_half::CastHalf;
pub use collective::{Collective, CollectiveKind};
pub(crate) use collective::{ONE_ROUND, Peers, middle, nodes};
pub use communicator::{
    Communicator, GpuLink, GpuTransfer, alone, at_place, communicator, is_alone, set_communicator, share,
};
pub(crate) use conv::gcd;
pub use conv::{Conv2d, ConvPass};
pub(crate) use extents::reached;
pub use join::Join;
pub(crate) use join::JoinedPart;
pub use linalg::{Cholesky, TriangularSolve};
pub use matmul::{MatMul, MatrixLayout};
pub(crate) use micro::{FMA_TASK_FLOPS, fma_task};
pub use philox::Philox;
pub use pool::{Pool2d, PoolKind, PoolPass};
pub use print::{Label, Print, is_muted, set_print_sink, without_prints};
pub use recurrence::Recurrence;
pub(crate) use rows::RowPart;
pub use scan::{Scan, ScanKind};
pub use scatter::ScatterAdd;
pub use sort::Sort;
pub(crate) use tile::TileShape;
pub use tile::{Tile, TileCallback};
pub use token::Token;
pub use transpose::Transpose;
pub(crate) use view::stream_runs;

/// The instruction set that matrix products and convolutions use on this machine, such as `AVX2 and FMA`.
///
/// ```
/// assert!(!retape_kernels::library::instruction_set().is_empty());
/// ```
pub fn instruction_set() -> &'static str {
    micro::Level::best().name()
}

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

            /// Checks that the kernel is a function: that the numbers in its descriptor are allowed, and that its sizes
            /// can be counted. The buffers that it runs on are then as long as `inputs` and `outputs` say.
            ///
            /// # Errors
            ///
            /// Fails with the descriptor and the number that does not fit.
            ///
            /// ```
            /// # use retape_kernels::library::{Library, Philox};
            /// assert!(Library::from(Philox { len: 1 << 20, stream: 0 }).verify().is_ok());
            /// let refused = Library::from(Philox { len: usize::MAX, stream: 0 }).verify().unwrap_err();
            /// assert!(refused.to_string().contains("philox{len=18446744073709551615,stream=0}"), "{refused}");
            /// ```
            pub fn verify(&self) -> Result<(), VerifyError> {
                match self { $(Library::$type(kernel) => kernel.verify(),)* }
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
            /// If the descriptor is not [valid](Library::verify), or if the number, the lengths or the alignment of the
            /// buffers are not as `inputs` and `outputs` say.
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

impl Library {
    /// Whether the kernel is called for what it does besides computing: on the host wherever the plan runs, and in an
    /// order that tokens fix.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(self, Library::Print(_) | Library::Collective(_))
    }

    /// The bytes that the kernel reads and writes. Operands with strides may lie in buffers of more.
    pub(crate) fn traffic(&self) -> u64 {
        let n_read: SmallVec<[usize; 6]> = if let Library::MatMul(product) = self {
            product.n_read().into_iter().collect()
        } else if let Library::Attention(attention) = self {
            attention.n_read()
        } else if let Library::Join(join) = self {
            join.n_read()
        } else {
            self.inputs().into_iter().map(|(_, len)| len).collect()
        };
        let inputs = self.inputs().into_iter().zip(n_read).map(|((dtype, _), n)| (dtype, n));
        let bytes = inputs.chain(self.outputs()).map(|(dtype, n)| (n as u64).saturating_mul(dtype.size() as u64));
        bytes.fold(0, u64::saturating_add)
    }

    /// The floating-point operations that the kernel has to do, and their dtype; see
    /// [`StepCost`](crate::StepCost).
    pub(crate) fn flops(&self) -> (DType, u64) {
        match self {
            Library::Attention(x) => (x.dtype, x.flops()),
            Library::MatMul(x) => (x.dtype, x.flops()),
            Library::Conv2d(x) => (x.dtype, x.flops()),
            Library::Pool2d(x) => (x.dtype, x.flops()),
            Library::Cholesky(x) => (x.dtype, x.flops()),
            Library::TriangularSolve(x) => (x.dtype, x.flops()),
            Library::Recurrence(x) => (x.dtype, x.flops()),
            Library::Scan(x) => (x.dtype, x.flops()),
            Library::ScatterAdd(x) => (x.dtype, x.flops()),
            Library::ArgReduce(_)
            | Library::CastHalf(_)
            | Library::Collective(_)
            | Library::Join(_)
            | Library::Philox(_)
            | Library::Print(_)
            | Library::Sort(_)
            | Library::Token(_)
            | Library::Transpose(_) => (DType::Bool, 0),
        }
    }

    /// Refuses what the kernels for the processor cannot do, though it is a function.
    pub(crate) fn check_host(&self) -> Result<()> {
        if let Library::Sort(sort) = self
            && !sort.has_short_lines()
        {
            return Err(Error::Unsupported(format!("sorting {} elements along an axis", sort.len)));
        }
        Ok(())
    }

    /// Runs what takes a sink or other workers, and so may fail; none if it is another kernel.
    fn run_with_others(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Option<Result<()>> {
        if let Library::Print(print) = self {
            return Some(print.try_run(inputs, outputs));
        }
        let Library::Collective(collective) = self else { return None };
        Some(collective.try_run(inputs, outputs))
    }

    /// As [`run`](Library::run); a panic in the sink of a print, or a failure of a communicator, is an error.
    pub(crate) fn launch(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<()> {
        if let Some(outcome) = self.run_with_others(inputs, outputs) {
            return outcome;
        }
        self.run(inputs, outputs);
        Ok(())
    }

    /// As [`run`](Library::run), and calls `done` for each finished block of the result. Kernels that finish none before
    /// the end do not call it.
    pub(crate) fn run_with(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], done: TileCallback<'_>) {
        if let Library::MatMul(product) = self {
            return product.run_with(inputs, outputs, done);
        }
        if let Library::Conv2d(conv) = self {
            return conv.run_with(inputs, outputs, done);
        }
        if let Library::Transpose(transpose) = self {
            return transpose.run_with(inputs, outputs, done);
        }
        self.run(inputs, outputs);
    }

    /// The blocks of the result that are finished while others are still to be computed.
    pub(crate) fn tiles(&self) -> Option<TileShape> {
        if let Library::MatMul(product) = self {
            return product.tiles();
        }
        if let Library::Transpose(transpose) = self {
            return transpose.tiles();
        }
        let Library::Conv2d(conv) = self else { return None };
        conv.tiles()
    }

    /// As [`reference`](Library::reference); a panic in the sink of a print, or a failure of a communicator, is an
    /// error.
    pub(crate) fn evaluate(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<()> {
        if let Some(outcome) = self.run_with_others(inputs, outputs) {
            return outcome;
        }
        self.reference(inputs, outputs);
        Ok(())
    }
}

library! {
    ArgReduce,
    Attention,
    CastHalf,
    Cholesky,
    Collective,
    Conv2d,
    Join,
    MatMul,
    Philox,
    Pool2d,
    Print,
    Recurrence,
    Scan,
    ScatterAdd,
    Sort,
    Token,
    Transpose,
    TriangularSolve,
}
