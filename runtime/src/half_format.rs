//! The two floats of 16 bits: rounding to them.
//!
//! It works on integers: a float or an integer is `m * 2^e` exactly, and one rounding leads from there to the nearest
//! value, of two the even one.

/// A binary format of 16 bits: sign, exponent, fraction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Bits of the fraction.
    fraction: u32,
    /// The exponent of the last place of the smallest values, normal and subnormal ones alike.
    least: i32,
}

/// IEEE half precision.
pub(crate) const F16: Format = Format { fraction: 10, least: -24 };

/// The upper half of single precision.
pub(crate) const BF16: Format = Format { fraction: 7, least: -133 };

impl Format {
    /// The bits of infinity; those above it are NaN.
    const fn infinity(self) -> u16 {
        0x7fff >> self.fraction << self.fraction
    }

    /// The bits of `m * 2^e`, rounded to nearest even; infinity from half a last place above the largest value on.
    fn magnitude(self, m: u64, e: i32) -> u16 {
        if m == 0 {
            return 0;
        }
        // The exponent of the last place that the result keeps.
        let last = (e + m.ilog2() as i32 - self.fraction as i32).max(self.least);
        let kept = match u32::try_from(last - e) {
            Ok(dropped) => without_bits(m, dropped),
            Err(_) => m << (e - last),
        };
        // A normal value has the leading bit of what is kept in the place of the exponent's last bit, where it counts
        // the binade; so does what was rounded up to the next power of two.
        let bits = ((i64::from(last - self.least)) << self.fraction) + kept as i64;
        bits.min(self.infinity().into()) as u16
    }

    /// The bits of the value nearest to a float; quiet NaN for NaN.
    pub(crate) fn of_f64(self, x: f64) -> u16 {
        let sign = (x.to_bits() >> 48) as u16 & 0x8000;
        if x.is_nan() {
            return sign | self.infinity() | 1 << (self.fraction - 1);
        }
        if x.is_infinite() {
            return sign | self.infinity();
        }
        let (exponent, fraction) = (x.to_bits() >> 52 & 0x7ff, x.to_bits() & ((1 << 52) - 1));
        let m = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        sign | self.magnitude(m, exponent.max(1) as i32 - 1075)
    }

    /// The bits of the value nearest to an integer.
    pub(crate) fn of_i64(self, x: i64) -> u16 {
        self.magnitude(x.unsigned_abs(), 0) | if x < 0 { 0x8000 } else { 0 }
    }
}

/// `m / 2^n`, rounded to the nearest integer, of two the even one.
fn without_bits(m: u64, n: u32) -> u64 {
    // Any number below a quarter rounds as 2^-2 does.
    let (m, n) = (u128::from(m), n.min(66));
    let (whole, rest) = (m >> n, m & ((1 << n) - 1));
    let half = 1_u128 << n >> 1;
    let up = n > 0 && (rest > half || (rest == half && whole & 1 == 1));
    (whole + u128::from(up)) as u64
}
