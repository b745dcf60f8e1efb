//! Gradients of filters of one tap from images in place.
//!
//! Nothing is packed: channels of a pixel are neighbours, and so are those of the cotangent. Chains, parts and their order
//! are those of the product in place of this, which is cut along its depth.

use super::direct::Shared;
use super::drive::{Engine, Output, split_depth};
use super::filter::FilterGradient;
use super::tile::Lines;
use super::{Real, block_depth, with_scratch};

impl Engine {
    /// Computes the gradient of a filter of one tap, rows of `n` at distance `out_row`.
    ///
    /// # Safety
    ///
    /// `out` is writable for a row of `n` for each channel, and nobody else uses these. All windows lie inside the images,
    /// which are readable for 16 elements past the channels of the last one.
    pub(crate) unsafe fn one_tap_gradient<T: Real>(&self, x: &FilterGradient<'_, T>, out: *mut T, out_row: usize) {
        let (kernels, w) = (T::kernels(self.level), &x.window);
        let (rows, k) = (w.channels, x.batch * w.y.outputs * w.x.outputs);
        let (part, depth) = (split_depth(rows, x.n, k), block_depth(k));
        let size = rows * x.n;
        with_scratch::<T, _>(size * k.div_ceil(part), |partial| {
            let all = Shared(partial.as_mut_ptr());
            (self.parallel_for)(k.div_ceil(part), &|task| {
                let steps = task * part..((task + 1) * part).min(k);
                let mut offsets = Vec::with_capacity(depth);
                with_scratch::<T, _>(self.len_of_columns(x, depth), |packed| {
                    for first in steps.clone().step_by(depth) {
                        let now = first..(first + depth).min(steps.end);
                        w.first_taps(now.clone(), &mut offsets);
                        let columns = self.columns_of_chain(x, now, [false; 2], packed);
                        let block = Lines {
                            lines: 1,
                            rows,
                            cols: x.n,
                            offsets: &offsets,
                            a: w.image.as_ptr(),
                            a_line: 0,
                            a_row: 1,
                            b: columns.b,
                            b_panel: columns.b_panel,
                            b_row: columns.b_row,
                            c: all.at(task * size),
                            c_line: 0,
                            c_row: x.n,
                            fresh: first == steps.start,
                        };
                        // SAFETY: the level is present; by the contract of this function the image covers the channels of
                        // these pixels and a last tile, B has whole vectors of the cotangent there, and C is this task's.
                        unsafe { (kernels.lines)(&block) };
                    }
                });
            });
            let out = Output { data: out, stride: out_row, rows: None };
            // SAFETY: by the contract of this function.
            unsafe { self.add_parts(partial, [rows, x.n], &out) };
        });
    }
}
