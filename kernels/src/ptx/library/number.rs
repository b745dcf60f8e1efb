//! Elements in registers: loads, stores and the arithmetic of library kernels by dtype.

use retape_runtime::{DType, Scalar};

use super::code::KernelWriter;
use crate::ir::{Binary, Compare, Inst, Unary};
use crate::ptx::{Class, Reg, RegValue, Space, cast, emit_inst, memory, ptx};

/// An order between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// A dtype to compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberType(pub(super) DType);

impl NumberType {
    /// The number that a dtype computes as: `bool` as the bytes 0 and 1.
    pub(super) fn of(dtype: DType) -> NumberType {
        NumberType(if dtype == DType::Bool { DType::U8 } else { dtype })
    }

    pub(super) fn size(self) -> usize {
        self.0.size()
    }

    pub(super) fn is_float(self) -> bool {
        self.0.is_float()
    }

    /// The type that long sums and products are kept in.
    pub(super) fn wide(self) -> NumberType {
        if self.0 == DType::F32 { NumberType(DType::F64) } else { self }
    }

    /// The least value, -inf for floats.
    pub(super) fn lowest(self) -> Scalar {
        self.scalar(match self.0 {
            DType::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
            DType::F64 => f64::NEG_INFINITY.to_bits(),
            DType::I32 => u64::from(i32::MIN as u32),
            DType::I64 => i64::MIN as u64,
            DType::U32 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 => 0,
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
            DType::U8 | DType::Bool | DType::F16 | DType::Bf16 => u64::from(u8::MAX),
        })
    }

    /// The value of a small number.
    pub(super) fn small(self, value: u8) -> Scalar {
        self.scalar(match self.0 {
            DType::F32 => u64::from(f32::from(value).to_bits()),
            DType::F64 => f64::from(value).to_bits(),
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 => {
                u64::from(value)
            }
        })
    }

    /// The neutral element of addition, which changes no bit of any value: -0 for floats.
    pub(super) fn nothing(self) -> Scalar {
        self.scalar(match self.0 {
            DType::F32 => u64::from((-0.0_f32).to_bits()),
            DType::F64 => (-0.0_f64).to_bits(),
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 => 0,
        })
    }

    /// A constant.
    fn scalar(self, bits: u64) -> Scalar {
        Scalar { dtype: self.0, bits }
    }

    fn value(self, reg: Reg) -> RegValue {
        RegValue::new(self.0, reg)
    }
}

impl KernelWriter {
    pub(super) fn load(&mut self, n: NumberType, address: Reg, offset: usize) -> Reg {
        memory::load(self, Space::Global, n.0, address, offset as i64).reg
    }

    pub(super) fn store(&mut self, n: NumberType, address: Reg, offset: usize, value: Reg) {
        memory::store(self, Space::Global, n.value(value), address, offset as i64, None);
    }

    pub(super) fn load_shared(&mut self, n: NumberType, address: Reg, offset: usize) -> Reg {
        memory::load(self, Space::Shared, n.0, address, offset as i64).reg
    }

    pub(super) fn store_shared(&mut self, n: NumberType, address: Reg, offset: usize, value: Reg) {
        memory::store(self, Space::Shared, n.value(value), address, offset as i64, None);
    }

    /// Arithmetic of the kernel IR.
    fn binary(&mut self, op: Binary, n: NumberType, x: Reg, y: Reg) -> Reg {
        self.inst(&Inst::Binary(op, n.value(x), n.value(y)))
    }

    /// An instruction that is scalar and not transcendental.
    fn inst(&mut self, inst: &Inst<RegValue>) -> Reg {
        emit_inst(self, inst).expect("scalar instructions are emitted").reg
    }

    pub(super) fn plus(&mut self, n: NumberType, x: Reg, y: Reg) -> Reg {
        self.binary(Binary::Add, n, x, y)
    }

    pub(super) fn minus(&mut self, n: NumberType, x: Reg, y: Reg) -> Reg {
        self.binary(Binary::Sub, n, x, y)
    }

    pub(super) fn times(&mut self, n: NumberType, x: Reg, y: Reg) -> Reg {
        self.binary(Binary::Mul, n, x, y)
    }

    /// The quotient of floats.
    pub(super) fn quotient(&mut self, n: NumberType, x: Reg, y: Reg) -> Reg {
        self.binary(Binary::Div, n, x, y)
    }

    /// The square root of a float.
    pub(super) fn root(&mut self, n: NumberType, x: Reg) -> Reg {
        self.inst(&Inst::Unary(Unary::Sqrt, n.value(x)))
    }

    /// A comparison that is false for NaN.
    pub(super) fn compare(&mut self, op: Order, n: NumberType, x: Reg, y: Reg) -> Reg {
        let (op, x, y) = match op {
            Order::Less => (Compare::Lt, x, y),
            Order::LessEqual => (Compare::Le, x, y),
            Order::Greater => (Compare::Lt, y, x),
            Order::GreaterEqual => (Compare::Le, y, x),
        };
        self.inst(&Inst::Compare(op, n.value(x), n.value(y)))
    }

    /// Whether `op` holds between `x` and `y` or `x` is NaN.
    pub(super) fn compare_or_nan(&mut self, op: Order, n: NumberType, x: Reg, y: Reg) -> Reg {
        let holds = self.compare(op, n, x, y);
        match self.is_nan(n, x) {
            Some(nan) => self.or(holds, nan),
            None => holds,
        }
    }

    /// Whether a number is NaN; `None` for integers.
    pub(super) fn is_nan(&mut self, n: NumberType, x: Reg) -> Option<Reg> {
        n.is_float().then(|| {
            let x = n.value(x);
            self.inst(&Inst::Compare(Compare::Ne, x, x))
        })
    }

    /// `next` where it has `op` to `x` or is NaN, else `x`.
    pub(super) fn extreme(&mut self, op: Order, n: NumberType, x: Reg, next: Reg) -> Reg {
        let p = self.compare_or_nan(op, n, next, x);
        self.select(p, next, x)
    }

    /// A number as its wide type.
    pub(super) fn widened(&mut self, n: NumberType, x: Reg) -> Reg {
        cast(self, n.wide().0, n.value(x)).reg
    }

    /// A number from its wide type.
    pub(super) fn narrowed(&mut self, n: NumberType, x: Reg) -> Reg {
        cast(self, n.0, n.wide().value(x)).reg
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
