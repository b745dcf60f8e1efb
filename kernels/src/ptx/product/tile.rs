//! Tiles of operands in shared memory.
//!
//! A tile is lines of neighbours, along the sums or across them. Lines of tiles that tensor cores read are pieces of 16
//! bytes whose order within the line depends on the line, so that eight pieces of one column lie in different banks;
//! other tiles have gaps between lines.

use retape_runtime::DType;

use super::choose::{Config, MathUnit};
use super::index::{add, and, div, mad, mul};
use super::problem::Grain;
use crate::ptx::{Class, PtxFunction, Reg};

/// The layout of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TileLayout {
    /// Rows (or columns) and steps of the sums.
    pub(super) outer: usize,
    pub(super) depth: usize,
    pub(super) element: DType,
    /// Whether lines run along the sums.
    pub(super) along_k: bool,
    /// Bytes from one line to the next.
    pub(super) pitch: usize,
    pub(super) swizzled: bool,
}

impl TileLayout {
    pub(super) fn new(config: &Config, outer: usize, grain: Grain) -> TileLayout {
        let (element, depth) = (config.element, config.depth);
        let size = element.size();
        let along_k = grain.along_k && config.engine == MathUnit::Mma;
        let line = size * if along_k { depth } else { outer };
        let (gap, swizzled) = match config.engine {
            MathUnit::Simt { .. } => (16, false),
            // Four steps of the sums by eight columns lie in 32 banks.
            MathUnit::Mma if size == 4 && !along_k => (32, false),
            MathUnit::Mma => (0, true),
        };
        TileLayout { outer, depth, element, along_k, pitch: line + gap, swizzled }
    }

    /// The size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let lines = if self.along_k { self.outer } else { self.depth };
        lines * self.pitch
    }

    /// Where a byte of a line lies, in bytes from the start of the tile.
    pub(super) fn place(&self, f: &mut PtxFunction, line: Reg, byte: Reg) -> Reg {
        let byte = self.swizzle(f, line, byte);
        mad(f, line, self.pitch as i64, byte)
    }

    /// Where a byte of a line lies in the line; depends on the lowest three bits of the line only.
    pub(super) fn swizzle(&self, f: &mut PtxFunction, line: Reg, byte: Reg) -> Reg {
        if !self.swizzled {
            return byte;
        }
        // Eight pieces of 16 bytes fill all banks: shorter lines share them.
        let pieces = (self.pitch / 16).min(8);
        let line = div(f, line, 8 / pieces);
        let key = and(f, line, pieces - 1);
        let key = mul(f, key, 16);
        f.op(Class::B32, "xor.b32", format_args!("{byte}, {key}"))
    }

    /// Where the byte that lies `lines` and `bytes` further than one at `place` lies, if that is a fixed distance.
    pub(super) fn distance(&self, lines: usize, bytes: usize) -> Option<i64> {
        let fixed = !self.swizzled || (lines.is_multiple_of(8) && bytes == 0);
        fixed.then_some((lines * self.pitch + bytes) as i64)
    }

    /// Line and byte in it of an element.
    pub(super) fn line_of(&self, f: &mut PtxFunction, [outer, k]: [Reg; 2], [d_outer, d_k]: [usize; 2]) -> (Reg, Reg) {
        let (outer, k) = (add(f, outer, d_outer as i64), add(f, k, d_k as i64));
        let (line, along) = if self.along_k { (outer, k) } else { (k, outer) };
        (line, mul(f, along, self.element.size() as i64))
    }
}
