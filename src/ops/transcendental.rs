//! Transcendental functions, element by element; floats only.

use super::attribute::attributes;
use super::{Cotangents, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::graph::TensorType;
use crate::tensor::{Tensor, apply};

/// Hyperbolic tangent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tanh;

attributes! {
    Tanh {}
}

impl OpDef for Tanh {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::float_elementwise::<1>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // Written on the output, so that the forward pass may drop its input; as a product, because `1 - y * y`
        // loses all digits where tanh saturates.
        let y = at.output;
        Cotangents::of([at.ct * (1.0 - y) * (1.0 + y)])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).tanh())
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Tanh, &[&[3, 4]], -4.0..4.0)]
    }
}

impl Tensor {
    /// The hyperbolic tangent of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([0.0_f32]).tanh().to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn tanh(&self) -> Tensor {
        apply(Tanh, &[self])
    }
}
