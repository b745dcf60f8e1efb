//! Functions that generated code calls.
//!
//! Invariant: `address` gives functions of the C calling convention whose parameters and results are those that
//! `signature` declares.

use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, FuncRef, LibCall, Signature, Type, UserExternalName, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;
use retape_runtime::{DType, Element, bf16, f16};

/// A function of this crate that generated code calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lib {
    /// C's `fmod` in single precision.
    FmodF32,
    /// C's `fmod`.
    FmodF64,
    /// Half precision bits to `f32`.
    F16ToF32,
    /// Brain float bits to `f32`.
    Bf16ToF32,
    /// The nearest half precision bits.
    F64ToF16,
    /// The nearest brain float bits.
    F64ToBf16,
    /// The nearest half precision bits.
    I64ToF16,
    /// The nearest brain float bits.
    I64ToBf16,
}

const ALL: [Lib; 8] = [
    Lib::FmodF32,
    Lib::FmodF64,
    Lib::F16ToF32,
    Lib::Bf16ToF32,
    Lib::F64ToF16,
    Lib::F64ToBf16,
    Lib::I64ToF16,
    Lib::I64ToBf16,
];

/// The functions imported so far into the function under construction.
#[derive(Default)]
pub(super) struct Libs([Option<FuncRef>; ALL.len()]);

impl Lib {
    fn types(self) -> (&'static [Type], Type) {
        match self {
            Lib::FmodF32 => (&[types::F32, types::F32], types::F32),
            Lib::FmodF64 => (&[types::F64, types::F64], types::F64),
            Lib::F16ToF32 | Lib::Bf16ToF32 => (&[types::I32], types::F32),
            Lib::F64ToF16 | Lib::F64ToBf16 => (&[types::F64], types::I32),
            Lib::I64ToF16 | Lib::I64ToBf16 => (&[types::I64], types::I32),
        }
    }

    fn address(self) -> usize {
        match self {
            Lib::FmodF32 => fmod_f32 as *const () as usize,
            Lib::FmodF64 => fmod_f64 as *const () as usize,
            Lib::F16ToF32 => f16_to_f32 as *const () as usize,
            Lib::Bf16ToF32 => bf16_to_f32 as *const () as usize,
            Lib::F64ToF16 => f64_to_f16 as *const () as usize,
            Lib::F64ToBf16 => f64_to_bf16 as *const () as usize,
            Lib::I64ToF16 => i64_to_f16 as *const () as usize,
            Lib::I64ToBf16 => i64_to_bf16 as *const () as usize,
        }
    }
}

impl Libs {
    /// A reference to a function, which is imported into the one under construction when it is first called.
    pub(super) fn imported(&mut self, b: &mut FunctionBuilder<'_>, lib: Lib) -> FuncRef {
        *self.0[lib as usize].get_or_insert_with(|| import(b, lib))
    }
}

fn import(b: &mut FunctionBuilder<'_>, lib: Lib) -> FuncRef {
    let call_conv = b.func.signature.call_conv;
    let name = b.func.declare_imported_user_function(UserExternalName { namespace: 0, index: lib as u32 });
    let signature = b.import_signature(signature(lib, call_conv));
    let name = ExternalName::User(name);
    b.import_function(ExtFuncData { name, signature, colocated: false, patchable: false })
}

fn signature(lib: Lib, call_conv: CallConv) -> Signature {
    let (params, result) = lib.types();
    let mut signature = Signature::new(call_conv);
    signature.params.extend(params.iter().map(|&ty| AbiParam::new(ty)));
    signature.returns.push(AbiParam::new(result));
    signature
}

/// The address of an imported function.
pub(super) fn address(index: u32) -> Option<usize> {
    ALL.get(index as usize).map(|lib| lib.address())
}

/// The address of a function that Cranelift itself calls where the machine lacks an instruction.
#[expect(clippy::wildcard_enum_match_arm, reason = "of the functions of another crate, only these are ever called")]
pub(super) fn libcall_address(libcall: LibCall) -> Option<usize> {
    Some(match libcall {
        LibCall::CeilF32 => ceil_f32 as *const () as usize,
        LibCall::CeilF64 => ceil_f64 as *const () as usize,
        LibCall::FloorF32 => floor_f32 as *const () as usize,
        LibCall::FloorF64 => floor_f64 as *const () as usize,
        LibCall::TruncF32 => trunc_f32 as *const () as usize,
        LibCall::TruncF64 => trunc_f64 as *const () as usize,
        LibCall::NearestF32 => nearest_f32 as *const () as usize,
        LibCall::NearestF64 => nearest_f64 as *const () as usize,
        LibCall::FmaF32 => fma_f32 as *const () as usize,
        LibCall::FmaF64 => fma_f64 as *const () as usize,
        _ => return None,
    })
}

macro_rules! functions {
    ($($name:ident($($x:ident: $t:ty),*) -> $r:ty = $body:expr;)*) => {$(
        extern "C" fn $name($($x: $t),*) -> $r {
            $body
        }
    )*};
}

functions! {
    fmod_f32(x: f32, y: f32) -> f32 = x % y;
    fmod_f64(x: f64, y: f64) -> f64 = x % y;
    f16_to_f32(x: u32) -> f32 = f16::from_bits(x as u16).to_f32();
    bf16_to_f32(x: u32) -> f32 = bf16::from_bits(x as u16).to_f32();
    f64_to_f16(x: f64) -> u32 = x.to_scalar().cast(DType::F16).bits as u32;
    f64_to_bf16(x: f64) -> u32 = x.to_scalar().cast(DType::Bf16).bits as u32;
    i64_to_f16(x: i64) -> u32 = x.to_scalar().cast(DType::F16).bits as u32;
    i64_to_bf16(x: i64) -> u32 = x.to_scalar().cast(DType::Bf16).bits as u32;
    ceil_f32(x: f32) -> f32 = x.ceil();
    ceil_f64(x: f64) -> f64 = x.ceil();
    floor_f32(x: f32) -> f32 = x.floor();
    floor_f64(x: f64) -> f64 = x.floor();
    trunc_f32(x: f32) -> f32 = x.trunc();
    trunc_f64(x: f64) -> f64 = x.trunc();
    nearest_f32(x: f32) -> f32 = x.round_ties_even();
    nearest_f64(x: f64) -> f64 = x.round_ties_even();
    fma_f32(x: f32, y: f32, z: f32) -> f32 = x.mul_add(y, z);
    fma_f64(x: f64, y: f64, z: f64) -> f64 = x.mul_add(y, z);
}
