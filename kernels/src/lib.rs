//! Kernel IR, its Cranelift emitter and the library kernels of retape.
//!
//! This crate knows scalars, loops and memory. It knows no gradient and no tensor graph.

mod array_text;
mod call;
mod chain;
mod compiled;
mod cost;
mod cpu;
mod donation;
mod ensure;
mod epilogue;
mod error;
mod execute;
pub mod expand;
mod gpu;
mod instrument;
pub mod ir;
pub mod library;
mod limits;
mod pending;
mod phase;
mod plan;
mod program;
pub mod ptx;
mod reach;
mod region;
mod schedule;
mod simplify;

pub use array_text::ArrayText;
pub use compiled::{AnyInput, CompiledPlan, Outputs, SeeStep};
pub use cost::StepCost;
pub use cpu::{clif, machine, machine_text};
pub use donation::Input;
pub use epilogue::Epilogue;
pub use error::{Error, Result};
pub use execute::{Executable, Inputs};
pub use gpu::DeviceExecutable;
pub use limits::{LimitProbe, MachineLimits};
pub use plan::{BufferType, Donation, Operand, Place, Plan, Step, Work};
pub use program::{LaunchTime, Modes};
pub use simplify::simplify;
