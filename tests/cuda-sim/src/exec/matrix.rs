//! `ldmatrix`, `stmatrix` and `mma.sync`: the fragments of a matrix lie in the registers of all lanes as PTX says.
//!
//! With lane `l`, the row of a fragment of sums is `l / 4` (and eight more), its column `2 * (l % 4)` (and one more).
//! Products are exact; sums are rounded to single precision after each term in the order of the depth, which hardware
//! does in an order and precision of its own: compare with a tolerance.

use super::Env;
use super::access::{check_aligned, in_lane};
use super::warp::Warp;
use crate::alu::fused;
use crate::fault::{Stop, stop};
use crate::kernel::{LoadMatrix, Mma, MmaTy, Space};
use crate::lanes::{ALL, LANES};
use crate::round;

/// Rows of a matrix of `ldmatrix`, and halves in each.
const ROWS: usize = 8;

/// The sums of a product: 16 rows of 8.
type Sums = [[f32; 8]; 16];

/// Both factors: 16 rows of up to 16, and up to 16 rows of 8.
type Factors = ([[f32; 16]; 16], [[f32; 8]; 16]);

impl Warp {
    /// All lanes must take part.
    fn check_whole(&self, active: u32, name: &str) -> Result<(), Stop> {
        if active == ALL {
            return Ok(());
        }
        stop(format!("{name}: lane {} does not take part, all must", (!active).trailing_zeros()))
    }

    #[inline(never)]
    pub(super) fn matrix(&mut self, env: &mut Env<'_>, matrix: &LoadMatrix, active: u32) -> Result<(), Stop> {
        self.check_whole(active, if matrix.store { "stmatrix" } else { "ldmatrix" })?;
        for (n, reg) in matrix.regs.iter().enumerate() {
            let mut addresses = [0; ROWS];
            for (row, address) in addresses.iter_mut().enumerate() {
                let lane = ROWS * n + row;
                let (space, at) = self.resolve(matrix.space, matrix.address, lane);
                if space != Space::Shared {
                    return stop(format!("a matrix that is not in shared memory (lane {lane})"));
                }
                check_aligned(at, 16, lane)?;
                *address = at;
            }
            if matrix.store {
                self.store_matrix(env, &addresses, *reg, matrix.transposed)?;
            } else {
                self.load_matrix(env, &addresses, *reg, matrix.transposed, n)?;
            }
        }
        Ok(())
    }

    fn load_matrix(
        &mut self,
        env: &mut Env<'_>,
        addresses: &[u64; ROWS],
        reg: u16,
        transposed: bool,
        n: usize,
    ) -> Result<(), Stop> {
        let mut halves = [[0_u32; 8]; ROWS];
        for (row, at) in addresses.iter().enumerate() {
            // A row goes to all lanes: no lane may count as the one that copied it, but the one that names it.
            let lane = ROWS * n + row;
            let bytes = env.shared.read(*at, 16, self.index, lane).map_err(|what| in_lane(what, lane))?;
            for (half, pair) in halves[row].iter_mut().zip(bytes.chunks_exact(2)) {
                *half = u32::from(u16::from_le_bytes([pair[0], pair[1]]));
            }
        }
        let to = &mut self.regs.narrow[usize::from(reg)];
        for (lane, to) in to.iter_mut().enumerate() {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            *to = match transposed {
                false => halves[row][column] | halves[row][column + 1] << 16,
                true => halves[column][row] | halves[column + 1][row] << 16,
            };
        }
        Ok(())
    }

    fn store_matrix(
        &mut self,
        env: &mut Env<'_>,
        addresses: &[u64; ROWS],
        reg: u16,
        transposed: bool,
    ) -> Result<(), Stop> {
        let mut halves = [[0_u16; 8]; ROWS];
        for (lane, bits) in self.regs.narrow[usize::from(reg)].iter().enumerate() {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            for (n, half) in [*bits as u16, (*bits >> 16) as u16].into_iter().enumerate() {
                if transposed {
                    halves[column + n][row] = half;
                } else {
                    halves[row][column + n] = half;
                }
            }
        }
        for (n, (row, at)) in halves.iter().zip(addresses).enumerate() {
            // Each lane writes the two halves that it brought.
            for (pair, halves) in row.as_chunks::<2>().0.iter().enumerate() {
                let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
                env.shared.write(*at + 4 * pair as u64, &bytes, self.index, 4 * n + pair)?;
            }
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn mma(&mut self, mma: &Mma, active: u32) -> Result<(), Stop> {
        self.check_whole(active, "mma.sync")?;
        let (a, b) = match mma.ty {
            MmaTy::F64 => {
                self.mma_double(mma);
                return Ok(());
            }
            MmaTy::Tf32 => self.tf32_factors(mma),
            MmaTy::F16 => self.half_factors(mma, round::from_f16),
            MmaTy::Bf16 => self.half_factors(mma, round::from_bf16),
        };
        let mut sums: Sums = [[0.0; 8]; 16];
        for (n, reg) in mma.c.iter().enumerate() {
            let values = &self.regs.narrow[usize::from(*reg)];
            for (lane, bits) in values.iter().enumerate() {
                let (row, column) = (lane / 4, 2 * (lane % 4));
                if mma.half {
                    sums[row + 8 * n][column] = round::from_f16(*bits as u16);
                    sums[row + 8 * n][column + 1] = round::from_f16((*bits >> 16) as u16);
                } else {
                    sums[row + 8 * (n / 2)][column + n % 2] = f32::from_bits(*bits);
                }
            }
        }
        fused::multiply_tile(&a, &b, &mut sums, mma.depth);
        for (n, reg) in mma.d.iter().enumerate() {
            let to = &mut self.regs.narrow[usize::from(*reg)];
            for (lane, to) in to.iter_mut().enumerate() {
                let (row, column) = (lane / 4, 2 * (lane % 4));
                *to = if mma.half {
                    let [low, high] = [sums[row + 8 * n][column], sums[row + 8 * n][column + 1]];
                    u32::from(round::to_f16(low)) | u32::from(round::to_f16(high)) << 16
                } else {
                    sums[row + 8 * (n / 2)][column + n % 2].to_bits()
                };
            }
        }
        Ok(())
    }

    /// Factors of 16 bits: register `n` of `a` has rows `l / 4 + 8 * (n % 2)`, columns `2 * (l % 4) + 8 * (n / 2)`.
    #[inline(always)]
    fn half_factors(&self, mma: &Mma, widen: impl Fn(u16) -> f32) -> Factors {
        let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
        for (n, reg) in mma.a.iter().enumerate() {
            let values = &self.regs.narrow[usize::from(*reg)];
            let (first_row, first_column) = (8 * (n % 2), 8 * (n / 2 % 2));
            for (lane, bits) in values.iter().enumerate() {
                let (row, column) = (first_row + lane / 4, first_column + 2 * (lane % 4));
                a[row][column] = widen(*bits as u16);
                a[row][column + 1] = widen((*bits >> 16) as u16);
            }
        }
        for (n, reg) in mma.b.iter().enumerate() {
            let values = &self.regs.narrow[usize::from(*reg)];
            let first_row = 8 * (n % 2);
            for (lane, bits) in values.iter().enumerate() {
                let (row, column) = (first_row + 2 * (lane % 4), lane / 4);
                b[row][column] = widen(*bits as u16);
                b[row + 1][column] = widen((*bits >> 16) as u16);
            }
        }
        (a, b)
    }

    /// Factors of tf32: register `n` of `a` has rows `l / 4 + 8 * (n % 2)`, columns `l % 4 + 4 * (n / 2)`. The low bits
    /// of a single are not seen.
    fn tf32_factors(&self, mma: &Mma) -> Factors {
        let value = |bits: u32| f32::from_bits(bits & 0xffff_e000);
        let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
        for (n, reg) in mma.a.iter().enumerate() {
            let values = &self.regs.narrow[usize::from(*reg)];
            for (lane, bits) in values.iter().enumerate() {
                a[lane / 4 + 8 * (n % 2)][lane % 4 + 4 * (n / 2)] = value(*bits);
            }
        }
        for (n, reg) in mma.b.iter().enumerate() {
            let values = &self.regs.narrow[usize::from(*reg)];
            for (lane, bits) in values.iter().enumerate() {
                b[lane % 4 + 4 * n][lane / 4] = value(*bits);
            }
        }
        (a, b)
    }

    /// `m8n8k4` in double precision, fused and in the order of the depth.
    fn mma_double(&mut self, mma: &Mma) {
        let value = |reg: u16, lane: usize| f64::from_bits(self.regs.wide[usize::from(reg)][lane]);
        let mut out = [[0_u64; LANES]; 2];
        for (n, out) in out.iter_mut().enumerate() {
            for (lane, out) in out.iter_mut().enumerate() {
                let (row, column) = (lane / 4, 2 * (lane % 4) + n);
                let sum = value(mma.c[n], lane);
                // Row `i` of `a` lies in lanes `4 * i..`, column `j` of `b` in lanes `4 * j..`.
                let sum = (0..4)
                    .fold(sum, |sum, k| value(mma.a[0], 4 * row + k).mul_add(value(mma.b[0], 4 * column + k), sum));
                *out = sum.to_bits();
            }
        }
        for (n, out) in out.iter().enumerate() {
            self.regs.wide[usize::from(mma.d[n])] = *out;
        }
    }
}
