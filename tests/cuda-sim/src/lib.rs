//! For tests only: PTX without a GPU.
//!
//! [`Machine`] executes the kernels of a [`Module`] on the CPU, and refuses what a GPU would let pass: accesses out of
//! bounds or after a release, registers and memory that nobody wrote, races between warps and between blocks, copies
//! that have not landed, shuffles with wrong masks, divergent barriers. Each [`Fault`] names kernel, line and
//! instruction. Blocks and warps run in an [`Order`] that a test can reverse: results must not depend on it.
//!
//! ```
//! use retape_cuda_sim::{Machine, Module, Order};
//!
//! let module = Module::parse(
//!     ".version 7.0
//!      .target sm_75
//!      .address_size 64
//!      .visible .entry fill(.param .u64 out) {
//!        .reg .b32 %r<2>; .reg .b64 %rd<3>;
//!        ld.param.u64 %rd0, [out];
//!        mov.u32 %r0, %tid.x;
//!        mul.wide.u32 %rd1, %r0, 4;
//!        add.u64 %rd2, %rd0, %rd1;
//!        st.global.u32 [%rd2], %r0;
//!        ret;
//!      }",
//! )?;
//! let mut machine = Machine::new();
//! let out = machine.alloc(4 * 4);
//! machine.launch(&module, "fill", 1, 4, 0, &[out], Order::FORWARD)?;
//! assert_eq!(machine.get::<u32>(out, 4)?, [0, 1, 2, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alu;
mod check;
mod decode;
#[cfg(target_os = "linux")]
pub mod driver;
mod exec;
mod fault;
mod kernel;
mod lanes;
mod machine;
mod memory;
mod parse;
mod round;
mod shared;
mod types;

pub use fault::{Fault, ParseError};
pub use kernel::{Kernel, Module};
pub use machine::{Counts, Dim3, MAX_SHARED, Machine, Order, PLAIN_SHARED, Plain};
