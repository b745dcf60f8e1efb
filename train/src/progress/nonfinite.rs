//! Finding the op that made a loss NaN or infinite.

use retape::{Accelerated, Function, Tree};

use crate::error::Error;
use crate::guarded::guarded;

/// Does a step once more with the trap for NaN and infinities, and gives its error, which names the op and its line.
///
/// A trap costs time in every step, so a training does without, looks at its loss, and asks here when that is not
/// finite. `call` is the call of the step that made it, with the same arguments, which is why these go in by reference.
///
/// ```
/// use retape::{Tensor, accelerate};
/// use retape_train::progress::nonfinite_error;
///
/// let step = accelerate(|w: &Tensor| (w - 1.0).log().sum(..));
/// let w = Tensor::from([3.0_f32, 0.5]);
/// let loss = step.call(&w)?.item::<f32>()?;
/// let error = if loss.is_finite() { None } else { Some(nonfinite_error(&step, |step| step.call(&w).map(|_| ()))) };
/// assert!(error.unwrap().to_string().contains("log"));
/// # Ok::<(), retape_train::Error>(())
/// ```
pub fn nonfinite_error<F, Args, R>(
    step: &Accelerated<F, Args, R>,
    call: impl FnOnce(&Accelerated<F, Args, R>) -> retape::Result<()>,
) -> Error
where
    F: Function<Args, R>,
    R: Tree,
{
    let was_on = step.options().trap_nonfinite;
    step.configure(|options| options.trap_nonfinite = true);
    // A panic must not leave the trap on.
    let outcome = guarded(|| "the step".to_owned(), || Ok(call(step)?));
    step.configure(|options| options.trap_nonfinite = was_on);
    match outcome {
        Err(error) => error,
        Ok(()) => {
            Error::custom("the loss is not finite, but no op of the step made a value that is not from finite ones")
        }
    }
}
