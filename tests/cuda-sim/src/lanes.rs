//! The registers of one warp, and loops over its 32 lanes.
//!
//! A register is an array over the lanes, so that one dispatch of an instruction is one loop that the compiler
//! vectorises. Registers of up to 32 bits are `narrow`, those of 64 bits are `wide`, a predicate is a mask of lanes.
//! Invariant: a narrow register of 8 or 16 bits has zeros above them.

use crate::fault::Stop;
use crate::types::Ty;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// All lanes.
pub(crate) const ALL: u32 = u32::MAX;

/// Narrow registers that instructions use for intermediate values; they follow the sink, which is register 0.
pub(crate) const SCRATCH: [u16; 3] = [1, 2, 3];

/// The registers of a warp.
#[derive(Default)]
pub(crate) struct Regs {
    pub(crate) narrow: Vec<[u32; LANES]>,
    pub(crate) wide: Vec<[u64; LANES]>,
    pub(crate) preds: Vec<u32>,
    /// For each register, over all kinds, the lanes that have been written.
    pub(crate) written: Vec<u32>,
}

/// Operands of an arithmetic instruction: indices into the files of registers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alu {
    pub(crate) d: u16,
    /// The second destination, a predicate.
    pub(crate) d2: u16,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
    /// The other parameters of the instruction, packed by its decoder.
    pub(crate) extra: u32,
}

/// An arithmetic instruction: computes the lanes of the mask.
pub(crate) type AluFn = fn(&mut Regs, &Alu, u32) -> Result<(), Stop>;

/// A row of the table of arithmetic instructions.
pub(crate) struct Row {
    /// Opcode with the modifiers that matter.
    pub(crate) name: &'static str,
    /// Type of the result.
    pub(crate) to: Ty,
    /// Types of the operands.
    pub(crate) from: &'static [Ty],
    pub(crate) run: AluFn,
}

/// The content of a lane of a register: `u32` or `u64`.
pub(crate) trait Raw: Copy + Default {
    fn get(regs: &Regs, index: u16) -> &[Self; LANES];
    fn get_mut(regs: &mut Regs, index: u16) -> &mut [Self; LANES];
}

impl Raw for u32 {
    #[inline(always)]
    fn get(regs: &Regs, index: u16) -> &[u32; LANES] {
        &regs.narrow[usize::from(index)]
    }

    #[inline(always)]
    fn get_mut(regs: &mut Regs, index: u16) -> &mut [u32; LANES] {
        &mut regs.narrow[usize::from(index)]
    }
}

impl Raw for u64 {
    #[inline(always)]
    fn get(regs: &Regs, index: u16) -> &[u64; LANES] {
        &regs.wide[usize::from(index)]
    }

    #[inline(always)]
    fn get_mut(regs: &mut Regs, index: u16) -> &mut [u64; LANES] {
        &mut regs.wide[usize::from(index)]
    }
}

/// How a type of PTX is read from a register and written to one.
pub(crate) trait Kind {
    type Raw: Raw;
    type Value: Copy;
    fn read(raw: Self::Raw) -> Self::Value;
    fn write(value: Self::Value) -> Self::Raw;
}

/// Copies the lanes of the mask.
#[inline(always)]
pub(crate) fn put<R: Raw>(regs: &mut Regs, index: u16, mask: u32, values: &[R; LANES]) {
    let to = R::get_mut(regs, index);
    if mask == ALL {
        *to = *values;
    } else {
        for lane in 0..LANES {
            to[lane] = if mask >> lane & 1 == 1 { values[lane] } else { to[lane] };
        }
    }
}

/// `d = f(a)` for each lane.
#[inline(always)]
pub(crate) fn map1<A: Kind, D: Kind>(regs: &mut Regs, alu: &Alu, mask: u32, f: impl Fn(A::Value) -> D::Value) {
    let mut out = [D::Raw::default(); LANES];
    let a = A::Raw::get(regs, alu.a);
    for lane in 0..LANES {
        out[lane] = D::write(f(A::read(a[lane])));
    }
    put(regs, alu.d, mask, &out);
}

/// `d = f(a, b)` for each lane.
#[inline(always)]
pub(crate) fn map2<A: Kind, B: Kind, D: Kind>(
    regs: &mut Regs,
    alu: &Alu,
    mask: u32,
    f: impl Fn(A::Value, B::Value) -> D::Value,
) {
    let mut out = [D::Raw::default(); LANES];
    let (a, b) = (A::Raw::get(regs, alu.a), B::Raw::get(regs, alu.b));
    for lane in 0..LANES {
        out[lane] = D::write(f(A::read(a[lane]), B::read(b[lane])));
    }
    put(regs, alu.d, mask, &out);
}

/// `d = f(a, b, c)` for each lane.
#[inline(always)]
pub(crate) fn map3<A: Kind, B: Kind, C: Kind, D: Kind>(
    regs: &mut Regs,
    alu: &Alu,
    mask: u32,
    f: impl Fn(A::Value, B::Value, C::Value) -> D::Value,
) {
    let mut out = [D::Raw::default(); LANES];
    let (a, b, c) = (A::Raw::get(regs, alu.a), B::Raw::get(regs, alu.b), C::Raw::get(regs, alu.c));
    for lane in 0..LANES {
        out[lane] = D::write(f(A::read(a[lane]), B::read(b[lane]), C::read(c[lane])));
    }
    put(regs, alu.d, mask, &out);
}

/// The lanes of a mask, in ascending order.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

/// Declares kinds whose values are plain casts of the raw bits.
macro_rules! kinds {
    ($($name:ident: $raw:ty, $value:ty, |$r:ident| $read:expr, |$v:ident| $write:expr;)*) => { $(
        #[doc = concat!("The type `", stringify!($name), "`.")]
        pub(crate) struct $name;
        impl Kind for $name {
            type Raw = $raw;
            type Value = $value;
            #[inline(always)]
            fn read($r: $raw) -> $value {
                $read
            }
            #[inline(always)]
            fn write($v: $value) -> $raw {
                $write
            }
        }
    )* };
}

kinds! {
    B16: u32, u16, |r| r as u16, |v| u32::from(v);
    B32: u32, u32, |r| r, |v| v;
    B64: u64, u64, |r| r, |v| v;
    U16: u32, u16, |r| r as u16, |v| u32::from(v);
    U32: u32, u32, |r| r, |v| v;
    U64: u64, u64, |r| r, |v| v;
    S16: u32, i16, |r| r as i16, |v| u32::from(v as u16);
    S32: u32, i32, |r| r as i32, |v| v as u32;
    S64: u64, i64, |r| r as i64, |v| v as u64;
    F32: u32, f32, |r| f32::from_bits(r), |v| if v.is_nan() { 0x7fff_ffff } else { v.to_bits() };
    F64: u64, f64, |r| f64::from_bits(r), |v| v.to_bits();
    F16: u32, f32, |r| crate::round::from_f16(r as u16), |v| u32::from(crate::round::to_f16(v));
    Bf16: u32, f32, |r| crate::round::from_bf16(r as u16), |v| u32::from(crate::round::to_bf16(v));
    F16x2: u32, [f32; 2], |r| [crate::round::from_f16(r as u16), crate::round::from_f16((r >> 16) as u16)],
        |v| u32::from(crate::round::to_f16(v[0])) | u32::from(crate::round::to_f16(v[1])) << 16;
    Bf16x2: u32, [f32; 2], |r| [crate::round::from_bf16(r as u16), crate::round::from_bf16((r >> 16) as u16)],
        |v| u32::from(crate::round::to_bf16(v[0])) | u32::from(crate::round::to_bf16(v[1])) << 16;
}

/// Rows of one, two or three operands: `"name" Kind, Kind => Kind |a, b| value;`.
macro_rules! rows {
    (@map $alu:ident $regs:ident $mask:ident, $to:ident, |$a:ident| $value:expr, $ka:ident) => {
        $crate::lanes::map1::<$ka, $to>($regs, $alu, $mask, |$a| $value)
    };
    (@map $alu:ident $regs:ident $mask:ident, $to:ident, |$a:ident, $b:ident| $value:expr, $ka:ident $kb:ident) => {
        $crate::lanes::map2::<$ka, $kb, $to>($regs, $alu, $mask, |$a, $b| $value)
    };
    (@map $alu:ident $regs:ident $mask:ident, $to:ident, |$a:ident, $b:ident, $c:ident| $value:expr,
        $ka:ident $kb:ident $kc:ident) => {
        $crate::lanes::map3::<$ka, $kb, $kc, $to>($regs, $alu, $mask, |$a, $b, $c| $value)
    };
    ($($name:literal $($from:ident),+ => $to:ident |$($arg:ident),+| $value:expr;)*) => {
        &[$($crate::lanes::Row {
            name: $name,
            to: $crate::types::Ty::$to,
            from: &[$($crate::types::Ty::$from),+],
            run: |regs, alu, mask| {
                rows!(@map alu regs mask, $to, |$($arg),+| $value, $($from)+);
                Ok(())
            },
        }),*]
    };
}
pub(crate) use rows;
