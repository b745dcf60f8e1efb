//! Two-dimensional convolution and its two gradients; each has derivatives in terms of the other two.
//!
//! Images are `[batch, height, width, channels]`, filters `[height, width, in_channels / groups, out_channels]`.

use std::panic::Location;

use retape_kernels::library::{self, ConvPass, Library};
use retape_runtime::DType;

use super::attribute::attributes;
use super::check::{self, refuse};
use super::matmul::refused_among;
use super::window::{self, Padding};
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError, layout};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Convolution of an image with a filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Steps of the window, along height and width.
    pub stride: [usize; 2],
    /// Zeros before and after the image, along height and width.
    pub padding: [[usize; 2]; 2],
    /// Steps between taps, along height and width.
    pub dilation: [usize; 2],
    /// Groups of channels that do not mix.
    pub groups: usize,
}

/// The image's cotangent, of the result's cotangent and the filter; also the transposed convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv2dInputGrad {
    /// As in [`Conv2d`].
    pub stride: [usize; 2],
    /// As in [`Conv2d`].
    pub padding: [[usize; 2]; 2],
    /// As in [`Conv2d`].
    pub dilation: [usize; 2],
    /// As in [`Conv2d`].
    pub groups: usize,
    /// Height and width of the image.
    pub input: [usize; 2],
}

/// The filter's cotangent, of the image and the result's cotangent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv2dFilterGrad {
    /// As in [`Conv2d`].
    pub stride: [usize; 2],
    /// As in [`Conv2d`].
    pub padding: [[usize; 2]; 2],
    /// As in [`Conv2d`].
    pub dilation: [usize; 2],
    /// As in [`Conv2d`].
    pub groups: usize,
    /// Height and width of the filter.
    pub filter: [usize; 2],
}

attributes! {
    Conv2d { stride, padding, dilation, groups }
    Conv2dInputGrad { stride, padding, dilation, groups, input }
    Conv2dFilterGrad { stride, padding, dilation, groups, filter }
}

impl Conv2d {
    fn input_grad(&self, input: &Tensor) -> Conv2dInputGrad {
        let Conv2d { stride, padding, dilation, groups } = self.clone();
        Conv2dInputGrad { stride, padding, dilation, groups, input: [input.extent(1), input.extent(2)] }
    }

    fn filter_grad(&self, filter: &Tensor) -> Conv2dFilterGrad {
        let Conv2d { stride, padding, dilation, groups } = self.clone();
        Conv2dFilterGrad { stride, padding, dilation, groups, filter: [filter.extent(0), filter.extent(1)] }
    }

    /// How many windows lie on an image.
    fn n_windows(&self, image: [usize; 2], filter: [usize; 2]) -> Result<[usize; 2], TypeError> {
        window::n_windows(image, filter, self.stride, self.padding, self.dilation)
    }

    fn check_groups(&self, channels: usize) -> Result<(), TypeError> {
        match channels.checked_rem(self.groups) {
            Some(0) => Ok(()),
            _ => refuse!("{channels} channels do not divide into {} groups", self.groups),
        }
    }

    /// The type of the result, for images and a filter of one dtype.
    fn fit(&self, x: &TensorType, w: &TensorType) -> Result<TensorType, TypeError> {
        let told = |error: TypeError| TypeError(format!("argument 0 is {x}, argument 1 is {w}: {error}"));
        let image = window::image(0, x)?;
        let [height, width, channels, out_channels] = filter_extents(1, w)?;
        self.check_groups(x.shape[3]).map_err(told)?;
        self.check_groups(out_channels).map_err(told)?;
        if channels.checked_mul(self.groups) != Some(x.shape[3]) {
            let groups = if self.groups == 1 { String::new() } else { format!(" in {} groups", self.groups) };
            refuse!(
                "argument 0 is {x}, argument 1 is {w}: the images have {} channels{groups}, so the filter's third axis \
                 must be {}, not {channels}",
                x.shape[3],
                x.shape[3] / self.groups
            );
        }
        let [rows, columns] = self.n_windows(image, [height, width]).map_err(told)?;
        Ok(x.with_shape([x.shape[0], rows, columns, out_channels]))
    }

    fn kernel(&self, pass: ConvPass, dtype: DType, image: &[usize], filter: &[usize]) -> Lowering {
        Lowering::Library(Library::Conv2d(library::Conv2d {
            dtype,
            batch: image[0],
            height: image[1],
            width: image[2],
            in_channels: image[3],
            kernel_height: filter[0],
            kernel_width: filter[1],
            out_channels: filter[3],
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            groups: self.groups,
            pass,
        }))
    }
}

impl Conv2dInputGrad {
    /// The forward pass.
    pub(crate) fn conv(&self) -> Conv2d {
        let Conv2dInputGrad { stride, padding, dilation, groups, .. } = *self;
        Conv2d { stride, padding, dilation, groups }
    }
}

impl Conv2dFilterGrad {
    /// The forward pass.
    pub(crate) fn conv(&self) -> Conv2d {
        let Conv2dFilterGrad { stride, padding, dilation, groups, .. } = *self;
        Conv2d { stride, padding, dilation, groups }
    }
}

/// Two float arguments of one dtype.
fn pair<'t>(args: &[&'t TensorType]) -> Result<[&'t TensorType; 2], TypeError> {
    let [a, b] = check::exactly::<2>(args)?;
    check::factor(0, a)?;
    if a.dtype != b.dtype {
        refuse!("argument 0 is {a}, argument 1 is {b}: dtypes must be equal; cast one of them");
    }
    Ok([a, b])
}

/// The extents of a filter.
fn filter_extents(position: usize, w: &TensorType) -> Result<[usize; 4], TypeError> {
    match (*w.shape).try_into() {
        Ok(extents) => Ok(extents),
        Err(_) => {
            refuse!("argument {position} is {w}, but must be [height, width, in_channels / groups, out_channels]")
        }
    }
}

impl OpDef for Conv2d {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x, w] = pair(args)?;
        self.fit(x, w).map_err(|error| {
            layout::with_filter_hint(error, "[height, width, in / groups, out]", [x, w], |x, w| self.fit(x, w).is_ok())
        })
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let ([x, w], caller) = ([&at.args[0], &at.args[1]], Location::caller());
        Cotangents::of([
            Tensor::apply_at(self.input_grad(x), &[at.ct, w], caller),
            Tensor::apply_at(self.filter_grad(w), &[x, at.ct], caller),
        ])
    }

    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
        self.kernel(ConvPass::Forward, result.dtype, &args[0].shape, &args[1].shape)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |stride, padding, dilation, groups| Conv2d { stride, padding, dilation, groups };
        vec![
            Sample::floats(of([1, 1], [[1, 1], [1, 1]], [1, 1], 1), &[&[2, 4, 5, 3], &[3, 3, 3, 2]], -1.0..1.0),
            Sample::floats(of([2, 1], [[0, 1], [2, 0]], [1, 2], 1), &[&[1, 6, 5, 2], &[3, 2, 2, 3]], -1.0..1.0),
            Sample::floats(of([1, 2], [[0, 0], [0, 0]], [1, 1], 2), &[&[1, 4, 5, 4], &[2, 2, 2, 6]], -1.0..1.0),
            Sample::of(DType::F16, of([1, 1], [[1, 1], [1, 1]], [1, 1], 1), &[&[1, 4, 5, 3], &[3, 3, 3, 2]], -1.0..1.0),
        ]
    }
}

impl OpDef for Conv2dInputGrad {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [ct, w] = pair(args)?;
        let windows = window::image(0, ct)?;
        let [height, width, channels, out_channels] = filter_extents(1, w)?;
        self.conv().check_groups(out_channels)?;
        let expected = self.conv().n_windows(self.input, [height, width])?;
        if windows != expected || ct.shape[3] != out_channels {
            let [rows, columns] = expected;
            refuse!(
                "argument 0 is {ct}, but the convolution of an image of {:?} with {w} has shape [{}, {rows}, {columns}, {out_channels}]",
                self.input,
                ct.shape[0]
            );
        }
        match channels.checked_mul(self.groups) {
            Some(channels) => Ok(ct.with_shape([ct.shape[0], self.input[0], self.input[1], channels])),
            None => refuse!("the channels of the image cannot be counted"),
        }
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let ([g, w], caller, conv) = ([&at.args[0], &at.args[1]], Location::caller(), self.conv());
        let filter = conv.filter_grad(w);
        Cotangents::of([Tensor::apply_at(conv, &[at.ct, w], caller), Tensor::apply_at(filter, &[at.ct, g], caller)])
    }

    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
        self.conv().kernel(ConvPass::InputGradient, result.dtype, &result.shape, &args[1].shape)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |stride, padding, groups, input| Conv2dInputGrad { stride, padding, dilation: [1, 1], groups, input };
        vec![
            Sample::floats(of([1, 1], [[1, 1], [1, 1]], 1, [4, 5]), &[&[2, 4, 5, 2], &[3, 3, 3, 2]], -1.0..1.0),
            Sample::floats(of([2, 2], [[0, 1], [0, 1]], 2, [4, 6]), &[&[1, 2, 3, 4], &[3, 3, 1, 4]], -1.0..1.0),
            Sample::of(
                DType::Bf16,
                of([1, 1], [[1, 1], [1, 1]], 1, [4, 5]),
                &[&[1, 4, 5, 2], &[3, 3, 3, 2]],
                -1.0..1.0,
            ),
        ]
    }
}

impl OpDef for Conv2dFilterGrad {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x, ct] = pair(args)?;
        let (image, windows) = (window::image(0, x)?, window::image(1, ct)?);
        self.conv().check_groups(x.shape[3])?;
        self.conv().check_groups(ct.shape[3])?;
        let expected = self.conv().n_windows(image, self.filter)?;
        if windows != expected || ct.shape[0] != x.shape[0] {
            refuse!(
                "argument 0 is {x}, argument 1 is {ct}, but a filter of {:?} has {expected:?} windows on the image",
                self.filter
            );
        }
        Ok(x.with_shape([self.filter[0], self.filter[1], x.shape[3] / self.groups, ct.shape[3]]))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let ([x, g], caller, conv) = ([&at.args[0], &at.args[1]], Location::caller(), self.conv());
        let input = conv.input_grad(x);
        Cotangents::of([Tensor::apply_at(input, &[g, at.ct], caller), Tensor::apply_at(conv, &[x, at.ct], caller)])
    }

    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
        self.conv().kernel(ConvPass::FilterGradient, result.dtype, &args[0].shape, &result.shape)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of =
            |stride, padding, groups, filter| Conv2dFilterGrad { stride, padding, dilation: [1, 1], groups, filter };
        vec![
            Sample::floats(of([1, 1], [[1, 1], [1, 1]], 1, [3, 3]), &[&[2, 4, 5, 3], &[2, 4, 5, 2]], -1.0..1.0),
            Sample::floats(of([2, 2], [[0, 1], [0, 1]], 2, [3, 3]), &[&[1, 4, 6, 2], &[1, 2, 3, 4]], -1.0..1.0),
            Sample::of(
                DType::Bf16,
                of([1, 1], [[1, 1], [1, 1]], 1, [3, 3]),
                &[&[1, 4, 5, 3], &[1, 4, 5, 2]],
                -1.0..1.0,
            ),
        ]
    }
}

/// Stride, padding, dilation and groups of a convolution; by default 1, [`Padding::Valid`], 1 and 1.
///
/// ```
/// use retape::ops::{ConvOptions, Padding};
///
/// let options = ConvOptions::default().stride(2).padding(Padding::Same);
/// assert_eq!(options.stride, [2, 2]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// Steps of the window, along height and width.
    pub stride: [usize; 2],
    /// The treatment of positions beyond the edges.
    pub padding: Padding,
    /// Steps between taps, along height and width.
    pub dilation: [usize; 2],
    /// Groups of channels that do not mix.
    pub groups: usize,
}

impl Default for ConvOptions {
    fn default() -> ConvOptions {
        ConvOptions { stride: [1, 1], padding: Padding::Valid, dilation: [1, 1], groups: 1 }
    }
}

impl ConvOptions {
    /// One window for every position: stride 1 and [`Padding::Same`].
    pub fn same() -> ConvOptions {
        ConvOptions { padding: Padding::Same, ..ConvOptions::default() }
    }

    /// The same steps along height and width.
    #[must_use]
    pub fn stride(self, stride: usize) -> ConvOptions {
        ConvOptions { stride: [stride; 2], ..self }
    }

    /// The padding: [`Padding::Same`], or numbers such as `1` for all four sides.
    #[must_use]
    pub fn padding(self, padding: impl Into<Padding>) -> ConvOptions {
        ConvOptions { padding: padding.into(), ..self }
    }

    /// The same steps between taps along height and width.
    #[must_use]
    pub fn dilation(self, dilation: usize) -> ConvOptions {
        ConvOptions { dilation: [dilation; 2], ..self }
    }

    /// Groups of channels that do not mix; as many as channels for a depthwise convolution.
    #[must_use]
    pub fn groups(self, groups: usize) -> ConvOptions {
        ConvOptions { groups, ..self }
    }

    fn resolved(&self, image: [usize; 2], filter: [usize; 2]) -> Conv2d {
        let ConvOptions { stride, padding, dilation, groups } = *self;
        Conv2d { stride, padding: padding.resolve(image, filter, stride, dilation), dilation, groups }
    }

    /// The transposed convolution of images with a filter of one dtype: the cotangent of the images that a convolution
    /// takes to such ones.
    fn transposed(&self, x: &TensorType, w: &TensorType) -> Result<Conv2dInputGrad, TypeError> {
        let images = window::image(0, x)?;
        let [height, width, _, channels] = filter_extents(1, w)?;
        if channels != x.shape[3] {
            refuse!(
                "argument 0 is {x}, argument 1 is {w}: the images have {} channels, so the filter's last axis must be {0}, \
                 not {channels}",
                x.shape[3]
            );
        }
        let along = |axis: usize| {
            let (windows, stride, filter) = (images[axis], self.stride[axis], [height, width][axis]);
            let reach = (filter.checked_sub(1)?).checked_mul(self.dilation[axis])?.checked_add(1)?;
            let steps = windows.checked_mul(stride)?;
            match self.padding {
                Padding::Same => Some(steps),
                Padding::Valid => steps.checked_add(reach.saturating_sub(stride)),
                Padding::Explicit(padding) => {
                    let whole = windows.checked_sub(1)?.checked_mul(stride)?.checked_add(reach)?;
                    whole.checked_sub(padding[axis][0])?.checked_sub(padding[axis][1])
                }
            }
        };
        let Some(input) = along(0).zip(along(1)).map(|(height, width)| [height, width]) else {
            refuse!("argument 0 is {x}, argument 1 is {w}: {self:?} leave no image");
        };
        let Conv2d { stride, padding, dilation, groups } = self.resolved(input, [height, width]);
        let op = Conv2dInputGrad { stride, padding, dilation, groups, input };
        op.infer(&[x, w]).map_err(|error| TypeError(format!("argument 0 is {x}, argument 1 is {w}: {error}")))?;
        Ok(op)
    }
}

impl Tensor {
    /// The convolution of images `[batch, height, width, channels]` with a filter
    /// `[height, width, channels / groups, out_channels]`.
    ///
    /// As everywhere in machine learning the filter is not flipped. PyTorch's images become such ones by
    /// `permute(&[0, 2, 3, 1])`, its filters by `permute(&[2, 3, 1, 0])`; errors say so where that would make them fit. A
    /// filter that fits as it is, such as PyTorch's `[16, 3, 3, 3]` for images of three channels, is taken as it is, with
    /// 16 x 3 taps; an accelerated function gives [`advice`](crate::Accelerated::advice) on it.
    ///
    /// ```
    /// # use retape::{Tensor, ops::ConvOptions};
    /// let image = Tensor::from([[[[1.0_f32], [2.0]], [[3.0], [4.0]]]]);
    /// let sum = image.conv2d(&Tensor::ones([2, 2, 1, 1]), ConvOptions::default());
    /// assert_eq!(sum.item::<f32>()?, 10.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn conv2d(&self, filter: &Tensor, options: ConvOptions) -> Tensor {
        let conv = options.resolved([self.extent(1), self.extent(2)], [filter.extent(0), filter.extent(1)]);
        Tensor::apply_at(conv, &[self, filter], Location::caller())
    }

    /// The transposed convolution: the map of which `conv2d` with the same filter and options is the transpose.
    ///
    /// The filter is that of the convolution, `[height, width, out_channels / groups, channels]`; PyTorch's become such ones
    /// by `permute(&[2, 3, 1, 0])`, as for the convolution. Height and width of
    /// the result are `stride` times those of the image for [`Padding::Same`]; [`Padding::Valid`] adds what the filter
    /// exceeds the stride by.
    ///
    /// ```
    /// # use retape::{Tensor, ops::ConvOptions};
    /// let x = Tensor::from([[[[1.0_f32], [2.0]]]]);
    /// let wide = x.conv_transpose2d(&Tensor::ones([1, 2, 1, 1]), ConvOptions::default().stride(2));
    /// assert_eq!(wide.shape(), [1, 2, 4, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose2d(&self, filter: &Tensor, options: ConvOptions) -> Tensor {
        let (at, _method) = (Location::caller(), method("conv_transpose2d"));
        let (x, w) = match (self.ty(), filter.ty()) {
            (Some(x), Some(w)) => (x, w),
            (None, _) => return self.clone(),
            (_, None) => return filter.clone(),
        };
        let fitting = pair(&[x, w]).and_then(|[x, w]| {
            options.transposed(x, w).map_err(|error| {
                let fits = |x: &TensorType, w: &TensorType| options.transposed(x, w).is_ok();
                layout::with_filter_hint(error, "[height, width, out / groups, in]", [x, w], fits)
            })
        });
        match fitting {
            Ok(op) => Tensor::apply_at(op, &[self, filter], at),
            Err(error) => refused_among(&[self, filter], error.0, at),
        }
    }
}
