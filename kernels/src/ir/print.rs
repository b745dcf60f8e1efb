//! The text form of kernels; [`parse`](super::parse) reads it back as the same kernel.

use std::fmt::{self, Display, Formatter};

use super::{Affine, AxisId, Inst, Kernel, ParamId, ValueId};

impl Display for Affine {
    /// The sum of the terms with a non-zero stride, then the offset if it is not 0 or stands alone.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut plus = "";
        for (axis, &stride) in (0..).map(AxisId).zip(&self.strides) {
            match stride {
                0 => continue,
                1 => write!(f, "{plus}{axis}")?,
                _ => write!(f, "{plus}{axis} * {stride}")?,
            }
            plus = " + ";
        }
        if self.offset != 0 || plus.is_empty() {
            write!(f, "{plus}{}", self.offset)?;
        }
        Ok(())
    }
}

impl<V: Display> Display for Inst<V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Inst::Const(c) => write!(f, "const {c}: {}", c.dtype),
            Inst::Index(axis) => write!(f, "index {axis}"),
            Inst::Load(param, at) => write!(f, "load {param}[{at}]"),
            Inst::LoadAt(param, at) => write!(f, "load_at {param}, {at}"),
            Inst::Unary(op, x) => write!(f, "{} {x}", op.name()),
            Inst::Binary(op, x, y) => write!(f, "{} {x}, {y}", op.name()),
            Inst::Compare(op, x, y) => write!(f, "{} {x}, {y}", op.name()),
            Inst::Select(c, x, y) => write!(f, "select {c}, {x}, {y}"),
            Inst::Fma(x, y, z) => write!(f, "fma {x}, {y}, {z}"),
            Inst::Cast(dtype, x) => write!(f, "cast {x}: {dtype}"),
            Inst::Bitcast(dtype, x) => write!(f, "bitcast {x}: {dtype}"),
            Inst::Call1(func, x) => write!(f, "{} {x}", func.name()),
            Inst::Call2(func, x, y) => write!(f, "{} {x}, {y}", func.name()),
            Inst::Reduce(op, x) => write!(f, "reduce {} {x}", op.name()),
        }
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("kernel (")?;
        for (i, param) in self.params.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let out = if param.written { " out" } else { "" };
            write!(f, "{comma}{}: {}[{}]{out}", ParamId(i as u32), param.dtype, param.len)?;
        }
        f.write_str(") {\n")?;
        for (i, axis) in self.axes.iter().enumerate() {
            let start = if i > 0 { ", " } else { "  axes " };
            let reduced = if axis.reduced { " reduced" } else { "" };
            write!(f, "{start}{} = {}{reduced}", AxisId(i as u32), axis.extent)?;
        }
        if !self.axes.is_empty() {
            f.write_str("\n")?;
        }
        for (i, inst) in self.insts.iter().enumerate() {
            writeln!(f, "  {} = {inst}", ValueId(i as u32))?;
        }
        for store in &self.stores {
            writeln!(f, "  store {}[{}], {}", store.param, store.at, store.value)?;
        }
        f.write_str("}\n")
    }
}
