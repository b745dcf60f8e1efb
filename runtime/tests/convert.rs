//! Conversions of numbers against exact comparisons: with the values of a format on both sides, and with integers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape_runtime::{DType, Element, Scalar, bf16, f16};

/// A format of 16 bits, said by its definition.
struct Format {
    dtype: DType,
    fraction: i32,
    bias: i32,
}

const FORMATS: [Format; 2] =
    [Format { dtype: DType::F16, fraction: 10, bias: 15 }, Format { dtype: DType::Bf16, fraction: 7, bias: 127 }];

impl Format {
    /// The bits of infinity.
    fn infinity(&self) -> u64 {
        0x7fff >> self.fraction << self.fraction
    }

    /// The value of the bits, exactly; of infinity what the next finite value would be.
    fn value(&self, bits: u64) -> f64 {
        let (exponent, fraction) = ((bits >> self.fraction) as i32, (bits & ((1 << self.fraction) - 1)) as f64);
        let unit = 2.0_f64.powi(exponent.max(1) - self.bias - self.fraction);
        let leading = if exponent > 0 { f64::from(1 << self.fraction) } else { 0.0 };
        (leading + fraction) * unit
    }

    /// The bits that a number rounds to.
    fn round(&self, x: impl Element) -> u64 {
        let rounded = x.to_scalar().cast(self.dtype);
        assert_eq!(rounded.dtype, self.dtype);
        rounded.bits
    }

    /// Calls `see` with each value that is not the last, the middle between it and the next, and their bits.
    fn each(&self, mut see: impl FnMut(u64, f64, f64)) {
        for bits in 0..self.infinity() {
            let (value, next) = (self.value(bits), self.value(bits + 1));
            let middle = value + (next - value) / 2.0;
            assert!(value < middle && middle < next && middle - value == next - middle, "{bits}");
            see(bits, value, middle);
        }
    }
}

#[test]
fn doubles_round_to_the_nearest_half() {
    for format in &FORMATS {
        format.each(|bits, value, middle| {
            let even = bits + (bits & 1);
            let expected = [(value, bits), (middle.next_down(), bits), (middle, even), (middle.next_up(), bits + 1)];
            for (x, expected) in expected {
                assert_eq!(format.round(x), expected, "{x:e} as {}", format.dtype);
                assert_eq!(format.round(-x), expected | 0x8000, "-{x:e} as {}", format.dtype);
                let from_f64 = Scalar::from_f64(x, format.dtype);
                assert_eq!(from_f64.bits, expected, "{x:e} as {}", format.dtype);
            }
            // Every middle is an `f32` as well.
            let single = middle as f32;
            assert_eq!(f64::from(single), middle);
            for (x, expected) in [(single.next_down(), bits), (single, even), (single.next_up(), bits + 1)] {
                assert_eq!(format.round(x), expected, "{x:e} as {}", format.dtype);
            }
        });
        for (x, expected) in [(f64::MAX, format.infinity()), (f64::INFINITY, format.infinity()), (5e-324, 0)] {
            assert_eq!([format.round(x), format.round(-x)], [expected, expected | 0x8000]);
        }
        assert_eq!([format.round(0.0), format.round(-0.0)], [0, 0x8000]);
        for nan in [f64::NAN, -f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001)] {
            assert!(format.round(nan) & 0x7fff > format.infinity());
            assert!(Scalar::from_f64(nan, format.dtype).to_f64().is_nan());
        }
    }
}

/// Middles between values that are whole numbers, and the whole numbers beside them: no `f64` can tell most of these.
#[test]
fn integers_round_to_the_nearest_half() {
    let mut seen = 0;
    for format in &FORMATS {
        format.each(|bits, value, middle| {
            if middle.fract() != 0.0 || middle >= 2.0_f64.powi(63) {
                return;
            }
            seen += 1;
            let (middle, even) = (middle as i64, bits + (bits & 1));
            for (x, expected) in [(middle - 1, bits), (middle, even), (middle + 1, bits + 1)] {
                // Beside a middle of 1/2 lies the next value.
                let expected = if (x as f64) == value { bits } else { expected };
                assert_eq!(format.round(x), expected, "{x} as {}", format.dtype);
                assert_eq!(format.round(-x), if x == 0 { 0 } else { expected | 0x8000 }, "-{x} as {}", format.dtype);
                if let Ok(x) = i32::try_from(x) {
                    assert_eq!(format.round(x), expected);
                }
                if let Ok(x) = u32::try_from(x) {
                    assert_eq!(format.round(x), expected);
                }
            }
        });
        let [least, most] = [format.round(i64::MIN), format.round(i64::MAX)];
        assert_eq!(least, most | 0x8000);
        assert_eq!(format.round(2.0_f64.powi(63)), most);
    }
    assert!(seen > 8000, "{seen}");
}

#[test]
fn all_halves_are_exact_in_wider_floats_and_truncate_to_integers() {
    for format in &FORMATS {
        format.each(|bits, value, _| {
            for (bits, value) in [(bits, value), (bits | 0x8000, -value)] {
                let x = Scalar { dtype: format.dtype, bits };
                assert_eq!(x.to_f64().to_bits(), value.to_bits());
                assert_eq!(x.cast(DType::F32), (value as f32).to_scalar());
                assert_eq!(x.cast(DType::I64), (value as i64).to_scalar());
                assert_eq!(x.cast(DType::I32), (value as i32).to_scalar());
                assert_eq!(x.cast(DType::U32), (value as u32).to_scalar());
                assert_eq!(x.cast(DType::U8), (value as u8).to_scalar());
                assert_eq!(x.cast(DType::Bool), (value != 0.0).to_scalar());
            }
        });
    }
}

/// An integer beside the middle of two `f32` goes to the nearer one, which the way by `f64` would miss.
#[test]
fn integers_round_once_to_wider_floats() {
    let tie = (1_i64 << 60) + (1 << 36);
    let single = |x: i64| x.to_scalar().cast(DType::F32).to_f64();
    assert_eq!(
        [single(tie - 1), single(tie), single(tie + 1)],
        [60, 60, 37].map(|n| match n {
            60 => 2.0_f64.powi(60),
            _ => 2.0_f64.powi(60) + 2.0_f64.powi(n),
        })
    );
    assert_eq!(u32::MAX.to_scalar().cast(DType::F32), 4_294_967_296.0_f32.to_scalar());
}

/// A number becomes an element exactly or not at all, if it is not rounded to a float.
#[test]
fn numbers_become_elements_or_not() {
    let two63 = 9_223_372_036_854_775_808.0_f64;
    for (x, dtype, expected) in [
        (0.5.to_scalar(), DType::I32, None),
        ((-1.0).to_scalar(), DType::U8, None),
        ((-1).to_scalar(), DType::U32, None),
        (255.to_scalar(), DType::U8, Some(255_u8.to_scalar())),
        (256.to_scalar(), DType::U8, None),
        (1e30.to_scalar(), DType::I32, None),
        (f64::NAN.to_scalar(), DType::I64, None),
        (f64::INFINITY.to_scalar(), DType::I64, None),
        (two63.to_scalar(), DType::I64, None),
        ((two63 as f32).to_scalar(), DType::I64, None),
        ((-two63).to_scalar(), DType::I64, Some(i64::MIN.to_scalar())),
        (two63.next_down().to_scalar(), DType::I64, Some((i64::MAX - 1023).to_scalar())),
        (i64::MAX.to_scalar(), DType::I64, Some(i64::MAX.to_scalar())),
        (4_294_967_296_i64.to_scalar(), DType::U32, None),
        ((-0.0).to_scalar(), DType::I32, Some(0.to_scalar())),
        (2.to_scalar(), DType::Bool, None),
        (1.0.to_scalar(), DType::Bool, Some(true.to_scalar())),
        (true.to_scalar(), DType::F32, Some(1.0_f32.to_scalar())),
        (f16::from_bits(0x4248).to_scalar(), DType::U8, None),
        (i64::MAX.to_scalar(), DType::F32, Some(9.223_372e18_f32.to_scalar())),
        (1e300.to_scalar(), DType::F32, Some(f32::INFINITY.to_scalar())),
        (140.812_500_409_659_07.to_scalar(), DType::F16, Some(f16::from_bits(0x5867).to_scalar())),
        (((1_i64 << 62) + (1 << 54) + 1).to_scalar(), DType::Bf16, Some(bf16::from_bits(0x5e81).to_scalar())),
    ] {
        assert_eq!(x.element(dtype), expected, "{x:?} as {dtype}");
    }
}
