//! Loads and stores of elements and vectors.
//!
//! Vectors need no alignment. `bool` bytes are 0 or 1 in memory and masks in vectors.

use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use retape_runtime::DType;
use smallvec::smallvec;

use super::emit::{Emitter, Regs, Val, scalar_type, vector_regs, vector_type};

fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

impl Emitter<'_> {
    /// An address and a displacement that fits the instruction.
    fn place(&mut self, address: Value, bytes: i64) -> (Value, i32) {
        match i32::try_from(bytes) {
            Ok(displacement) => (address, displacement),
            Err(_) => (self.b.ins().iadd_imm_s(address, bytes), 0),
        }
    }

    /// Loads one element.
    pub(super) fn load(&mut self, dtype: DType, address: Value, bytes: i64) -> Val {
        let (address, at) = self.place(address, bytes);
        let value = match dtype {
            DType::U8 => self.b.ins().uload8(types::I32, flags(), address, at),
            DType::F16 | DType::Bf16 => self.b.ins().uload16(types::I32, flags(), address, at),
            DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::Bool => {
                self.b.ins().load(scalar_type(dtype), flags(), address, at)
            }
        };
        Val::scalar(dtype, value)
    }

    /// Stores one element.
    pub(super) fn store(&mut self, value: &Val, address: Value, bytes: i64) {
        let (address, at) = self.place(address, bytes);
        let reg = value.regs[0];
        match value.dtype {
            DType::U8 => self.b.ins().istore8(flags(), reg, address, at),
            DType::F16 | DType::Bf16 => self.b.ins().istore16(flags(), reg, address, at),
            DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::Bool => {
                self.b.ins().store(flags(), reg, address, at)
            }
        };
    }

    /// Loads four neighbours.
    pub(super) fn load_vector(&mut self, dtype: DType, address: Value, bytes: i64) -> Val {
        let (address, at) = self.place(address, bytes);
        let ty = vector_type(dtype);
        let regs: Regs = match dtype.size() {
            1 => {
                let word = self.b.ins().load(types::I32, flags(), address, at);
                let raw = self.b.ins().scalar_to_vector(types::I32X4, word);
                let bytes = self.raw_bitcast(types::I8X16, raw);
                let halves = self.b.ins().uwiden_low(bytes);
                let words = self.b.ins().uwiden_low(halves);
                smallvec![if dtype == DType::Bool { self.b.ins().ineg(words) } else { words }]
            }
            2 => {
                let word = self.b.ins().load(types::I64, flags(), address, at);
                let raw = self.b.ins().scalar_to_vector(types::I64X2, word);
                let halves = self.raw_bitcast(types::I16X8, raw);
                smallvec![self.b.ins().uwiden_low(halves)]
            }
            _ => (0..vector_regs(dtype) as i32).map(|i| self.b.ins().load(ty, flags(), address, at + 16 * i)).collect(),
        };
        Val::vector(dtype, regs)
    }

    /// Stores four neighbours.
    pub(super) fn store_vector(&mut self, value: &Val, address: Value, bytes: i64) {
        let (address, at) = self.place(address, bytes);
        match value.dtype.size() {
            1 => {
                let words = if value.dtype == DType::Bool {
                    let mask = self.mask(value, 1);
                    self.b.ins().ineg(mask.regs[0])
                } else {
                    value.regs[0]
                };
                let halves = self.b.ins().snarrow(words, words);
                let packed = self.b.ins().unarrow(halves, halves);
                let packed = self.raw_bitcast(types::I32X4, packed);
                let word = self.b.ins().extractlane(packed, 0u8);
                self.b.ins().store(flags(), word, address, at);
            }
            2 => {
                let halves = self.b.ins().unarrow(value.regs[0], value.regs[0]);
                let packed = self.raw_bitcast(types::I64X2, halves);
                let word = self.b.ins().extractlane(packed, 0u8);
                self.b.ins().store(flags(), word, address, at);
            }
            _ => {
                for (i, &reg) in value.regs.iter().enumerate() {
                    self.b.ins().store(flags(), reg, address, at + 16 * i as i32);
                }
            }
        }
    }
}
