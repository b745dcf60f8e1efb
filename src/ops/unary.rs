//! The macro for ops of one argument, computed element by element.

/// Declares ops `f(x)` of one tensor, each as one block: the public method with its docs, the derivative as a formula
/// of the argument `x`, the result `y` and the cotangent `ct`, the formula per element, and the interval of samples.
///
/// The check names the dtypes: `float` or `number`. Without a derivative the function is constant between its steps.
macro_rules! unary {
    (@vjp $at:ident) => {{
        let _ = $at;
        $crate::ops::Cotangents::zero("the function is constant between its steps")
    }};
    (@vjp $at:ident, $x:ident, $y:ident, $ct:ident, $derivative:expr) => {{
        let ($x, $y, $ct) = (&$at.args[0], $at.output, $at.ct);
        let _ = ($x, $y);
        $crate::ops::Cotangents::of([$derivative])
    }};
    ($(
        $(#[$doc:meta])*
        $op:ident $method:ident: $check:ident in $range:expr;
        $(d($x:ident, $y:ident, $ct:ident) = $derivative:expr;)?
        f($v:ident) = $lowered:expr;
    )*) => {$(
        #[doc = concat!("The op of [`Tensor::", stringify!($method), "`](crate::Tensor::", stringify!($method), ").")]
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $op;

        $crate::ops::attribute::attributes! {
            $op {}
        }

        impl $crate::ops::OpDef for $op {
            fn infer(
                &self,
                args: &[&$crate::types::TensorType],
            ) -> Result<$crate::types::TensorType, $crate::ops::TypeError> {
                let [x] = $crate::ops::check::exactly::<1>(args)?;
                $crate::ops::check::$check(0, x)?;
                Ok(x.clone())
            }

            fn vjp(&self, at: &$crate::ops::Site<'_>) -> $crate::ops::Cotangents {
                $crate::ops::unary::unary!(@vjp at $(, $x, $y, $ct, $derivative)?)
            }

            fn lower(&self, _: &[&$crate::types::TensorType], _: &$crate::types::TensorType) -> $crate::ops::Lowering {
                $crate::ops::Lowering::pointwise(|at| {
                    let $v = at.arg(0);
                    $lowered
                })
            }

            fn facts(&self) -> $crate::ops::Facts {
                $crate::ops::Facts::PLAIN
            }

            fn in_dtypes(&self, _: fn(retape_runtime::DType) -> retape_runtime::DType) -> Self {
                self.clone()
            }

            fn samples() -> Vec<$crate::ops::Sample> {
                vec![$crate::ops::Sample::floats($op, &[&[3, 4]], $range)]
            }
        }

        impl $crate::tensor::Tensor {
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self) -> $crate::tensor::Tensor {
                $crate::Tensor::apply($op, &[self])
            }
        }
    )*};
}

pub(crate) use unary;
