//! The flag that code raises when it stores NaN or an infinity.
//!
//! `0 x` is a zero for every finite number, and NaN for the others; so is `x - x`. Sums of these over all stores of a
//! function are kept in registers: one fused instruction per stored vector, or two where the machine has none. A sum
//! that is NaN at the end raises the flag. The stored values do not change.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use retape_runtime::DType;

use super::emit::{Emitter, Kind, NonFiniteFlag, Val};

/// Sums of one type: as many as an instruction takes cycles, so that stores which follow each other need not wait.
const SUMS: usize = 4;

impl Emitter<'_> {
    /// Begins to watch what is stored; called where the function begins.
    pub(super) fn watch_stores(&mut self) {
        let mut kinds = vec![];
        for ty in [types::F32X4, types::F64X2, types::F32, types::F64, types::I32X4, types::I64] {
            let zero = match ty {
                types::F32 => self.b.ins().f32const(0.0),
                types::F64 => self.b.ins().f64const(0.0),
                types::I64 => self.int(0),
                _ => {
                    let zero = self.vconst_i32([0; 4]);
                    if ty == types::I32X4 { zero } else { self.raw_bitcast(ty, zero) }
                }
            };
            // Unused ones leave no trace in the code.
            let n_sums = if ty.is_vector() && ty.lane_type().is_float() { SUMS } else { 1 };
            let mut sums = vec![];
            for _ in 0..n_sums {
                let sum = self.b.declare_var(ty);
                self.b.def_var(sum, zero);
                sums.push(sum);
            }
            kinds.push(Kind { ty, sums, zero, n_stores: 0 });
        }
        self.nonfinite = Some(NonFiniteFlag { kinds });
    }

    /// Notes whether a value that is about to be stored is finite.
    pub(super) fn record_nonfinite(&mut self, value: &Val) {
        let exponent = match value.dtype {
            DType::F32 | DType::F64 => None,
            DType::F16 => Some(0x7c00),
            DType::Bf16 => Some(0x7f80),
            DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => return,
        };
        for &reg in &value.regs {
            let of_register = self.b.func.dfg.value_type(reg);
            let ty = if of_register == types::I32 { types::I64 } else { of_register };
            let Some(nonfinite) = &mut self.nonfinite else { return };
            let Some(kind) = nonfinite.kinds.iter_mut().find(|kind| kind.ty == ty) else { continue };
            let (sum, zero) = (kind.sums[kind.n_stores % kind.sums.len()], kind.zero);
            kind.n_stores += 1;
            let before = self.b.use_var(sum);
            let after = match exponent {
                Some(exponent) => {
                    let full = self.is_full(reg, exponent, value.vector);
                    self.b.ins().bor(before, full)
                }
                None if self.features.fma => self.b.ins().fma(reg, zero, before),
                None => {
                    let difference = self.b.ins().fsub(reg, reg);
                    self.b.ins().fadd(before, difference)
                }
            };
            self.b.def_var(sum, after);
        }
    }

    /// Not zero if the exponent of a 16-bit float in a 32-bit register is all ones.
    fn is_full(&mut self, reg: Value, exponent: i32, vector: bool) -> Value {
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
        let Some(nonfinite) = self.nonfinite.take() else { return };
        let mut any = None;
        for kind in nonfinite.kinds {
            for sum in kind.sums.into_iter().take(kind.n_stores) {
                let sum = self.b.use_var(sum);
                let raised = match (kind.ty.is_vector(), kind.ty.lane_type().is_float()) {
                    (true, true) => {
                        let nan = self.b.ins().fcmp(FloatCC::Unordered, sum, sum);
                        self.b.ins().vany_true(nan)
                    }
                    (true, false) => self.b.ins().vany_true(sum),
                    (false, true) => self.b.ins().fcmp(FloatCC::Unordered, sum, sum),
                    (false, false) => self.b.ins().icmp_imm_s(IntCC::NotEqual, sum, 0),
                };
                any = Some(any.map_or(raised, |any| self.b.ins().bor(any, raised)));
            }
        }
        // Nothing that is stored is a float.
        let Some(any) = any else { return };
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
