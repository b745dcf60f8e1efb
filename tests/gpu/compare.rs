//! Tensors of one device against those of another.

use retape::{DType, Device, Tensor, Tree, bf16, f16, map};

/// The tensors of a tree, moved to a device.
pub(crate) fn to<T: Tree>(tree: &T, device: Device) -> T {
    map(tree, |tensor| tensor.to(device))
}

/// The tensors of a tree.
pub(crate) fn leaves<T: Tree>(tree: &T) -> Vec<Tensor> {
    let mut all = vec![];
    map(tree, |tensor| {
        all.push(tensor.clone());
        tensor.clone()
    });
    all
}

/// The elements with their bits; all NaN of a dtype are alike.
pub(crate) fn bits(tensor: &Tensor) -> Vec<u64> {
    fn of<T: retape::Element>(tensor: &Tensor, bits: impl Fn(T) -> u64) -> Vec<u64> {
        tensor.to_vec::<T>().unwrap_or_else(|e| panic!("{e}")).into_iter().map(bits).collect()
    }
    match tensor.dtype() {
        DType::F64 => of(tensor, |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() }),
        DType::F32 => of(tensor, |x: f32| if x.is_nan() { u64::MAX } else { x.to_bits().into() }),
        DType::F16 => of(tensor, |x: f16| if x.is_nan() { u64::MAX } else { x.to_bits().into() }),
        DType::Bf16 => of(tensor, |x: bf16| if x.is_nan() { u64::MAX } else { x.to_bits().into() }),
        DType::I64 => of(tensor, |x: i64| x as u64),
        DType::I32 => of(tensor, |x: i32| x as u64),
        DType::U32 => of(tensor, |x: u32| x.into()),
        DType::U8 => of(tensor, |x: u8| x.into()),
        DType::Bool => of(tensor, |x: bool| x.into()),
    }
}

/// The bits of all tensors of a tree.
pub(crate) fn all_bits<T: Tree>(tree: &T) -> Vec<Vec<u64>> {
    leaves(tree).iter().map(bits).collect()
}

/// The largest difference of two tensors' elements in proportion to the largest of the first, or 0 if their bits are
/// the same; infinite if one is not finite where the other is another.
pub(crate) fn apart(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    if bits(a) == bits(b) {
        return 0.0;
    }
    let elements = |x: &Tensor| x.to(Device::Cpu).cast(DType::F64).to_vec::<f64>().unwrap();
    let (a, b) = (elements(a), elements(b));
    let scale = a.iter().filter(|x| x.is_finite()).fold(f64::MIN_POSITIVE, |scale, x| scale.max(x.abs()));
    let difference = |(a, b): (&f64, &f64)| if a == b || a.is_nan() && b.is_nan() { 0.0 } else { (a - b).abs() };
    let differences = a.iter().zip(&b).map(difference);
    differences.map(|d| if d.is_nan() { f64::INFINITY } else { d / scale }).fold(0.0, f64::max)
}

/// Numbers in `[-1, 1)` that never repeat soon.
pub(crate) fn ramp(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (((i + seed) * 7919) % 1013) as f32 * 2e-3 - 1.0).collect();
    Tensor::from_vec(values, shape).unwrap()
}
