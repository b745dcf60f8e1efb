//! Instructions of the kernel IR as vector instructions.
//!
//! A value is as many elements as a vector has words of 32 bits, in one register, or in two where elements have 64 bits.
//! Narrow integers and halves are held zero-extended in 32 bits. A `bool` is a mask register with AVX-512, else a word
//! of zeros or ones for each element. A value that does not depend on the vector axis is the same in all lanes.
//!
//! Guarantees that each lane has the bits that Cranelift's code gives. Instructions without a short form here are
//! refused (`None`), and with them the nest.

use retape_runtime::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

use super::WideIsa;
use super::code::{Code, RegClass, RegField, RegOrMem, Row, Virtual};
use super::encode::{Constant, Len};
use super::ops::{self, Op, Shift};
use super::regs::Registers;
use crate::ir::{Binary, Compare, Inst, ReductionOp, Unary, ValueId};

/// The registers of a value.
pub(super) type VirtualRegs = SmallVec<[Virtual; 2]>;

/// An emitted value.
#[derive(Clone, Debug)]
pub(super) struct WideVal {
    pub(super) dtype: DType,
    pub(super) regs: VirtualRegs,
    /// The constant that it is, if known.
    pub(super) constant: Option<Scalar>,
}

impl WideVal {
    pub(super) fn new(dtype: DType, regs: VirtualRegs) -> WideVal {
        WideVal { dtype, regs, constant: None }
    }
}

/// Chooses instructions for the block under construction.
#[derive(Debug)]
pub(super) struct WideEmitter {
    pub(super) level: WideIsa,
    pub(super) regs: Registers,
    pub(super) block: Vec<Code>,
    /// The width of what is emitted: whole vectors, except where lanes are combined.
    pub(super) len: Len,
    /// Vectors that may take turns.
    pub(super) most_chains: usize,
}

pub(super) const fn is_wide(dtype: DType) -> bool {
    dtype.size() == 8
}

fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U32 | DType::U8 | DType::Bool)
}

impl WideEmitter {
    pub(super) fn push(&mut self, row: Row) {
        self.block.push(Code::Row(row));
    }

    pub(super) fn vector(&mut self) -> Virtual {
        self.regs.make(RegClass::Vector)
    }

    /// `op(x)`.
    pub(super) fn one(&mut self, op: Op, x: Virtual) -> Virtual {
        self.one_of(op, self.len, x, None)
    }

    /// `op(x)` of some width, with an immediate.
    pub(super) fn one_of(&mut self, op: Op, len: Len, x: Virtual, imm: Option<u8>) -> Virtual {
        let to = self.vector();
        self.push(Row { imm, ..Row::of(op, len, RegField::Define(to), RegOrMem::Register(RegField::Use(x))) });
        to
    }

    fn row_of_two(&self, op: Op, to: Virtual, x: Virtual, y: Virtual) -> Row {
        Row::of(op, self.len, RegField::Define(to), RegOrMem::Register(RegField::Use(y))).v(RegField::Use(x))
    }

    /// `op(x, y)`, where the second operand may come from memory.
    pub(super) fn two(&mut self, op: Op, x: Virtual, y: Virtual) -> Virtual {
        let to = self.vector();
        let row = self.row_of_two(op, to, x, y);
        self.push(row);
        to
    }

    /// `op(x, y)`, which is `op(y, x)`.
    pub(super) fn either(&mut self, op: Op, x: Virtual, y: Virtual) -> Virtual {
        let to = self.vector();
        let row = Row { commutes: true, ..self.row_of_two(op, to, x, y) };
        self.push(row);
        to
    }

    pub(super) fn two_imm(&mut self, op: Op, x: Virtual, y: Virtual, imm: u8) -> Virtual {
        let to = self.vector();
        let row = self.row_of_two(op, to, x, y).imm(imm);
        self.push(row);
        to
    }

    /// An instruction on mask registers.
    pub(super) fn mask_op(&mut self, op: Op, x: Virtual, y: Virtual) -> Virtual {
        let to = self.regs.make(RegClass::Mask);
        let row =
            Row::of(op, Len::Bits256, RegField::Define(to), RegOrMem::Register(RegField::Use(y))).v(RegField::Use(x));
        self.push(row);
        to
    }

    pub(super) fn word(&mut self, bits: u32) -> Virtual {
        self.regs.constant(Constant::Words(bits))
    }

    pub(super) fn quad(&mut self, bits: u64) -> Virtual {
        self.regs.constant(Constant::Quads(bits))
    }

    /// These bits in each element, of 64 bits if they are `wide`.
    pub(super) fn bits(&mut self, wide: bool, bits: u64) -> Virtual {
        if wide { self.quad(bits) } else { self.word(bits as u32) }
    }

    /// The numbers from `first` on, one for each lane of a register.
    pub(super) fn numbers(&mut self, wide: bool, first: u64) -> Virtual {
        let size = if wide { 8 } else { 4 };
        let lanes =
            (first..first + (self.level.len().bytes() / size) as u64).flat_map(|n| n.to_le_bytes()[..size].to_vec());
        let lanes = lanes.collect();
        self.regs.constant(Constant::Lanes(lanes))
    }

    /// A constant in all lanes.
    pub(super) fn constant(&mut self, x: Scalar) -> WideVal {
        let reg = match x.dtype {
            DType::Bool if self.level.has_masks() => {
                let to = self.regs.make(RegClass::Mask);
                let op = if x.bits != 0 { ops::MASK_XNOR } else { ops::MASK_XOR };
                self.push(Row::of(op, Len::Bits256, RegField::Define(to), RegOrMem::Register(RegField::Digit(0))));
                to
            }
            DType::Bool => self.word(if x.bits != 0 { u32::MAX } else { 0 }),
            DType::F64 | DType::I64 => self.quad(x.bits),
            DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::F16 | DType::Bf16 => self.word(x.bits as u32),
        };
        let n = if is_wide(x.dtype) { 2 } else { 1 };
        WideVal { constant: Some(x), ..WideVal::new(x.dtype, smallvec![reg; n]) }
    }

    pub(super) fn number(&mut self, x: f64, dtype: DType) -> WideVal {
        self.constant(Scalar::from_f64(x, dtype))
    }

    pub(super) fn map(&mut self, x: &WideVal, f: &mut dyn FnMut(&mut Self, Virtual) -> Virtual) -> WideVal {
        WideVal::new(x.dtype, x.regs.iter().map(|&r| f(self, r)).collect())
    }

    pub(super) fn zip(
        &mut self,
        x: &WideVal,
        y: &WideVal,
        f: &mut dyn FnMut(&mut Self, Virtual, Virtual) -> Virtual,
    ) -> WideVal {
        WideVal::new(x.dtype, x.regs.iter().zip(&y.regs).map(|(&p, &q)| f(self, p, q)).collect())
    }

    /// The value of an instruction that needs no coordinates.
    pub(super) fn apply(&mut self, inst: &Inst<ValueId>, x: &[WideVal]) -> Option<WideVal> {
        match *inst {
            Inst::Const(c) => Some(self.constant(c)),
            Inst::Unary(op, _) => Some(self.unary(op, &x[0])),
            Inst::Binary(op, ..) => self.binary(op, &x[0], &x[1]),
            Inst::Compare(op, ..) => Some(self.compare(op, &x[0], &x[1])),
            Inst::Select(..) => Some(self.select(&x[0], &x[1], &x[2])),
            Inst::Fma(..) => Some(self.fma(&x[0], &x[1], &x[2])),
            Inst::Cast(dtype, _) => self.cast(dtype, &x[0]),
            Inst::Bitcast(dtype, _) if dtype == DType::Bool || x[0].dtype == DType::Bool => self.cast(dtype, &x[0]),
            Inst::Bitcast(dtype, _) => Some(WideVal { dtype, ..WideVal::new(dtype, x[0].regs.clone()) }),
            Inst::LoadAt(..)
            | Inst::Index(_)
            | Inst::Load(..)
            | Inst::Reduce(..)
            | Inst::Call1(..)
            | Inst::Call2(..) => None,
        }
    }

    /// The low byte of each word.
    fn low_byte(&mut self, x: WideVal) -> WideVal {
        let mask = self.word(0xff);
        self.map(&x, &mut |e, r| e.either(ops::and(false), r, mask))
    }

    fn unary(&mut self, op: Unary, x: &WideVal) -> WideVal {
        let (dtype, wide) = (x.dtype, is_wide(x.dtype));
        let sign = if wide { 1 << 63 } else { 1 << 31 };
        match op {
            Unary::Neg if dtype.is_float() => {
                let sign = self.bits(wide, sign);
                self.map(x, &mut |e, r| e.either(ops::xor(wide), r, sign))
            }
            Unary::Abs if dtype.is_float() => {
                let rest = self.bits(wide, !sign);
                self.map(x, &mut |e, r| e.either(ops::and(wide), r, rest))
            }
            Unary::Neg => {
                let zero = self.bits(wide, 0);
                let r = self.map(x, &mut |e, r| e.two(ops::sub_int(wide), zero, r));
                if dtype == DType::U8 { self.low_byte(r) } else { r }
            }
            Unary::Abs if is_unsigned(dtype) => x.clone(),
            Unary::Abs if wide && !self.level.has_masks() => self.map(x, &mut |e, r| {
                let sign = e.sign_of_quads(r);
                let flipped = e.either(ops::xor(true), r, sign);
                e.two(ops::sub_int(true), flipped, sign)
            }),
            Unary::Abs => self.map(x, &mut |e, r| e.one(ops::abs_int(wide), r)),
            Unary::Sqrt => self.map(x, &mut |e, r| e.one(ops::sqrt(wide), r)),
            Unary::Round => self.round(x, 8),
            Unary::Floor => self.round(x, 9),
            Unary::Ceil => self.round(x, 10),
            Unary::Trunc => self.round(x, 11),
            Unary::Not if dtype == DType::Bool && self.level.has_masks() => {
                let to = self.regs.make(RegClass::Mask);
                let x = RegOrMem::Register(RegField::Use(x.regs[0]));
                self.push(Row::of(ops::MASK_NOT, Len::Bits128, RegField::Define(to), x));
                WideVal::new(dtype, smallvec![to])
            }
            Unary::Not => {
                let ones = self.bits(wide, u64::MAX);
                let r = self.map(x, &mut |e, r| e.either(ops::xor(wide), r, ones));
                if dtype == DType::U8 { self.low_byte(r) } else { r }
            }
        }
    }

    /// Rounds as the immediate says, without a flag for results that are not exact.
    pub(super) fn round(&mut self, x: &WideVal, imm: u8) -> WideVal {
        let op = ops::round(is_wide(x.dtype));
        self.map(x, &mut |e, r| e.one_of(op, e.len, r, Some(imm)))
    }

    /// Ones in each 64-bit element that is negative.
    fn sign_of_quads(&mut self, x: Virtual) -> Virtual {
        let zero = self.quad(0);
        self.two(ops::greater_int(true), zero, x)
    }

    pub(super) fn binary(&mut self, op: Binary, x: &WideVal, y: &WideVal) -> Option<WideVal> {
        match x.dtype {
            DType::Bool => Some(self.logic(op, x, y)),
            DType::F32 | DType::F64 => self.float_binary(op, x, y),
            DType::F16 | DType::Bf16 => None,
            DType::I32 | DType::I64 | DType::U32 | DType::U8 => self.int_binary(op, x, y),
        }
    }

    pub(super) fn logic(&mut self, op: Binary, x: &WideVal, y: &WideVal) -> WideVal {
        let (of_masks, of_words) = match op {
            Binary::Or | Binary::Max | Binary::Add => (ops::MASK_OR, ops::or(false)),
            Binary::Xor => (ops::MASK_XOR, ops::xor(false)),
            Binary::And
            | Binary::Min
            | Binary::Mul
            | Binary::Sub
            | Binary::Div
            | Binary::Rem
            | Binary::Shl
            | Binary::Shr
            | Binary::MulHigh => (ops::MASK_AND, ops::and(false)),
        };
        let is_mask = self.regs.class(x.regs[0]) == RegClass::Mask;
        self.zip(x, y, &mut |e, p, q| if is_mask { e.mask_op(of_masks, p, q) } else { e.either(of_words, p, q) })
    }

    fn float_binary(&mut self, op: Binary, x: &WideVal, y: &WideVal) -> Option<WideVal> {
        let wide = is_wide(x.dtype);
        Some(match op {
            Binary::Add => self.zip(x, y, &mut |e, p, q| e.either(ops::add_float(wide), p, q)),
            Binary::Sub => self.zip(x, y, &mut |e, p, q| e.two(ops::sub_float(wide), p, q)),
            Binary::Mul => self.zip(x, y, &mut |e, p, q| e.either(ops::mul_float(wide), p, q)),
            Binary::Div => self.zip(x, y, &mut |e, p, q| e.two(ops::div_float(wide), p, q)),
            Binary::Min | Binary::Max => self.float_min_max(op, x, y),
            Binary::Rem | Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr | Binary::MulHigh => {
                return None;
            }
        })
    }

    /// The machine's minimum, `x < y ? x : y`, or maximum, `x > y ? x : y`.
    pub(super) fn float_chosen(&mut self, op: Binary, x: &WideVal, y: &WideVal) -> WideVal {
        let wide = is_wide(x.dtype);
        let machine = if op == Binary::Max { ops::max_float(wide) } else { ops::min_float(wide) };
        self.zip(x, y, &mut |e, p, q| e.two(machine, p, q))
    }

    /// The machine's instructions give the second operand for NaN and for equal zeros.
    fn float_min_max(&mut self, op: Binary, x: &WideVal, y: &WideVal) -> WideVal {
        let wide = is_wide(x.dtype);
        let machine = if op == Binary::Max { ops::max_float(wide) } else { ops::min_float(wide) };
        for (x, y) in [(x, y), (y, x)] {
            let Some(c) = y.constant.map(Scalar::to_f64).filter(|c| !c.is_nan()) else { continue };
            // The zero that wins over the other one must replace it.
            if c == 0.0 && c.is_sign_negative() == (op == Binary::Min) {
                let below_or_equal = if op == Binary::Max { 0x12 } else { 0x1d };
                let mask = self.float_compare(below_or_equal, x, y);
                return self.select(&mask, y, x);
            }
            return self.zip(y, x, &mut |e, p, q| e.two(machine, p, q));
        }
        // The answers to both orders differ for NaN and for zeros of two signs only. Their union is the minimum: NaN,
        // or -0. Less their difference, which is 0, NaN or the sign of a zero, it is the maximum.
        self.zip(x, y, &mut |e, p, q| {
            let (one, other) = (e.two(machine, p, q), e.two(machine, q, p));
            let union = e.either(ops::or(wide), one, other);
            if op == Binary::Min {
                return union;
            }
            let difference = e.either(ops::xor(wide), one, other);
            e.two(ops::sub_float(wide), union, difference)
        })
    }

    fn int_binary(&mut self, op: Binary, x: &WideVal, y: &WideVal) -> Option<WideVal> {
        let (dtype, wide) = (x.dtype, is_wide(x.dtype));
        let unsigned = is_unsigned(dtype);
        let r = match op {
            Binary::Add => self.zip(x, y, &mut |e, p, q| e.either(ops::add_int(wide), p, q)),
            Binary::Sub => self.zip(x, y, &mut |e, p, q| e.two(ops::sub_int(wide), p, q)),
            Binary::Mul if wide && !self.level.has_masks() => self.zip(x, y, &mut |e, p, q| e.mul_quads(p, q)),
            Binary::Mul => self.zip(x, y, &mut |e, p, q| e.either(ops::mul_low(wide), p, q)),
            Binary::And => self.zip(x, y, &mut |e, p, q| e.either(ops::and(wide), p, q)),
            Binary::Or => self.zip(x, y, &mut |e, p, q| e.either(ops::or(wide), p, q)),
            Binary::Xor => self.zip(x, y, &mut |e, p, q| e.either(ops::xor(wide), p, q)),
            Binary::Min | Binary::Max if wide && !self.level.has_masks() => {
                let (low, high) = if op == Binary::Min { (x, y) } else { (y, x) };
                // Each register has a mask of its own width.
                self.zip(low, high, &mut |e, low, high| {
                    let mask = e.two(ops::greater_int(true), high, low);
                    let (p, q) = if op == Binary::Min { (low, high) } else { (high, low) };
                    e.blend(true, mask, p, q)
                })
            }
            Binary::Min if unsigned => self.zip(x, y, &mut |e, p, q| e.either(ops::MIN_UNSIGNED, p, q)),
            Binary::Max if unsigned => self.zip(x, y, &mut |e, p, q| e.either(ops::MAX_UNSIGNED, p, q)),
            Binary::Min => self.zip(x, y, &mut |e, p, q| e.either(ops::min_signed(wide), p, q)),
            Binary::Max => self.zip(x, y, &mut |e, p, q| e.either(ops::max_signed(wide), p, q)),
            Binary::Shl | Binary::Shr => self.shift(op, x, y),
            Binary::MulHigh => self.zip(x, y, &mut |e, p, q| e.mul_high(p, q)),
            Binary::Div | Binary::Rem => return None,
        };
        let wraps = matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Shl);
        Some(if dtype == DType::U8 && wraps { self.low_byte(r) } else { r })
    }

    /// The low halves of products of 64 bits: that of the low words, and above it the low halves of the mixed ones.
    fn mul_quads(&mut self, x: Virtual, y: Virtual) -> Virtual {
        let [x_high, y_high] = [x, y].map(|r| self.shift_imm(Shift::Right, true, r, 32));
        let low = self.either(ops::MUL_EVEN, x, y);
        let [p, q] = [(x_high, y), (y_high, x)].map(|(high, low)| self.either(ops::MUL_EVEN, high, low));
        let mixed = self.either(ops::add_int(true), p, q);
        let mixed = self.shift_imm(Shift::Left, true, mixed, 32);
        self.either(ops::add_int(true), low, mixed)
    }

    /// The high halves of full products of words: of even ones, and of odd ones.
    fn mul_high(&mut self, x: Virtual, y: Virtual) -> Virtual {
        let even = self.either(ops::MUL_EVEN, x, y);
        let even = self.shift_imm(Shift::Right, true, even, 32);
        let [x, y] = [x, y].map(|r| self.shift_imm(Shift::Right, true, r, 32));
        let odd = self.either(ops::MUL_EVEN, x, y);
        let high = self.quad(0xffff_ffff_0000_0000);
        let odd = self.either(ops::and(true), odd, high);
        self.either(ops::or(true), even, odd)
    }

    pub(super) fn shift_imm(&mut self, shift: Shift, wide: bool, x: Virtual, distance: u8) -> Virtual {
        let (op, digit) = ops::shift_imm(shift, wide);
        let to = self.vector();
        let row = Row::of(op, self.len, RegField::Digit(digit), RegOrMem::Register(RegField::Use(x)));
        self.push(row.v(RegField::Define(to)).imm(distance));
        to
    }

    fn shift(&mut self, op: Binary, x: &WideVal, y: &WideVal) -> WideVal {
        let wide = is_wide(x.dtype);
        let shift = if op == Binary::Shl {
            Shift::Left
        } else if is_unsigned(x.dtype) {
            Shift::Right
        } else {
            Shift::Arithmetic
        };
        let most = 8 * x.dtype.size() as u64 - 1;
        self.zip(x, y, &mut |e, p, q| {
            let by = |e: &mut Self, shift, p| match y.constant {
                Some(c) => e.shift_imm(shift, wide, p, (c.bits & most) as u8),
                None => {
                    let most = e.bits(wide, most);
                    let distance = e.either(ops::and(wide), q, most);
                    e.two(ops::shift_by(shift, wide), p, distance)
                }
            };
            if shift == Shift::Arithmetic && wide && !e.level.has_masks() {
                // Flipped, negative numbers have zeros above.
                let sign = e.sign_of_quads(p);
                let flipped = e.either(ops::xor(true), p, sign);
                let shifted = by(e, Shift::Right, flipped);
                return e.either(ops::xor(true), shifted, sign);
            }
            by(e, shift, p)
        })
    }

    fn float_compare(&mut self, imm: u8, x: &WideVal, y: &WideVal) -> WideVal {
        let op = ops::compare_float(is_wide(x.dtype));
        self.compare_by(x, y, &mut |e, p, q| e.test(op, p, q, Some(imm)))
    }

    /// `op(x, y)` whose result is a mask register with AVX-512.
    pub(super) fn test(&mut self, op: Op, x: Virtual, y: Virtual, imm: Option<u8>) -> Virtual {
        let class = if self.level.has_masks() { RegClass::Mask } else { RegClass::Vector };
        let to = self.regs.make(class);
        let row = Row { imm, ..self.row_of_two(op, to, x, y) };
        self.push(row);
        to
    }

    /// Compares register by register, and joins the masks of two.
    fn compare_by(
        &mut self,
        x: &WideVal,
        y: &WideVal,
        f: &mut dyn FnMut(&mut Self, Virtual, Virtual) -> Virtual,
    ) -> WideVal {
        let parts = self.zip(x, y, f).regs;
        let mask = match (parts.as_slice(), self.level.has_masks()) {
            ([low, high], true) => self.mask_op(ops::MASK_UNPACK, *high, *low),
            ([low, high], false) => self.low_words(*low, *high),
            _ => parts[0],
        };
        WideVal::new(DType::Bool, smallvec![mask])
    }

    pub(super) fn compare(&mut self, op: Compare, x: &WideVal, y: &WideVal) -> WideVal {
        let wide = is_wide(x.dtype);
        let number = match op {
            Compare::Eq => 0,
            Compare::Lt => 1,
            Compare::Le => 2,
            Compare::Ne => 4,
        };
        match x.dtype {
            // Quiet, and false for NaN except for `Ne`.
            DType::F32 | DType::F64 => self.float_compare([0, 0x11, 0x12, 3, 4][number as usize], x, y),
            DType::Bool => self.compare_masks(op, x, y),
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::F16 | DType::Bf16 if self.level.has_masks() => {
                let op = if is_unsigned(x.dtype) { ops::compare_unsigned(wide) } else { ops::compare_signed(wide) };
                self.compare_by(x, y, &mut |e, p, q| e.test(op, p, q, Some(number)))
            }
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::F16 | DType::Bf16 => self.compare_words(op, x, y),
        }
    }

    /// AVX2 has equality and signed order alone.
    fn compare_words(&mut self, op: Compare, x: &WideVal, y: &WideVal) -> WideVal {
        let wide = is_wide(x.dtype);
        let flip = is_unsigned(x.dtype);
        let found = self.compare_by(x, y, &mut |e, p, q| {
            let (p, q) = match op {
                Compare::Eq | Compare::Ne => return e.either(ops::equal_int(wide), p, q),
                Compare::Lt => (q, p),
                Compare::Le => (p, q),
            };
            let sign = e.word(1 << 31);
            let [p, q] = [p, q].map(|r| if flip { e.either(ops::xor(false), r, sign) } else { r });
            e.two(ops::greater_int(wide), p, q)
        });
        match op {
            Compare::Eq | Compare::Lt => found,
            Compare::Ne | Compare::Le => self.unary(Unary::Not, &found),
        }
    }

    fn compare_masks(&mut self, op: Compare, x: &WideVal, y: &WideVal) -> WideVal {
        let is_mask = self.level.has_masks();
        let below = |e: &mut Self, x: &WideVal, y: &WideVal| {
            e.zip(x, y, &mut |e, p, q| match is_mask {
                true => e.mask_op(ops::MASK_AND_NOT, p, q),
                false => e.two(ops::and_not(false), p, q),
            })
        };
        match op {
            Compare::Ne => self.logic(Binary::Xor, x, y),
            Compare::Eq => {
                let differ = self.logic(Binary::Xor, x, y);
                self.unary(Unary::Not, &differ)
            }
            Compare::Lt => below(self, x, y),
            Compare::Le => {
                let above = below(self, y, x);
                self.unary(Unary::Not, &above)
            }
        }
    }

    /// The mask of each register of a value of this dtype.
    pub(super) fn masks(&mut self, c: Virtual, dtype: DType) -> VirtualRegs {
        if !is_wide(dtype) {
            return smallvec![c];
        }
        if self.level.has_masks() {
            let high = self.regs.make(RegClass::Mask);
            let c_used = RegOrMem::Register(RegField::Use(c));
            self.push(Row::of(ops::MASK_SHIFT_RIGHT, Len::Bits128, RegField::Define(high), c_used).imm(8));
            return smallvec![c, high];
        }
        self.quads_of_words(c, ops::WORDS_TO_QUADS_SIGNED)
    }

    /// `p` where a mask of the width of the register is set, else `q`.
    pub(super) fn blend(&mut self, wide: bool, mask: Virtual, p: Virtual, q: Virtual) -> Virtual {
        let to = self.vector();
        let row = match self.regs.class(mask) {
            RegClass::Mask => self.row_of_two(ops::blend_masked(wide), to, q, p).masked(Some(mask), false),
            RegClass::Vector => Row { fourth: Some(mask), ..self.row_of_two(ops::blend_variable(wide), to, q, p) },
        };
        self.push(row);
        to
    }

    /// `if c { x } else { y }`.
    pub(super) fn select(&mut self, c: &WideVal, x: &WideVal, y: &WideVal) -> WideVal {
        let (mask, wide) = (c.regs[0], is_wide(x.dtype));
        if x.dtype == DType::Bool && self.regs.class(mask) == RegClass::Mask {
            let p = self.mask_op(ops::MASK_AND, mask, x.regs[0]);
            let q = self.mask_op(ops::MASK_AND_NOT, mask, y.regs[0]);
            return WideVal::new(DType::Bool, smallvec![self.mask_op(ops::MASK_OR, p, q)]);
        }
        let masks = self.masks(mask, x.dtype);
        let is_zero = |val: &WideVal| val.constant.is_some_and(|c| c.bits == 0);
        // A vector that masks has all bits of a lane or none. Blends share the units of multiplications, logic does not.
        let is_vector = self.regs.class(mask) == RegClass::Vector;
        let (without, with) = (is_vector && is_zero(x), is_vector && is_zero(y));
        let regs = masks.iter().zip(x.regs.iter().zip(&y.regs));
        let regs = regs.map(|(&mask, (&p, &q))| match (without, with) {
            (true, _) => self.two(ops::and_not(wide), mask, q),
            (false, true) => self.either(ops::and(wide), mask, p),
            (false, false) => self.blend(wide, mask, p, q),
        });
        let regs = regs.collect();
        WideVal::new(x.dtype, regs)
    }

    /// `x * y + z`, rounded once.
    fn fma(&mut self, x: &WideVal, y: &WideVal, z: &WideVal) -> WideVal {
        let wide = is_wide(x.dtype);
        let fma = |n: usize| {
            let to = self.vector();
            self.block.push(Code::Fma { wide, to, x: x.regs[n], y: y.regs[n], z: z.regs[n] });
            to
        };
        WideVal::new(x.dtype, (0..x.regs.len()).map(fma).collect())
    }

    /// One step of a reduction.
    pub(super) fn combine(&mut self, op: ReductionOp, x: &WideVal, y: &WideVal) -> Option<WideVal> {
        self.binary(op.binary(), x, y)
    }
}
