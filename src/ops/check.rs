//! Type rules that many ops share.

use retape_runtime::{DType, Shape};

use super::TypeError;
use crate::types::TensorType;

/// Fails with a formatted message.
macro_rules! refuse {
    ($($message:tt)*) => {
        return Err($crate::ops::TypeError(format!($($message)*)))
    };
}

pub(crate) use refuse;

/// Exactly `N` arguments.
pub(crate) fn exactly<'t, const N: usize>(args: &[&'t TensorType]) -> Result<[&'t TensorType; N], TypeError> {
    args.try_into().map_err(|_| TypeError(format!("takes {N} arguments, was given {}", args.len())))
}

/// The rule and the remedy where dtypes must be equal.
pub(crate) const UNLIKE_DTYPES: &str =
    "dtypes must be equal; cast one of them, or write a number with its type, as in `0.5_f32`";

/// All arguments have one dtype and one shape.
pub(crate) fn same<'t, const N: usize>(args: &[&'t TensorType]) -> Result<[&'t TensorType; N], TypeError> {
    let args = exactly::<N>(args)?;
    // Dtypes first: arguments of unlike dtypes may be asked about before they have one shape.
    let others = || args.iter().enumerate().skip(1);
    if let Some((position, arg)) = others().find(|(_, arg)| arg.dtype != args[0].dtype) {
        refuse!("argument {position} is {arg}, argument 0 is {}: {UNLIKE_DTYPES}", args[0]);
    }
    if let Some((position, arg)) = others().find(|(_, arg)| **arg != args[0]) {
        refuse!("argument {position} is {arg}, argument 0 is {}: dtypes and shapes must be equal", args[0]);
    }
    Ok(args)
}

/// The argument computes in floating point.
pub(crate) fn float(position: usize, arg: &TensorType) -> Result<(), TypeError> {
    of_dtype(position, arg, "f32 or f64", DType::is_float)
}

/// The argument is a float that there are products of: 16-bit ones too, with sums in `f32`.
pub(crate) fn factor(position: usize, arg: &TensorType) -> Result<(), TypeError> {
    of_dtype(position, arg, "a float", |dtype| dtype.is_float() || dtype.is_half())
}

/// The argument is a number that can be computed with: not `bool`, not a 16-bit float.
pub(crate) fn number(position: usize, arg: &TensorType) -> Result<(), TypeError> {
    of_dtype(position, arg, "a float or an integer", |dtype| dtype.is_float() || dtype.is_int())
}

/// The argument's dtype satisfies a condition described by `wanted`.
pub(crate) fn of_dtype(
    position: usize,
    arg: &TensorType,
    wanted: &str,
    fits: impl Fn(DType) -> bool,
) -> Result<(), TypeError> {
    match arg.dtype {
        dtype if fits(dtype) => Ok(()),
        dtype if dtype.is_half() => {
            refuse!("argument {position} is {arg}; {dtype} is for storage: cast it to f32 first")
        }
        _ => refuse!("argument {position} is {arg}, but must be {wanted}"),
    }
}

/// `N` equal float arguments, which is also the type of the result.
pub(crate) fn float_elementwise<const N: usize>(args: &[&TensorType]) -> Result<TensorType, TypeError> {
    let args = same::<N>(args)?;
    float(0, args[0])?;
    Ok(args[0].clone())
}

/// `N` equal number arguments, which is also the type of the result.
pub(crate) fn number_elementwise<const N: usize>(args: &[&TensorType]) -> Result<TensorType, TypeError> {
    let args = same::<N>(args)?;
    number(0, args[0])?;
    Ok(args[0].clone())
}

/// Axes are ascending, distinct and exist.
pub(crate) fn axes(axes: &[usize], arg: &TensorType) -> Result<(), TypeError> {
    if !axes.is_sorted_by(|a, b| a < b) {
        refuse!("axes {axes:?} must be ascending and distinct");
    }
    match axes.last() {
        Some(&axis) if axis >= arg.rank() => refuse!("axis {axis} is out of range for {arg}"),
        _ => Ok(()),
    }
}

/// The type without some axes.
pub(crate) fn without_axes(arg: &TensorType, axes: &[usize]) -> TensorType {
    let kept = arg.shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    arg.with_shape(kept.map(|(_, &extent)| extent).collect::<Shape>())
}

/// The shape that two shapes broadcast to, by NumPy's rule.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Shape, TypeError> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let joined = (0..rank).map(|axis| match (extent(a, axis), extent(b, axis)) {
        (x, y) if x == y => Ok(x),
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        (x, y) => Err(TypeError(format!(
            "shapes {} and {} do not broadcast: axis {axis} of the result has extent {x} against {y}",
            Shape::new(a),
            Shape::new(b)
        ))),
    });
    joined.collect()
}

/// The shape that all tensors broadcast to.
pub(crate) fn broadcast_all(args: &[&crate::Tensor]) -> Result<Shape, TypeError> {
    let mut shapes = args.iter().map(|arg| Shape::new(arg.shape()));
    let first = shapes.next().unwrap_or_default();
    shapes.try_fold(first, |a, b| broadcast(&a, &b))
}

/// Refuses a result that is too large to address.
pub(crate) fn addressable(ty: TensorType) -> Result<TensorType, TypeError> {
    match ty.checked_bytes() {
        Some(_) => Ok(ty),
        None => refuse!("the result {ty} has more bytes than can be addressed"),
    }
}
