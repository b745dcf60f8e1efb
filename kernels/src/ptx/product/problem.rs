//! A product as every kernel of this module sees it: where the elements of the two operands and of the result lie.
//!
//! Matrix products and the three passes of a convolution are all `c[o, p] = sum over k of a[o, k] * b[k, p]`; they
//! differ in how an index is taken apart into digits, in the strides of these digits, and in which pairs of digits meet
//! padding.

use retape_runtime::DType;
use smallvec::{SmallVec, smallvec};

/// A digit of an index: how many values it has, and how far apart in memory neighbours are, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digit {
    pub(super) extent: usize,
    pub(super) stride: i64,
}

/// Digits, outermost first.
pub(super) type Line = SmallVec<[Digit; 4]>;

/// A coordinate `t = offset + outer digit * outer step + inner digit * inner step` that must lie on the grid
/// `0, div, 2 div, ..` below `div * extent`; elsewhere the operand is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowGuard {
    /// A digit of the row or column, and its step.
    pub(super) outer: (usize, i64),
    /// A digit of the sum's index, and its step.
    pub(super) inner: (usize, i64),
    pub(super) offset: i64,
    pub(super) extent: usize,
    /// The distance of grid points; positive.
    pub(super) div: usize,
    /// Elements in memory from one grid point to the next; 0 where the strides of the digits say it.
    pub(super) stride: i64,
}

/// An operand: rows (or columns) along `outer`, the index of the sums along `inner`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gather {
    pub(super) dtype: DType,
    /// First element; may lie before the buffer, if windows keep what is read inside.
    pub(super) offset: i64,
    /// Strides of the digits of the batch.
    pub(super) batch: SmallVec<[i64; 4]>,
    pub(super) outer: Line,
    pub(super) inner: Line,
    pub(super) windows: SmallVec<[WindowGuard; 2]>,
}

/// The result, a dense row-major matrix of `width` columns of which the product fills a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scatter {
    pub(super) dtype: DType,
    pub(super) width: usize,
    /// The row of the matrix that row 0 of the product is.
    pub(super) first_row: usize,
    /// Its rows, in rows of the matrix.
    pub(super) rows: Line,
    /// For each digit of the batch, the rows and columns from one product to the next.
    pub(super) batch: SmallVec<[(usize, usize); 4]>,
}

/// A batch of products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Extents of the digits of the batch, outermost first.
    pub(super) batch: SmallVec<[usize; 4]>,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Gather,
    pub(super) b: Gather,
    pub(super) c: Scatter,
}

/// How an operand is read: how many neighbours at once, and in which direction they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grain {
    pub(super) along_k: bool,
    /// Elements that are read at once.
    pub(super) vec: usize,
    /// Whether neighbours in memory are neighbours in this direction.
    pub(super) dense: bool,
}

/// One digit, or none for an extent of 1.
pub(super) fn line(digits: &[(usize, i64)]) -> Line {
    digits.iter().map(|&(extent, stride)| Digit { extent, stride }).collect()
}

/// The number of values that the digits make.
pub(super) fn count(line: &Line) -> usize {
    line.iter().map(|digit| digit.extent).product()
}

impl WindowGuard {
    /// Whether all pairs of digits lie inside.
    fn always_holds(&self, gather: &Gather) -> bool {
        let reach = |extent: usize, step: i64| (extent as i64 - 1) * step;
        let steps = [
            reach(gather.outer[self.outer.0].extent, self.outer.1),
            reach(gather.inner[self.inner.0].extent, self.inner.1),
        ];
        let low: i64 = steps.iter().map(|x| (*x).min(0)).sum();
        let high: i64 = steps.iter().map(|x| (*x).max(0)).sum();
        self.div == 1 && self.stride == 0 && self.offset + low >= 0 && self.offset + high < self.extent as i64
    }
}

impl Gather {
    /// The same operand with as few windows and digits as say it.
    pub(super) fn simplified(mut self) -> Gather {
        let windows = std::mem::take(&mut self.windows);
        self.windows = windows.into_iter().filter(|w| !w.always_holds(&self)).collect();
        self.merge(true);
        self.merge(false);
        self
    }

    /// Leaves out digits of one value and joins neighbours that are one digit, if no window needs them.
    fn merge(&mut self, is_outer: bool) {
        let digits = if is_outer { self.outer.clone() } else { self.inner.clone() };
        let seen = |d: usize| self.windows.iter().any(|w| if is_outer { w.outer.0 == d } else { w.inner.0 == d });
        let mut merged: Line = smallvec![];
        let mut place: SmallVec<[usize; 4]> = smallvec![];
        // Whether the last digit of `merged` may be joined with.
        let mut open = false;
        for (d, digit) in digits.iter().enumerate() {
            let free = !seen(d);
            match merged.last_mut() {
                Some(last) if free && open && last.stride == digit.stride * digit.extent as i64 => {
                    *last = Digit { extent: last.extent * digit.extent, stride: digit.stride };
                }
                _ if free && digit.extent == 1 => {}
                _ => {
                    merged.push(*digit);
                    open = free;
                }
            }
            place.push(merged.len().saturating_sub(1));
        }
        if merged.is_empty() {
            merged.push(Digit { extent: 1, stride: 0 });
        }
        for window in &mut self.windows {
            let digit = if is_outer { &mut window.outer.0 } else { &mut window.inner.0 };
            *digit = place[*digit];
        }
        if is_outer { self.outer = merged } else { self.inner = merged }
    }

    /// Whether an element's address is a sum of multiples of its two indices.
    pub(super) fn is_affine(&self) -> bool {
        self.outer.len() == 1 && self.is_affine_in_k()
    }

    /// Whether its address moves evenly along the sums.
    pub(super) fn is_affine_in_k(&self) -> bool {
        self.inner.len() == 1 && self.windows.is_empty()
    }

    /// How to read the operand.
    pub(super) fn grain(&self) -> Grain {
        let vec = |along_k: bool| {
            let line = if along_k { &self.inner } else { &self.outer };
            let last = line.len() - 1;
            let on_window = |w: &WindowGuard| {
                let (digit, step) = if along_k { w.inner } else { w.outer };
                digit == last && step != 0
            };
            if line[last].stride != 1 {
                return 0;
            }
            if self.windows.iter().any(on_window) {
                return 1;
            }
            let others = if along_k { &self.outer } else { &self.inner };
            let strides = line[..last].iter().chain(others).map(|digit| digit.stride);
            let windows = self.windows.iter().map(|w| w.stride);
            let strides: Vec<i64> =
                strides.chain(windows).chain(self.batch.iter().copied()).chain([self.offset]).collect();
            let whole = [16, 8, 4].map(|bytes| bytes / self.dtype.size()).into_iter().find(|vec| {
                let vec = *vec as i64;
                vec > 1 && line[last].extent as i64 % vec == 0 && strides.iter().all(|stride| stride % vec == 0)
            });
            whole.unwrap_or(1)
        };
        let (k, o) = (vec(true), vec(false));
        // Of two directions without vectors, the one in which neighbours are closer.
        let last = |line: &Line| line.last().map_or(0, |digit| digit.stride.unsigned_abs());
        let along_k = if k == o { last(&self.inner) <= last(&self.outer) } else { k > o };
        let vec = k.max(o);
        Grain { along_k, vec: vec.max(1), dense: vec > 0 }
    }
}

impl Scatter {
    /// The last row of the matrix that a product of the first row of the batch fills.
    pub(super) fn last_row(&self) -> usize {
        let along = |digit: &Digit| digit.extent.saturating_sub(1).saturating_mul(digit.stride.unsigned_abs() as usize);
        self.rows.iter().map(along).fold(self.first_row, usize::saturating_add)
    }

    /// The number of elements that are stored at once, at most `most`.
    pub(super) fn vec(&self, n: usize, most: usize) -> usize {
        let mut vec = most;
        while vec > 1 && !(n.is_multiple_of(vec) && self.width.is_multiple_of(vec) && self.columns_are(vec)) {
            vec /= 2;
        }
        vec
    }

    fn columns_are(&self, vec: usize) -> bool {
        self.batch.iter().all(|(_, columns)| columns.is_multiple_of(vec))
    }
}

impl Problem {
    /// The number of products.
    pub(super) fn n_products(&self) -> usize {
        self.batch.iter().product()
    }
}
