//! Comparisons, ordered and unordered, and the predicates they are combined with.

use crate::decode::Result;
use crate::lanes::{
    Alu, AluFn, B16, B32, B64, Bf16, F16, F32, F64, Kind, LANES, Raw, Regs, S16, S32, S64, U16, U32, U64,
};
use crate::types::Ty;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// True for NaN.
    EqU,
    NeU,
    LtU,
    LeU,
    GtU,
    GeU,
    /// Neither is NaN.
    Num,
    Nan,
}

/// Comparisons by name; `lo`, `ls`, `hi`, `hs` are those of unsigned numbers.
const NAMES: [(&str, Compare); 18] = [
    ("eq", Compare::Eq),
    ("ne", Compare::Ne),
    ("lt", Compare::Lt),
    ("le", Compare::Le),
    ("gt", Compare::Gt),
    ("ge", Compare::Ge),
    ("lo", Compare::Lt),
    ("ls", Compare::Le),
    ("hi", Compare::Gt),
    ("hs", Compare::Ge),
    ("equ", Compare::EqU),
    ("neu", Compare::NeU),
    ("ltu", Compare::LtU),
    ("leu", Compare::LeU),
    ("gtu", Compare::GtU),
    ("geu", Compare::GeU),
    ("num", Compare::Num),
    ("nan", Compare::Nan),
];

/// How the result of a comparison meets a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    None,
    And,
    Or,
    Xor,
}

impl Compare {
    /// The comparison of this name.
    pub(crate) fn parse(name: &str) -> Option<Compare> {
        NAMES.iter().find(|(own, _)| *own == name).map(|(_, compare)| *compare)
    }

    fn is_of_floats(self) -> bool {
        use Compare::*;
        !matches!(self, Eq | Ne | Lt | Le | Gt | Ge)
    }
}

/// Comparison, combination and negation as `Alu::extra`.
pub(crate) fn pack(compare: Compare, combine: Combine, negated: bool) -> u32 {
    compare as u32 | (combine as u32) << 8 | u32::from(negated) << 16
}

/// The instruction that compares values of this type.
pub(crate) fn setp(ty: Ty, compare: Compare) -> Result<AluFn> {
    if !ty.is_float() && compare.is_of_floats() || ty.is_untyped() && !matches!(compare, Compare::Eq | Compare::Ne) {
        return Err(format!("this comparison is not one of .{}", ty.name()));
    }
    Ok(match ty {
        Ty::B16 => run::<B16>,
        Ty::B32 => run::<B32>,
        Ty::B64 => run::<B64>,
        Ty::U16 => run::<U16>,
        Ty::U32 => run::<U32>,
        Ty::U64 => run::<U64>,
        Ty::S16 => run::<S16>,
        Ty::S32 => run::<S32>,
        Ty::S64 => run::<S64>,
        Ty::F16 => run::<F16>,
        Ty::Bf16 => run::<Bf16>,
        Ty::F32 => run::<F32>,
        Ty::F64 => run::<F64>,
        _ => return Err(format!("values of .{} are not compared", ty.name())),
    })
}

/// Compares, combines and writes both predicates.
fn run<K: Kind>(regs: &mut Regs, alu: &Alu, mask: u32) -> std::result::Result<(), crate::fault::Stop>
where
    K::Value: PartialOrd,
{
    let holds = compare::<K>(regs, alu);
    let negation = if alu.extra >> 16 & 1 == 1 { u32::MAX } else { 0 };
    let with = regs.preds[usize::from(alu.c)] ^ negation;
    let (first, second) = match alu.extra >> 8 & 0xff {
        0 => (holds, !holds),
        1 => (holds & with, !holds & with),
        2 => (holds | with, !holds | with),
        _ => (holds ^ with, !holds ^ with),
    };
    // The second may be the sink, which is also where `set` looks for the first.
    for (to, value) in [(alu.d2, second), (alu.d, first)] {
        let to = &mut regs.preds[usize::from(to)];
        *to = *to & !mask | value & mask;
    }
    Ok(())
}

/// The lanes where the comparison holds.
fn compare<K: Kind>(regs: &Regs, alu: &Alu) -> u32
where
    K::Value: PartialOrd,
{
    #[inline(always)]
    fn lanes<K: Kind>(regs: &Regs, alu: &Alu, f: impl Fn(K::Value, K::Value) -> bool) -> u32 {
        let (a, b) = (K::Raw::get(regs, alu.a), K::Raw::get(regs, alu.b));
        let mut holds = [0_u8; LANES];
        for lane in 0..LANES {
            holds[lane] = u8::from(f(K::read(a[lane]), K::read(b[lane])));
        }
        // Eight bytes of zero or one to eight bits: the product brings each to its place in the upper byte.
        let (eights, _) = holds.as_chunks::<8>();
        let pack = |eight: &[u8; 8]| (u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32;
        eights.iter().rev().fold(0, |bits, eight| bits << 8 | pack(eight))
    }
    let is_unordered = |a: K::Value, b: K::Value| !(a <= b || a > b);
    const LAST: u32 = Compare::Nan as u32;
    match alu.extra & 0xff {
        0 => lanes::<K>(regs, alu, |a, b| a == b),
        1 => lanes::<K>(regs, alu, |a, b| a != b && !is_unordered(a, b)),
        2 => lanes::<K>(regs, alu, |a, b| a < b),
        3 => lanes::<K>(regs, alu, |a, b| a <= b),
        4 => lanes::<K>(regs, alu, |a, b| a > b),
        5 => lanes::<K>(regs, alu, |a, b| a >= b),
        6 => lanes::<K>(regs, alu, |a, b| a == b || is_unordered(a, b)),
        7 => lanes::<K>(regs, alu, |a, b| a != b),
        8 => lanes::<K>(regs, alu, |a, b| a < b || is_unordered(a, b)),
        9 => lanes::<K>(regs, alu, |a, b| a <= b || is_unordered(a, b)),
        10 => lanes::<K>(regs, alu, |a, b| a > b || is_unordered(a, b)),
        11 => lanes::<K>(regs, alu, |a, b| a >= b || is_unordered(a, b)),
        LAST => lanes::<K>(regs, alu, is_unordered),
        _ => lanes::<K>(regs, alu, |a, b| !is_unordered(a, b)),
    }
}
