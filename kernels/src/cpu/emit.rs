//! Instructions of the kernel IR as Cranelift instructions, one element or four at a time.
//!
//! A vector value is four elements in one or two 128-bit registers: four lanes of 32 bits, or twice two lanes of 64.
//! Narrow integers and halves are held zero-extended in 32 bits. A vector `bool` is a mask of zeros and ones, 32 or 64
//! bits wide as its maker found convenient. An instruction without a vector form is done lane by lane.
//!
//! Guarantees that a vector instruction gives each lane the bits that the scalar one gives.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use retape_runtime::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

use super::libcalls::{Lib, Libs};
use crate::ir::{Binary, Compare, ReductionOp, Unary};
use crate::schedule::REDUCTION_LANES;

/// Elements of a vector value: as many as the order of additions has lanes, so that an accumulator is one value.
pub(super) const LANES: usize = REDUCTION_LANES;

/// The registers of a value.
pub(super) type Regs = SmallVec<[Value; 2]>;

/// An emitted value.
#[derive(Clone, Debug)]
pub(super) struct Val {
    /// Its dtype.
    pub(super) dtype: DType,
    /// Whether it is four elements.
    pub(super) vector: bool,
    /// Where it is.
    pub(super) regs: Regs,
    /// The constant that it is, if known.
    pub(super) constant: Option<Scalar>,
}

impl Val {
    pub(super) fn scalar(dtype: DType, value: Value) -> Val {
        Val { dtype, vector: false, regs: smallvec![value], constant: None }
    }

    pub(super) fn vector(dtype: DType, regs: Regs) -> Val {
        Val { dtype, vector: true, regs, constant: None }
    }

    fn constant_f64(&self) -> Option<f64> {
        self.constant.map(Scalar::to_f64)
    }
}

/// The Cranelift type of one element in a register.
pub(super) fn scalar_type(dtype: DType) -> Type {
    match dtype {
        DType::F32 => types::F32,
        DType::F64 => types::F64,
        DType::I32 | DType::U32 | DType::U8 | DType::F16 | DType::Bf16 => types::I32,
        DType::I64 => types::I64,
        DType::Bool => types::I8,
    }
}

/// The Cranelift type of a register of lanes.
pub(super) fn vector_type(dtype: DType) -> Type {
    match dtype {
        DType::F32 => types::F32X4,
        DType::F64 => types::F64X2,
        DType::I64 => types::I64X2,
        DType::I32 | DType::U32 | DType::U8 | DType::F16 | DType::Bf16 | DType::Bool => types::I32X4,
    }
}

/// Registers of a vector value; a `bool` may also have two.
pub(super) fn vector_regs(dtype: DType) -> usize {
    if dtype.size() == 8 { 2 } else { 1 }
}

fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U32 | DType::U8 | DType::Bool)
}

fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little)
}

/// The features of the machine that the emitter must know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// Whether fused multiply-add is one instruction.
    pub(super) fma: bool,
    /// Whether rounding vectors is one instruction.
    pub(super) round: bool,
    /// Whether minimum and maximum of vectors with the order of zeros and NaN are one instruction.
    pub(super) ordered_min: bool,
}

/// The NaN and infinity checks of a function's stores so far.
#[derive(Clone, Debug, Default)]
pub(super) struct NonFiniteFlag {
    pub(super) kinds: Vec<Kind>,
}

/// Sums of the stores of one type of register.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) ty: Type,
    /// Of floats sums that are zero or NaN; of halves one union of comparisons.
    pub(super) sums: Vec<Variable>,
    /// A zero of the type.
    pub(super) zero: Value,
    pub(super) n_stores: usize,
}

/// Emits instructions at the builder's position.
pub(super) struct Emitter<'a> {
    pub(super) b: FunctionBuilder<'a>,
    pub(super) libs: Libs,
    pub(super) features: Features,
    /// The checks of the stores so far, in instrumented code.
    pub(super) nonfinite: Option<NonFiniteFlag>,
}

impl Emitter<'_> {
    /// Calls a function and returns its result.
    pub(super) fn call(&mut self, lib: Lib, args: &[Value]) -> Value {
        let callee = self.libs.imported(&mut self.b, lib);
        let call = self.b.ins().call(callee, args);
        self.b.inst_results(call)[0]
    }

    pub(super) fn int(&mut self, x: i64) -> Value {
        self.b.ins().iconst(types::I64, x)
    }

    /// A constant; used as a vector it becomes one from memory.
    pub(super) fn constant(&mut self, x: Scalar) -> Val {
        let value = match x.dtype {
            DType::F32 => self.b.ins().f32const(f32::from_bits(x.bits as u32)),
            DType::F64 => self.b.ins().f64const(f64::from_bits(x.bits)),
            DType::I32 | DType::U32 => self.b.ins().iconst(types::I32, i64::from(x.bits as u32)),
            DType::U8 | DType::F16 | DType::Bf16 => self.b.ins().iconst(types::I32, x.bits as i64),
            DType::I64 => self.b.ins().iconst(types::I64, x.bits as i64),
            DType::Bool => self.b.ins().iconst(types::I8, x.bits as i64),
        };
        Val { constant: Some(x), ..Val::scalar(x.dtype, value) }
    }

    fn vconst(&mut self, ty: Type, bytes: &[u8]) -> Value {
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(ty, constant)
    }

    pub(super) fn vconst_i32(&mut self, lanes: [i32; 4]) -> Value {
        let bytes: Vec<u8> = lanes.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.vconst(types::I32X4, &bytes)
    }

    pub(super) fn vconst_i64(&mut self, lanes: [i64; 2]) -> Value {
        let bytes: Vec<u8> = lanes.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.vconst(types::I64X2, &bytes)
    }

    fn splat_constant(&mut self, x: Scalar) -> Val {
        let ty = vector_type(x.dtype);
        let reg = match x.dtype {
            DType::F64 | DType::I64 => self.vconst(ty, &[x.bits.to_le_bytes(), x.bits.to_le_bytes()].concat()),
            DType::Bool => self.vconst_i32([-(x.bits as i32); 4]),
            DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::F16 | DType::Bf16 => {
                self.vconst(ty, &(x.bits as u32).to_le_bytes().repeat(4))
            }
        };
        Val { constant: Some(x), ..Val::vector(x.dtype, smallvec![reg; vector_regs(x.dtype)]) }
    }

    /// The value in all lanes.
    pub(super) fn vectorised(&mut self, x: &Val) -> Val {
        if x.vector {
            return x.clone();
        }
        if let Some(constant) = x.constant {
            return self.splat_constant(constant);
        }
        let lane = if x.dtype == DType::Bool { self.b.ins().bmask(types::I32, x.regs[0]) } else { x.regs[0] };
        let reg = self.b.ins().splat(vector_type(x.dtype), lane);
        Val::vector(x.dtype, smallvec![reg; vector_regs(x.dtype)])
    }

    /// One element of a vector value.
    pub(super) fn lane(&mut self, x: &Val, lane: usize) -> Val {
        let per_reg = LANES / x.regs.len();
        let (reg, at) = (x.regs[lane / per_reg], (lane % per_reg) as u8);
        let mut value = self.b.ins().extractlane(reg, at);
        if x.dtype == DType::Bool {
            value = self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
        }
        Val { constant: x.constant, ..Val::scalar(x.dtype, value) }
    }

    /// Four elements as one vector value.
    pub(super) fn assemble(&mut self, lanes: &[Val]) -> Val {
        let dtype = lanes[0].dtype;
        let ty = vector_type(dtype);
        let count = vector_regs(dtype);
        let per_reg = LANES / count;
        let mut regs = Regs::new();
        for part in lanes.chunks(per_reg) {
            let mut reg = None;
            for (at, lane) in part.iter().enumerate() {
                let value =
                    if dtype == DType::Bool { self.b.ins().bmask(types::I32, lane.regs[0]) } else { lane.regs[0] };
                reg = Some(match reg {
                    None => self.b.ins().scalar_to_vector(ty, value),
                    Some(reg) => self.b.ins().insertlane(reg, value, at as u8),
                });
            }
            regs.extend(reg);
        }
        Val::vector(dtype, regs)
    }

    fn per_lane(&mut self, operands: &[&Val], f: &mut dyn FnMut(&mut Self, &[Val]) -> Val) -> Val {
        let mut lanes: SmallVec<[Val; 4]> = SmallVec::new();
        for lane in 0..LANES {
            let mut parts: SmallVec<[Val; 3]> = SmallVec::new();
            for x in operands {
                parts.push(self.lane(x, lane));
            }
            lanes.push(f(self, &parts));
        }
        self.assemble(&lanes)
    }

    fn map(&mut self, x: &Val, f: &mut dyn FnMut(&mut FunctionBuilder<'_>, Value) -> Value) -> Val {
        let regs = x.regs.iter().map(|&r| f(&mut self.b, r)).collect();
        Val { dtype: x.dtype, vector: x.vector, regs, constant: None }
    }

    fn zip(&mut self, x: &Val, y: &Val, f: &mut dyn FnMut(&mut FunctionBuilder<'_>, Value, Value) -> Value) -> Val {
        let regs = x.regs.iter().zip(&y.regs).map(|(&p, &q)| f(&mut self.b, p, q)).collect();
        Val { dtype: x.dtype, vector: x.vector, regs, constant: None }
    }

    /// A 32-bit register that holds `x` in every lane if the value `like` is a vector, else one element.
    fn imm_like(&mut self, like: &Val, x: i64) -> Value {
        let scalar = Scalar { dtype: DType::U32, bits: u64::from(x as u32) };
        if like.vector { self.splat_constant(scalar).regs[0] } else { self.b.ins().iconst(types::I32, x) }
    }

    fn low_byte(&mut self, x: Val) -> Val {
        let mask = self.imm_like(&x, 0xff);
        self.map(&x, &mut |b, r| b.ins().band(r, mask))
    }

    /// A one-operand instruction.
    pub(super) fn unary(&mut self, op: Unary, x: &Val) -> Val {
        let float = x.dtype.is_float();
        match op {
            Unary::Neg if float => self.map(x, &mut |b, r| b.ins().fneg(r)),
            Unary::Abs if float => self.map(x, &mut |b, r| b.ins().fabs(r)),
            Unary::Neg => {
                let r = self.map(x, &mut |b, r| b.ins().ineg(r));
                if x.dtype == DType::U8 { self.low_byte(r) } else { r }
            }
            Unary::Abs if is_unsigned(x.dtype) => x.clone(),
            Unary::Abs => self.map(x, &mut |b, r| b.ins().iabs(r)),
            Unary::Sqrt => self.map(x, &mut |b, r| b.ins().sqrt(r)),
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => {
                if x.vector && !self.features.round {
                    return self.per_lane(&[x], &mut |e, l| e.unary(op, &l[0]));
                }
                self.map(x, &mut |b, r| match op {
                    Unary::Floor => b.ins().floor(r),
                    Unary::Ceil => b.ins().ceil(r),
                    Unary::Round => b.ins().nearest(r),
                    Unary::Trunc | Unary::Neg | Unary::Abs | Unary::Sqrt | Unary::Not => b.ins().trunc(r),
                })
            }
            Unary::Not => match x.dtype {
                DType::Bool if !x.vector => self.map(x, &mut |b, r| b.ins().bxor_imm_s(r, 1)),
                DType::U8 => {
                    let r = self.map(x, &mut |b, r| b.ins().bnot(r));
                    self.low_byte(r)
                }
                DType::Bool
                | DType::I32
                | DType::I64
                | DType::U32
                | DType::F16
                | DType::Bf16
                | DType::F32
                | DType::F64 => self.map(x, &mut |b, r| b.ins().bnot(r)),
            },
        }
    }

    /// A two-operand instruction.
    pub(super) fn binary(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        if x.dtype == DType::Bool {
            let (x, y) = self.same_masks(x, y);
            return self.logic(op, &x, &y);
        }
        if x.dtype.is_float() { self.float_binary(op, x, y) } else { self.int_binary(op, x, y) }
    }

    fn logic(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        match op {
            Binary::Or | Binary::Max | Binary::Add => self.zip(x, y, &mut |b, p, q| b.ins().bor(p, q)),
            Binary::Xor => self.zip(x, y, &mut |b, p, q| b.ins().bxor(p, q)),
            Binary::And
            | Binary::Min
            | Binary::Mul
            | Binary::Sub
            | Binary::Div
            | Binary::Rem
            | Binary::Shl
            | Binary::Shr
            | Binary::MulHigh => self.zip(x, y, &mut |b, p, q| b.ins().band(p, q)),
        }
    }

    fn float_binary(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        match op {
            Binary::Add => self.zip(x, y, &mut |b, p, q| b.ins().fadd(p, q)),
            Binary::Sub => self.zip(x, y, &mut |b, p, q| b.ins().fsub(p, q)),
            Binary::Mul => self.zip(x, y, &mut |b, p, q| b.ins().fmul(p, q)),
            Binary::Div => self.zip(x, y, &mut |b, p, q| b.ins().fdiv(p, q)),
            Binary::Rem if x.vector => self.per_lane(&[x, y], &mut |e, l| e.float_binary(Binary::Rem, &l[0], &l[1])),
            Binary::Rem => {
                let lib = if x.dtype == DType::F32 { Lib::FmodF32 } else { Lib::FmodF64 };
                let r = self.call(lib, &[x.regs[0], y.regs[0]]);
                Val::scalar(x.dtype, r)
            }
            Binary::Min
            | Binary::Max
            | Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::Shl
            | Binary::Shr
            | Binary::MulHigh => self.float_min_max(op, x, y),
        }
    }

    /// Against a known number one comparison decides; in general the order of zeros and NaN costs more.
    fn float_min_max(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        for (x, y) in [(x, y), (y, x)] {
            let Some(c) = y.constant_f64().filter(|c| !c.is_nan()) else { continue };
            // An equal zero of the other sign must be replaced, unless the constant is the zero that never wins.
            let strict = c == 0.0 && (c.is_sign_negative() == (op == Binary::Max));
            let cc = match (op == Binary::Max, strict) {
                (true, false) => FloatCC::LessThanOrEqual,
                (true, true) => FloatCC::LessThan,
                (false, false) => FloatCC::GreaterThanOrEqual,
                (false, true) => FloatCC::GreaterThan,
            };
            let mask = self.fcmp(cc, x, y);
            return self.select(&mask, y, x);
        }
        if x.vector && !self.features.ordered_min {
            self.ordered_min_max(op, x, y)
        } else if op == Binary::Max {
            self.zip(x, y, &mut |b, p, q| b.ins().fmax(p, q))
        } else {
            self.zip(x, y, &mut |b, p, q| b.ins().fmin(p, q))
        }
    }

    /// Where the machine's minimum and maximum favour the second operand, both orders are asked: the answers differ
    /// for NaN and for zeros of two signs only. Their union is the minimum: NaN, or -0. Less their difference, which
    /// is 0, NaN or the sign of a zero, it is the maximum.
    fn ordered_min_max(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        self.zip(x, y, &mut |b, p, q| {
            let ty = b.func.dfg.value_type(p);
            let mut ask = |p, q| {
                // This form of the comparison is what Cranelift knows as the one instruction.
                let (low, high) = if op == Binary::Max { (q, p) } else { (p, q) };
                let mask = b.ins().fcmp(FloatCC::LessThan, low, high);
                let mask = b.ins().bitcast(ty, little(), mask);
                b.ins().bitselect(mask, p, q)
            };
            let (one, other) = (ask(p, q), ask(q, p));
            let union = b.ins().bor(one, other);
            if op == Binary::Min {
                return union;
            }
            let difference = b.ins().bxor(one, other);
            b.ins().fsub(union, difference)
        })
    }

    fn int_binary(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        let wide = x.dtype == DType::I64;
        let unsigned = is_unsigned(x.dtype);
        match op {
            Binary::Add => self.wrapping(x, y, &mut |b, p, q| b.ins().iadd(p, q)),
            Binary::Sub => self.wrapping(x, y, &mut |b, p, q| b.ins().isub(p, q)),
            Binary::Mul => self.wrapping(x, y, &mut |b, p, q| b.ins().imul(p, q)),
            Binary::And => self.zip(x, y, &mut |b, p, q| b.ins().band(p, q)),
            Binary::Or => self.zip(x, y, &mut |b, p, q| b.ins().bor(p, q)),
            Binary::Xor => self.zip(x, y, &mut |b, p, q| b.ins().bxor(p, q)),
            Binary::Min | Binary::Max if x.vector && wide => {
                let cc = if op == Binary::Min { IntCC::SignedLessThan } else { IntCC::SignedGreaterThan };
                let mask = self.icmp(cc, x, y);
                self.select(&mask, x, y)
            }
            Binary::Min if unsigned => self.zip(x, y, &mut |b, p, q| b.ins().umin(p, q)),
            Binary::Max if unsigned => self.zip(x, y, &mut |b, p, q| b.ins().umax(p, q)),
            Binary::Min => self.zip(x, y, &mut |b, p, q| b.ins().smin(p, q)),
            Binary::Max => self.zip(x, y, &mut |b, p, q| b.ins().smax(p, q)),
            Binary::Shl | Binary::Shr => self.shift(op, x, y),
            Binary::MulHigh if x.vector => self.vector_mul_high(x, y),
            Binary::MulHigh => {
                let p = self.b.ins().uextend(types::I64, x.regs[0]);
                let q = self.b.ins().uextend(types::I64, y.regs[0]);
                let product = self.b.ins().imul(p, q);
                let high = self.b.ins().ushr_imm_u(product, 32);
                let r = self.b.ins().ireduce(types::I32, high);
                Val::scalar(x.dtype, r)
            }
            Binary::Div | Binary::Rem if x.vector => self.per_lane(&[x, y], &mut |e, l| e.int_binary(op, &l[0], &l[1])),
            Binary::Div | Binary::Rem => self.divide(op, x, y),
        }
    }

    fn wrapping(
        &mut self,
        x: &Val,
        y: &Val,
        f: &mut dyn FnMut(&mut FunctionBuilder<'_>, Value, Value) -> Value,
    ) -> Val {
        let r = self.zip(x, y, f);
        if x.dtype == DType::U8 { self.low_byte(r) } else { r }
    }

    /// Full products of even and odd lanes, of which the high halves are kept.
    fn vector_mul_high(&mut self, x: &Val, y: &Val) -> Val {
        let mut halves = Regs::new();
        for high in [false, true] {
            let mut widen = |r| match high {
                false => self.b.ins().uwiden_low(r),
                true => self.b.ins().uwiden_high(r),
            };
            let (p, q) = (widen(x.regs[0]), widen(y.regs[0]));
            halves.push(self.b.ins().imul(p, q));
        }
        let r = self.pick_words(&halves, 1);
        Val::vector(x.dtype, smallvec![r])
    }

    /// Word `word` (0 low, 1 high) of each of the four 64-bit lanes, as 32-bit lanes.
    pub(super) fn pick_words(&mut self, regs: &Regs, word: u8) -> Value {
        let bytes: Vec<u8> = (0..4u8).flat_map(|lane| (0..4u8).map(move |byte| 8 * lane + 4 * word + byte)).collect();
        let low = self.b.ins().bitcast(types::I8X16, little(), regs[0]);
        let high = self.b.ins().bitcast(types::I8X16, little(), regs[1]);
        let r = self.shuffle(low, high, &bytes);
        self.b.ins().bitcast(types::I32X4, little(), r)
    }

    pub(super) fn shuffle(&mut self, x: Value, y: Value, bytes: &[u8]) -> Value {
        let mask = self.b.func.dfg.immediates.push(bytes.into());
        self.b.ins().shuffle(x, y, mask)
    }

    fn shift(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        let width = 8 * x.dtype.size() as i64;
        if x.vector && y.constant.is_none() {
            return self.per_lane(&[x, y], &mut |e, l| e.shift(op, &l[0], &l[1]));
        }
        let distance = match y.constant {
            Some(c) => self.b.ins().iconst(types::I32, c.bits as i64 & (width - 1)),
            None => {
                let mask = self.b.ins().iconst(scalar_type(y.dtype), width - 1);
                self.b.ins().band(y.regs[0], mask)
            }
        };
        let unsigned = is_unsigned(x.dtype);
        let r = self.map(x, &mut |b, r| {
            if op == Binary::Shl {
                b.ins().ishl(r, distance)
            } else if unsigned {
                b.ins().ushr(r, distance)
            } else {
                b.ins().sshr(r, distance)
            }
        });
        if x.dtype == DType::U8 { self.low_byte(r) } else { r }
    }

    /// Division that cannot trap: by zero it gives 0, and the lowest number divided by -1 wraps.
    fn divide(&mut self, op: Binary, x: &Val, y: &Val) -> Val {
        let (x, y, dtype) = (x.regs[0], y.regs[0], x.dtype);
        let b = &mut self.b;
        let ty = scalar_type(dtype);
        let (zero, one) = (b.ins().iconst(ty, 0), b.ins().iconst(ty, 1));
        let by_zero = b.ins().icmp(IntCC::Equal, y, zero);
        let r = if is_unsigned(dtype) {
            let safe = b.ins().select(by_zero, one, y);
            if op == Binary::Div { b.ins().udiv(x, safe) } else { b.ins().urem(x, safe) }
        } else {
            let by_minus_one = b.ins().icmp_imm_s(IntCC::Equal, y, -1);
            let either = b.ins().bor(by_zero, by_minus_one);
            let safe = b.ins().select(either, one, y);
            if op == Binary::Div {
                let negated = b.ins().ineg(x);
                let quotient = b.ins().sdiv(x, safe);
                b.ins().select(by_minus_one, negated, quotient)
            } else {
                b.ins().srem(x, safe)
            }
        };
        let r = b.ins().select(by_zero, zero, r);
        Val::scalar(dtype, r)
    }

    fn fcmp(&mut self, cc: FloatCC, x: &Val, y: &Val) -> Val {
        let r = self.zip(x, y, &mut |b, p, q| b.ins().fcmp(cc, p, q));
        Val { dtype: DType::Bool, ..r }
    }

    fn icmp(&mut self, cc: IntCC, x: &Val, y: &Val) -> Val {
        let r = self.zip(x, y, &mut |b, p, q| b.ins().icmp(cc, p, q));
        Val { dtype: DType::Bool, ..r }
    }

    /// A comparison.
    pub(super) fn compare(&mut self, op: Compare, x: &Val, y: &Val) -> Val {
        if x.dtype.is_float() {
            let cc = match op {
                Compare::Eq => FloatCC::Equal,
                Compare::Ne => FloatCC::NotEqual,
                Compare::Lt => FloatCC::LessThan,
                Compare::Le => FloatCC::LessThanOrEqual,
            };
            return self.fcmp(cc, x, y);
        }
        let cc = match (op, is_unsigned(x.dtype)) {
            (Compare::Eq, _) => IntCC::Equal,
            (Compare::Ne, _) => IntCC::NotEqual,
            (Compare::Lt, false) => IntCC::SignedLessThan,
            (Compare::Le, false) => IntCC::SignedLessThanOrEqual,
            (Compare::Lt, true) => IntCC::UnsignedLessThan,
            (Compare::Le, true) => IntCC::UnsignedLessThanOrEqual,
        };
        if x.dtype == DType::Bool {
            let (x, y) = self.same_masks(x, y);
            return self.icmp(cc, &x, &y);
        }
        self.icmp(cc, x, y)
    }

    /// The mask in `regs` registers.
    pub(super) fn mask(&mut self, x: &Val, regs: usize) -> Val {
        if !x.vector || x.regs.len() == regs {
            return x.clone();
        }
        let regs = if regs == 1 {
            smallvec![self.pick_words(&x.regs, 0)]
        } else {
            smallvec![self.b.ins().swiden_low(x.regs[0]), self.b.ins().swiden_high(x.regs[0])]
        };
        Val { constant: x.constant, ..Val::vector(DType::Bool, regs) }
    }

    /// Whether a `bool` holds for an element.
    pub(super) fn any(&mut self, x: &Val) -> Value {
        if !x.vector {
            return x.regs[0];
        }
        let all = x.regs[1..].iter().fold(x.regs[0], |all, &reg| self.b.ins().bor(all, reg));
        self.b.ins().vany_true(all)
    }

    /// Whether a `bool` holds for all elements.
    pub(super) fn all(&mut self, x: &Val) -> Value {
        if !x.vector {
            return x.regs[0];
        }
        let all = x.regs[1..].iter().fold(x.regs[0], |all, &reg| self.b.ins().band(all, reg));
        self.b.ins().vall_true(all)
    }

    fn same_masks(&mut self, x: &Val, y: &Val) -> (Val, Val) {
        if x.regs.len() == y.regs.len() {
            return (x.clone(), y.clone());
        }
        (self.mask(x, 1), self.mask(y, 1))
    }

    /// `if c { x } else { y }`.
    pub(super) fn select(&mut self, c: &Val, x: &Val, y: &Val) -> Val {
        if !x.vector {
            let r = self.b.ins().select(c.regs[0], x.regs[0], y.regs[0]);
            return Val::scalar(x.dtype, r);
        }
        let (x, y) = if x.dtype == DType::Bool { self.same_masks(x, y) } else { (x.clone(), y.clone()) };
        let c = self.mask(c, x.regs.len());
        let mut regs = Regs::new();
        for ((&c, &p), &q) in c.regs.iter().zip(&x.regs).zip(&y.regs) {
            let ty = self.b.func.dfg.value_type(p);
            let c = if ty.lane_type().is_float() { self.b.ins().bitcast(ty, little(), c) } else { c };
            regs.push(self.b.ins().bitselect(c, p, q));
        }
        Val::vector(x.dtype, regs)
    }

    /// `x * y + z`, rounded once.
    pub(super) fn fma(&mut self, x: &Val, y: &Val, z: &Val) -> Val {
        if x.vector && !self.features.fma {
            return self.per_lane(&[x, y, z], &mut |e, l| e.fma(&l[0], &l[1], &l[2]));
        }
        let regs = (0..x.regs.len()).map(|i| self.b.ins().fma(x.regs[i], y.regs[i], z.regs[i])).collect();
        Val { dtype: x.dtype, vector: x.vector, regs, constant: None }
    }

    /// One step of a reduction.
    pub(super) fn combine(&mut self, op: ReductionOp, x: &Val, y: &Val) -> Val {
        match op {
            ReductionOp::Sum => self.binary(Binary::Add, x, y),
            ReductionOp::Prod => self.binary(Binary::Mul, x, y),
            ReductionOp::Max => self.binary(Binary::Max, x, y),
            ReductionOp::Min => self.binary(Binary::Min, x, y),
            ReductionOp::All => self.binary(Binary::And, x, y),
            ReductionOp::Any => self.binary(Binary::Or, x, y),
        }
    }

    /// All lanes as one element: lanes 0 and 2, 1 and 3, then the two.
    pub(super) fn reduce_lanes(&mut self, op: ReductionOp, x: &Val) -> Val {
        if x.regs.len() == 2 {
            let half = |r| Val::vector(x.dtype, smallvec![r]);
            let both = self.combine(op, &half(x.regs[0]), &half(x.regs[1]));
            let lane = |e: &mut Self, at: u8| Val::scalar(x.dtype, e.b.ins().extractlane(both.regs[0], at));
            let (p, q) = (lane(self, 0), lane(self, 1));
            return self.combine(op, &p, &q);
        }
        let ty = vector_type(x.dtype);
        let mut combined = x.clone();
        for distance in [8u8, 4] {
            let bytes: Vec<u8> = (0..16).map(|i| (i + distance) % 16).collect();
            let raw = self.b.ins().bitcast(types::I8X16, little(), combined.regs[0]);
            let moved = self.shuffle(raw, raw, &bytes);
            let moved = self.b.ins().bitcast(ty, little(), moved);
            combined = self.combine(op, &combined, &Val::vector(x.dtype, smallvec![moved]));
        }
        self.lane(&combined, 0)
    }

    /// Lane by lane, for the conversions in `cast`.
    pub(super) fn cast_lanes(&mut self, dtype: DType, x: &Val) -> Val {
        self.per_lane(&[x], &mut |e, l| e.cast(dtype, &l[0]))
    }

    /// The same bits as another type of the same registers.
    pub(super) fn bitcast(&mut self, dtype: DType, x: &Val) -> Val {
        if dtype == DType::Bool || x.dtype == DType::Bool {
            return self.cast(dtype, x);
        }
        let ty = if x.vector { vector_type(dtype) } else { scalar_type(dtype) };
        let r = self.map(x, &mut |b, r| {
            if b.func.dfg.value_type(r) == ty { r } else { b.ins().bitcast(ty, little(), r) }
        });
        Val { dtype, ..r }
    }

    pub(super) fn raw_bitcast(&mut self, ty: Type, x: Value) -> Value {
        self.b.ins().bitcast(ty, little(), x)
    }
}
