//! How exact code must be.

/// Whether code computes what the formulas say to the last bit, or may trade bits for time.
///
/// Part of the signature: a change compiles anew. It concerns GPUs; code for the processor is always strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MathMode {
    /// IEEE arithmetic, subnormals included, and the same formulas as on the processor for transcendental functions, so
    /// that graphs of pointwise ops give the bits of the processor. Products of `f32` are computed in `f32`.
    #[default]
    Strict,
    /// Products of `f32` may round their operands to TF32 (10 bits of mantissa), and the GPU's approximations may stand
    /// for division, square roots and transcendental functions; [the page on GPUs](crate::guide::gpu) has their errors.
    Fast,
}
