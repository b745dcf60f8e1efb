//! Which convolutions multiply less (`micro/winograd.rs`), and their windows.

use retape_runtime::DType;

use super::{Conv2d, ConvPass};
use crate::library::micro::{Real, Window, WindowAxis, WinogradExtents};

impl Conv2d {
    /// The tiles of a pass that multiplies less: in single precision, three by three taps at distance one, and channels
    /// that fill vectors.
    pub(in crate::library) fn winograd(&self) -> Option<WinogradExtents> {
        let is_dense = [self.stride, self.dilation] == [[1; 2]; 2] && self.groups == 1;
        if self.dtype != DType::F32 || [self.kernel_height, self.kernel_width] != [3, 3] || !is_dense {
            return None;
        }
        let (outputs, [channels, n]) = match self.pass {
            ConvPass::Forward | ConvPass::FilterGradient => (self.out_extent(), [self.in_channels, self.out_channels]),
            ConvPass::InputGradient => ([self.height, self.width], [self.out_channels, self.in_channels]),
        };
        WinogradExtents::new(self.batch, outputs, channels, n)
    }

    /// The windows of the input gradient on the cotangent, with taps that run forward, for stride 1.
    pub(super) fn turned_window<'a, T: Real>(&self, ct: &'a [T]) -> Window<'a, T> {
        let outputs = self.out_extent();
        let axis = |axis: usize, extent: usize, taps: usize| WindowAxis {
            outputs: extent,
            taps,
            stride: 1,
            dilation: 1,
            offset: self.padding[axis][0] as isize + 1 - taps as isize,
            extent: outputs[axis],
        };
        let (y, x) = (axis(0, self.height, self.kernel_height), axis(1, self.width, self.kernel_width));
        Window { image: ct, y, x, pixel: self.out_channels, channels: self.out_channels }
    }

    /// The cotangent as windows of one tap.
    pub(super) fn ct_window<'a, T: Real>(&self, ct: &'a [T]) -> Window<'a, T> {
        let [y, x] = self.out_extent().map(|extent| WindowAxis {
            outputs: extent,
            taps: 1,
            stride: 1,
            dilation: 1,
            offset: 0,
            extent,
        });
        Window { image: ct, y, x, pixel: self.out_channels, channels: self.out_channels }
    }
}
