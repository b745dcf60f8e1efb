//! The flag that code raises when it stores NaN or an infinity.
//!
//! `x - x` is +0 for every finite number, and NaN for the others. The bits of these differences are collected with
//! *or* over all stores of a function, in registers: two instructions per stored vector. At the end one branch
//! stores the flag. What is stored stays as it is.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::Variable;
use retape_runtime::DType;

use super::emit::{Emitter, Val};

/// Bits that are zero as long as everything stored was finite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// Of vectors.
    lanes: Variable,
    /// Of elements.
    word: Variable,
}

impl Emitter<'_> {
    /// Begins to watch what is stored.
    pub(super) fn watch_stores(&mut self) {
        let (lanes, word) = (self.b.declare_var(types::I32X4), self.b.declare_var(types::I64));
        let none = self.vconst_i32([0; 4]);
        self.b.def_var(lanes, none);
        let none = self.int(0);
        self.b.def_var(word, none);
        self.watch = Some(Watch { lanes, word });
    }

    /// Notes whether a value that is about to be stored is finite.
    pub(super) fn watch(&mut self, value: &Val) {
        let Some(watch) = self.watch else { return };
        let exponent = match value.dtype {
            DType::F32 | DType::F64 => None,
            DType::F16 => Some(0x7c00),
            DType::Bf16 => Some(0x7f80),
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => return,
        };
        for &reg in &value.regs {
            let bits = match (exponent, value.vector) {
                (Some(exponent), _) => self.half_bits(reg, exponent, value.vector),
                (None, true) => {
                    let difference = self.b.ins().fsub(reg, reg);
                    self.raw_bitcast(types::I32X4, difference)
                }
                (None, false) => {
                    let difference = self.b.ins().fsub(reg, reg);
                    match value.dtype {
                        DType::F64 => self.raw_bitcast(types::I64, difference),
                        _ => {
                            let bits = self.raw_bitcast(types::I32, difference);
                            self.b.ins().uextend(types::I64, bits)
                        }
                    }
                }
            };
            let kept = if value.vector { watch.lanes } else { watch.word };
            let before = self.b.use_var(kept);
            let both = self.b.ins().bor(before, bits);
            self.b.def_var(kept, both);
        }
    }

    /// Not zero if the exponent of a 16-bit float in a 32-bit register is all ones.
    fn half_bits(&mut self, reg: Value, exponent: i32, vector: bool) -> Value {
        if vector {
            let mask = self.vconst_i32([exponent; 4]);
            let masked = self.b.ins().band(reg, mask);
            return self.b.ins().icmp(IntCC::Equal, masked, mask);
        }
        let masked = self.b.ins().band_imm_u(reg, i64::from(exponent));
        let full = self.b.ins().icmp_imm_s(IntCC::Equal, masked, i64::from(exponent));
        self.b.ins().uextend(types::I64, full)
    }

    /// Stores 1 behind the first pointer of the table if something stored was not finite.
    pub(super) fn raise_flag(&mut self, table: Value) {
        let Some(watch) = self.watch else { return };
        let (lanes, word) = (self.b.use_var(watch.lanes), self.b.use_var(watch.word));
        let lanes = self.b.ins().vany_true(lanes);
        let word = self.b.ins().icmp_imm_s(IntCC::NotEqual, word, 0);
        let any = self.b.ins().bor(lanes, word);
        let (raise, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(any, raise, &[], done, &[]);
        self.b.switch_to_block(raise);
        let trusted = MemFlagsData::trusted();
        let flag = self.b.ins().load(types::I64, trusted, table, 0);
        let one = self.b.ins().iconst(types::I32, 1);
        // Tasks of one launch run on many threads and may all raise the flag.
        self.b.ins().atomic_store(trusted, one, flag);
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(done);
    }
}
