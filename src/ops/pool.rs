//! Pooling over two-dimensional windows of images `[batch, height, width, channels]`.
//!
//! Windows cover the image only: padding is never a maximum and adds nothing to a sum. The maximum of a window is its
//! first NaN or else its first largest element.

use std::panic::Location;

use retape_kernels::library::{self, Library, PoolKind, PoolPass};
use retape_runtime::{DType, Scalar, Shape};

use super::attribute::attributes;
use super::check::{self, refuse};
use super::window::{self, Padding};
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, Splat, TypeError, layout};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The maximum of each window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaxPool2d {
    /// Rows and columns of a window.
    pub window: [usize; 2],
    /// Rows and columns from a window to the next.
    pub stride: [usize; 2],
    /// Positions before and after, along height and width.
    pub padding: [[usize; 2]; 2],
}

/// Of an image and a cotangent for each window: each cotangent at the place of its window's maximum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaxPool2dGrad {
    /// As in [`MaxPool2d`].
    pub window: [usize; 2],
    /// As in [`MaxPool2d`].
    pub stride: [usize; 2],
    /// As in [`MaxPool2d`].
    pub padding: [[usize; 2]; 2],
}

/// Of two images: for each window the element of the second where the first has its maximum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaxPool2dGather {
    /// As in [`MaxPool2d`].
    pub window: [usize; 2],
    /// As in [`MaxPool2d`].
    pub stride: [usize; 2],
    /// As in [`MaxPool2d`].
    pub padding: [[usize; 2]; 2],
}

/// The sum of each window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SumPool2d {
    /// As in [`MaxPool2d`].
    pub window: [usize; 2],
    /// As in [`MaxPool2d`].
    pub stride: [usize; 2],
    /// As in [`MaxPool2d`].
    pub padding: [[usize; 2]; 2],
}

/// The transpose of [`SumPool2d`]: each element of an image is the sum over the windows that cover it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SumPool2dGrad {
    /// As in [`MaxPool2d`].
    pub window: [usize; 2],
    /// As in [`MaxPool2d`].
    pub stride: [usize; 2],
    /// As in [`MaxPool2d`].
    pub padding: [[usize; 2]; 2],
    /// Height and width of the image.
    pub input: [usize; 2],
}

attributes! {
    MaxPool2d { window, stride, padding }
    MaxPool2dGrad { window, stride, padding }
    MaxPool2dGather { window, stride, padding }
    SumPool2d { window, stride, padding }
    SumPool2dGrad { window, stride, padding, input }
}

/// Windows on an image, the common part of all these ops.
#[derive(Clone, Copy)]
struct Windows {
    window: [usize; 2],
    stride: [usize; 2],
    padding: [[usize; 2]; 2],
}

macro_rules! windows {
    ($($op:ident),*) => {$(
        impl $op {
            fn windows(&self) -> Windows {
                Windows { window: self.window, stride: self.stride, padding: self.padding }
            }
        }
    )*};
}

windows!(MaxPool2d, MaxPool2dGrad, MaxPool2dGather, SumPool2d, SumPool2dGrad);

impl Windows {
    /// The type of an image pooled.
    fn pooled(self, x: &TensorType) -> Result<TensorType, TypeError> {
        check::float(0, x)?;
        self.fit(x).map_err(|error| layout::with_image_hint(error, x, |x| self.fit(x).is_ok()))
    }

    /// The type of an image of floats pooled.
    fn fit(self, x: &TensorType) -> Result<TensorType, TypeError> {
        let extent = window::image(0, x)?;
        let [rows, columns] = window::n_windows(extent, self.window, self.stride, self.padding, [1, 1])
            .map_err(|error| TypeError(format!("argument 0 is {x}: {error}")))?;
        // Else a window could lie in the padding entirely and have no maximum.
        if (0..2).any(|axis| self.padding[axis].iter().any(|&padding| padding >= self.window[axis])) {
            refuse!("argument 0 is {x}: padding {:?} must be less than the window {:?}", self.padding, self.window);
        }
        if !self.describe(x, PoolKind::Max, PoolPass::Forward).is_valid() {
            refuse!("windows of {:?} at steps of {:?} over {x} are too large to count", self.window, self.stride);
        }
        Ok(x.with_shape([x.shape[0], rows, columns, x.shape[3]]))
    }

    fn kernel(self, image: &TensorType, kind: PoolKind, pass: PoolPass) -> Lowering {
        Lowering::Library(Library::Pool2d(self.describe(image, kind, pass)))
    }

    fn describe(self, image: &TensorType, kind: PoolKind, pass: PoolPass) -> library::Pool2d {
        library::Pool2d {
            dtype: image.dtype,
            batch: image.shape[0],
            height: image.shape[1],
            width: image.shape[2],
            channels: image.shape[3],
            window: self.window,
            stride: self.stride,
            padding: self.padding,
            kind,
            pass,
        }
    }
}

impl OpDef for MaxPool2d {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        self.windows().pooled(check::exactly::<1>(args)?[0])
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let MaxPool2d { window, stride, padding } = *self;
        let grad = MaxPool2dGrad { window, stride, padding };
        Cotangents::of([Tensor::apply_at(grad, &[&at.args[0], at.ct], Location::caller())])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        self.windows().kernel(args[0], PoolKind::Max, PoolPass::Forward)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |window, stride, padding| MaxPool2d { window, stride, padding };
        vec![
            Sample::floats(of([2, 2], [2, 2], [[0, 0], [0, 0]]), &[&[2, 4, 5, 3]], -1.0..1.0),
            Sample::floats(of([3, 3], [2, 1], [[0, 1], [1, 1]]), &[&[1, 6, 5, 2]], -1.0..1.0),
        ]
    }
}

impl OpDef for MaxPool2dGrad {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x, ct] = check::exactly::<2>(args)?;
        let pooled = self.windows().pooled(x)?;
        if *ct != pooled {
            refuse!("argument 1 is {ct}, but must be {pooled}");
        }
        Ok((*x).clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // Where the maxima are is piecewise constant in the image.
        let MaxPool2dGrad { window, stride, padding } = *self;
        let gather = MaxPool2dGather { window, stride, padding };
        Cotangents::some([None, Some(Tensor::apply_at(gather, &[&at.args[0], at.ct], Location::caller()))])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        self.windows().kernel(args[0], PoolKind::Max, PoolPass::Gradient)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let grad = MaxPool2dGrad { window: [2, 2], stride: [2, 1], padding: [[0, 0], [1, 0]] };
        vec![Sample::floats(grad, &[&[1, 4, 5, 2], &[1, 2, 5, 2]], -1.0..1.0)]
    }
}

impl OpDef for MaxPool2dGather {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x, _] = check::same::<2>(args)?;
        self.windows().pooled(x)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // Where the maxima are is piecewise constant in the first image.
        let MaxPool2dGather { window, stride, padding } = *self;
        let grad = MaxPool2dGrad { window, stride, padding };
        Cotangents::some([None, Some(Tensor::apply_at(grad, &[&at.args[0], at.ct], Location::caller()))])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        self.windows().kernel(args[0], PoolKind::Max, PoolPass::MaxGather)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let gather = MaxPool2dGather { window: [2, 2], stride: [2, 1], padding: [[0, 0], [1, 0]] };
        vec![Sample::floats(gather, &[&[1, 4, 5, 2], &[1, 4, 5, 2]], -1.0..1.0)]
    }
}

impl OpDef for SumPool2d {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        self.windows().pooled(check::exactly::<1>(args)?[0])
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let SumPool2d { window, stride, padding } = *self;
        let input = [at.args[0].extent(1), at.args[0].extent(2)];
        let grad = SumPool2dGrad { window, stride, padding, input };
        Cotangents::of([Tensor::apply_at(grad, &[at.ct], Location::caller())])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        self.windows().kernel(args[0], PoolKind::Sum, PoolPass::Forward)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |window, stride, padding| SumPool2d { window, stride, padding };
        vec![
            Sample::floats(of([2, 2], [2, 2], [[0, 0], [0, 0]]), &[&[2, 4, 5, 3]], -1.0..1.0),
            Sample::floats(of([3, 3], [2, 1], [[0, 1], [1, 1]]), &[&[1, 6, 5, 2]], -1.0..1.0),
        ]
    }
}

impl OpDef for SumPool2dGrad {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [ct] = check::exactly::<1>(args)?;
        window::image(0, ct)?;
        let x = ct.with_shape([ct.shape[0], self.input[0], self.input[1], ct.shape[3]]);
        let pooled = self.windows().pooled(&x)?;
        if *ct != pooled {
            refuse!("argument 0 is {ct}, but must be {pooled}");
        }
        Ok(x)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let SumPool2dGrad { window, stride, padding, .. } = *self;
        Cotangents::of([Tensor::apply_at(SumPool2d { window, stride, padding }, &[at.ct], Location::caller())])
    }

    fn lower(&self, _: &[&TensorType], result: &TensorType) -> Lowering {
        self.windows().kernel(result, PoolKind::Sum, PoolPass::Gradient)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let grad = SumPool2dGrad { window: [2, 2], stride: [2, 1], padding: [[0, 0], [1, 0]], input: [4, 5] };
        vec![Sample::floats(grad, &[&[1, 2, 5, 2]], -1.0..1.0)]
    }
}

impl Tensor {
    /// The maximum of each window of images `[batch, height, width, channels]`; padding is never a maximum.
    ///
    /// ```
    /// # use retape::{Tensor, ops::Padding};
    /// let image = Tensor::from([[[[1.0_f32], [2.0]], [[3.0], [4.0]]]]);
    /// assert_eq!(image.max_pool2d([2, 2], [2, 2], Padding::Valid).item::<f32>()?, 4.0);
    /// assert_eq!(image.max_pool2d([3, 3], [2, 2], 1).item::<f32>()?, 4.0); // padded by 1 on all sides
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool2d(&self, window: [usize; 2], stride: [usize; 2], padding: impl Into<Padding>) -> Tensor {
        let padding = padding.into().resolve([self.extent(1), self.extent(2)], window, stride, [1, 1]);
        Tensor::apply_at(MaxPool2d { window, stride, padding }, &[self], Location::caller())
    }

    /// The mean of each window of images `[batch, height, width, channels]`, over the positions inside the image.
    ///
    /// ```
    /// # use retape::{Tensor, ops::Padding};
    /// let image = Tensor::from([[[[1.0_f32], [2.0]], [[3.0], [6.0]]]]);
    /// assert_eq!(image.avg_pool2d([2, 2], [2, 2], Padding::Valid).item::<f32>()?, 3.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool2d(&self, window: [usize; 2], stride: [usize; 2], padding: impl Into<Padding>) -> Tensor {
        let (at, _method) = (Location::caller(), method("avg_pool2d"));
        let image = [self.extent(1), self.extent(2)];
        let padding = padding.into().resolve(image, window, stride, [1, 1]);
        let pool = SumPool2d { window, stride, padding };
        if let Some(Err(error)) = self.ty().map(|ty| pool.infer(&[ty])) {
            return self.refused(error.0, at);
        }
        Tensor::apply_at(pool.clone(), &[self], at).unless_poisoned(|sums| {
            if padding == [[0; 2]; 2] {
                return sums / (window[0] as f64 * window[1] as f64);
            }
            let shape = Shape::new(&[1, image[0], image[1], 1]);
            let ones = self.nullary(Splat { value: Scalar::from_f64(1.0, self.dtype()), shape }, at);
            sums / Tensor::apply_at(pool, &[&ones], at)
        })
    }

    /// The mean of each channel over height and width of images `[batch, height, width, channels]`: shape
    /// `[batch, channels]`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let image = Tensor::from([[[[1.0_f32], [2.0]], [[3.0], [6.0]]]]);
    /// assert_eq!(image.global_avg_pool2d().to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn global_avg_pool2d(&self) -> Tensor {
        let (at, _method) = (Location::caller(), method("global_avg_pool2d"));
        match self.ty().map(|ty| window::image(0, ty)) {
            Some(Ok([height, width])) => self.sum([1, 2]) / (height * width) as f64,
            Some(Err(e)) => self.refused(e.0, at),
            None => self.clone(),
        }
    }
}
