//! The types of PTX: the content of a register and how an instruction reads it.

/// A type of an instruction, register, parameter or array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    /// One bit.
    Pred,
    /// Untyped, 8 bits.
    B8,
    /// Untyped, 16 bits.
    B16,
    /// Untyped, 32 bits.
    B32,
    /// Untyped, 64 bits.
    B64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 8 bits.
    S8,
    /// Signed, 16 bits.
    S16,
    /// Signed, 32 bits.
    S32,
    /// Signed, 64 bits.
    S64,
    /// Half precision.
    F16,
    /// Two halves in 32 bits.
    F16x2,
    /// The upper half of a single.
    Bf16,
    /// Two of them in 32 bits.
    Bf16x2,
    /// A single with ten bits of fraction; lives in a 32-bit register.
    Tf32,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// All types with the names that they have behind a dot.
const NAMES: [(&str, Ty); 20] = [
    ("pred", Ty::Pred),
    ("b8", Ty::B8),
    ("b16", Ty::B16),
    ("b32", Ty::B32),
    ("b64", Ty::B64),
    ("u8", Ty::U8),
    ("u16", Ty::U16),
    ("u32", Ty::U32),
    ("u64", Ty::U64),
    ("s8", Ty::S8),
    ("s16", Ty::S16),
    ("s32", Ty::S32),
    ("s64", Ty::S64),
    ("f16", Ty::F16),
    ("f16x2", Ty::F16x2),
    ("bf16", Ty::Bf16),
    ("bf16x2", Ty::Bf16x2),
    ("tf32", Ty::Tf32),
    ("f32", Ty::F32),
    ("f64", Ty::F64),
];

impl Ty {
    /// The type of this name, which comes without its dot.
    pub(crate) fn parse(name: &str) -> Option<Ty> {
        NAMES.iter().find(|(own, _)| *own == name).map(|(_, ty)| *ty)
    }

    /// The name without its dot.
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, ty)| *ty == self).map_or("", |(name, _)| name)
    }

    /// Bytes in memory; a predicate has none, and counts as one.
    pub(crate) fn size(self) -> usize {
        match self {
            Ty::Pred | Ty::B8 | Ty::U8 | Ty::S8 => 1,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 => 2,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32 => 4,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 8,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        use Ty::*;
        matches!(self, F16 | F16x2 | Bf16 | Bf16x2 | Tf32 | F32 | F64)
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    pub(crate) fn is_untyped(self) -> bool {
        matches!(self, Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64)
    }

    /// Whether a register declared as `self` may stand where an instruction of type `wanted` reads or writes.
    pub(crate) fn agrees(self, wanted: Ty) -> bool {
        let same_kind = self.is_untyped() || wanted.is_untyped() || self.is_float() == wanted.is_float();
        match (self, wanted) {
            (Ty::Pred, _) | (_, Ty::Pred) => self == wanted,
            // Packed pairs, tf32 and bf16 have no registers of their own kind.
            (_, Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32) => self.size() == 4,
            (_, Ty::Bf16) => self.size() == 2,
            _ => self.size() == wanted.size() && same_kind,
        }
    }
}
