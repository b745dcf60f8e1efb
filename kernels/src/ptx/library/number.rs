//! Elements in registers: loads, stores and the arithmetic of library kernels by dtype.

use retape_runtime::{DType, Scalar};

use super::code::Code;
use crate::ptx::{Class, Reg, ptx};

/// A dtype to compute with; `bool` computes as the bytes 0 and 1, as `u8` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) DType);

impl Number {
    pub(super) fn class(self) -> Class {
        match self.0 {
            DType::Bool => Class::B32,
            dtype => Class::of(dtype),
        }
    }

    pub(super) fn size(self) -> usize {
        self.0.size()
    }

    pub(super) fn is_float(self) -> bool {
        self.0.is_float()
    }

    /// The suffix of arithmetic.
    fn ty(self) -> &'static str {
        match self.0 {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I32 => "s32",
            DType::I64 => "s64",
            _ => "u32",
        }
    }

    /// The suffix of loads and stores.
    pub(super) fn memory(self) -> &'static str {
        match self.0 {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I64 => "b64",
            DType::U8 | DType::Bool => "u8",
            DType::F16 | DType::Bf16 => "b16",
            DType::I32 | DType::U32 => "b32",
        }
    }

    /// The type that long sums and products are kept in.
    pub(super) fn wide(self) -> Number {
        if self.0 == DType::F32 { Number(DType::F64) } else { self }
    }

    /// The least value, -inf for floats.
    pub(super) fn lowest(self) -> Scalar {
        self.scalar(match self.0 {
            DType::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
            DType::F64 => f64::NEG_INFINITY.to_bits(),
            DType::I32 => u64::from(i32::MIN as u32),
            DType::I64 => i64::MIN as u64,
            _ => 0,
        })
    }

    /// The greatest value, inf for floats.
    pub(super) fn highest(self) -> Scalar {
        self.scalar(match self.0 {
            DType::F32 => u64::from(f32::INFINITY.to_bits()),
            DType::F64 => f64::INFINITY.to_bits(),
            DType::I32 => i32::MAX as u64,
            DType::I64 => i64::MAX as u64,
            DType::U32 => u64::from(u32::MAX),
            _ => u64::from(u8::MAX),
        })
    }

    /// The value of a small number.
    pub(super) fn small(self, value: u8) -> Scalar {
        self.scalar(match self.0 {
            DType::F32 => u64::from(f32::from(value).to_bits()),
            DType::F64 => f64::from(value).to_bits(),
            _ => u64::from(value),
        })
    }

    /// What may be added to any value and changes no bit of it: -0 for floats.
    pub(super) fn nothing(self) -> Scalar {
        self.scalar(match self.0 {
            DType::F32 => u64::from((-0.0_f32).to_bits()),
            DType::F64 => (-0.0_f64).to_bits(),
            _ => 0,
        })
    }

    /// A constant that has a register of this number's class.
    fn scalar(self, bits: u64) -> Scalar {
        let dtype = if self.0 == DType::Bool { DType::U8 } else { self.0 };
        Scalar { dtype, bits }
    }
}

impl Code {
    pub(super) fn load(&mut self, n: Number, address: Reg, offset: usize) -> Reg {
        let op = format!("ld.global.{}", n.memory());
        self.op(n.class(), &op, format_args!("[{address}+{offset}]"))
    }

    pub(super) fn store(&mut self, n: Number, address: Reg, offset: usize, value: Reg) {
        ptx!(self, "st.global.{} [{address}+{offset}], {value}", n.memory());
    }

    pub(super) fn load_shared(&mut self, n: Number, address: Reg, offset: usize) -> Reg {
        let op = format!("ld.shared.{}", n.memory());
        self.op(n.class(), &op, format_args!("[{address}+{offset}]"))
    }

    pub(super) fn store_shared(&mut self, n: Number, address: Reg, offset: usize, value: Reg) {
        ptx!(self, "st.shared.{} [{address}+{offset}], {value}", n.memory());
    }

    /// Arithmetic that rounds to nearest, or wraps: `add`, `sub` or `mul`.
    fn arithmetic(&mut self, op: &str, n: Number, x: Reg, y: Reg) -> Reg {
        let d = self.reg(n.class());
        let how = match (n.is_float(), op) {
            (true, _) => ".rn",
            (false, "mul") => ".lo",
            (false, _) => "",
        };
        ptx!(self, "{op}{how}.{} {d}, {x}, {y}", n.ty());
        if n.0 == DType::U8 { self.and(d, 255) } else { d }
    }

    pub(super) fn plus(&mut self, n: Number, x: Reg, y: Reg) -> Reg {
        self.arithmetic("add", n, x, y)
    }

    pub(super) fn minus(&mut self, n: Number, x: Reg, y: Reg) -> Reg {
        self.arithmetic("sub", n, x, y)
    }

    pub(super) fn times(&mut self, n: Number, x: Reg, y: Reg) -> Reg {
        self.arithmetic("mul", n, x, y)
    }

    /// The quotient of floats.
    pub(super) fn quotient(&mut self, n: Number, x: Reg, y: Reg) -> Reg {
        let op = format!("div.rn.{}", n.ty());
        self.op(n.class(), &op, format_args!("{x}, {y}"))
    }

    /// The square root of a float.
    pub(super) fn root(&mut self, n: Number, x: Reg) -> Reg {
        let op = format!("sqrt.rn.{}", n.ty());
        self.op(n.class(), &op, format_args!("{x}"))
    }

    /// A comparison that is false for NaN: `lt`, `le`, `eq`, `gt` or `ge`.
    pub(super) fn compare(&mut self, op: &str, n: Number, x: Reg, y: Reg) -> Reg {
        let d = self.reg(Class::Pred);
        ptx!(self, "setp.{op}.{} {d}, {x}, {y}", n.ty());
        d
    }

    /// Whether `op` holds between `x` and `y` or `x` is NaN.
    pub(super) fn compare_or_nan(&mut self, op: &str, n: Number, x: Reg, y: Reg) -> Reg {
        let holds = self.compare(op, n, x, y);
        match self.is_nan(n, x) {
            Some(nan) => self.or(holds, nan),
            None => holds,
        }
    }

    /// Whether a number is NaN; `None` for integers.
    pub(super) fn is_nan(&mut self, n: Number, x: Reg) -> Option<Reg> {
        n.is_float().then(|| {
            let d = self.reg(Class::Pred);
            ptx!(self, "setp.nan.{} {d}, {x}, {x}", n.ty());
            d
        })
    }

    /// `next` where it is beyond `x` (`gt` or `lt`) or NaN, else `x`.
    pub(super) fn extreme(&mut self, op: &str, n: Number, x: Reg, next: Reg) -> Reg {
        let p = self.compare_or_nan(op, n, next, x);
        self.select(p, next, x)
    }

    /// A number as its wide type.
    pub(super) fn to_wide(&mut self, n: Number, x: Reg) -> Reg {
        if n.wide() == n { x } else { self.op(Class::F64, "cvt.f64.f32", format_args!("{x}")) }
    }

    /// A number from its wide type.
    pub(super) fn to_narrow(&mut self, n: Number, x: Reg) -> Reg {
        if n.wide() == n { x } else { self.op(Class::F32, "cvt.rn.f32.f64", format_args!("{x}")) }
    }

    /// The value of the lane that `op` (`up`, `down`, `bfly` or `idx`) and `lane` name, for all 32 lanes at once.
    pub(super) fn shuffle(&mut self, op: &str, x: Reg, lane: u32) -> Reg {
        let clamp = if op == "up" { 0 } else { 31 };
        let d = self.reg(x.class);
        match x.class {
            Class::F32 | Class::B32 => {
                ptx!(self, "shfl.sync.{op}.b32 {d}, {x}, {lane}, {clamp}, 0xffffffff");
            }
            Class::F64 | Class::B64 => {
                let [low, high] = self.regs(Class::B32);
                ptx!(self, "mov.b64 {{{low}, {high}}}, {x}");
                let (low, high) = (self.shuffle(op, low, lane), self.shuffle(op, high, lane));
                ptx!(self, "mov.b64 {d}, {{{low}, {high}}}");
            }
            Class::Pred | Class::B16 => unreachable!("values of lanes have 32 or 64 bits"),
        }
        d
    }
}
