//! Gradients of tensors and of closures.

use std::panic::Location;

use crate::autodiff::{self, Unused};
use crate::diagnose::nonfinite;
use crate::error::{Caller, Error, Result, caught};
use crate::placement::{common_device, is_number};
use crate::tape::Tape;
use crate::tensor::{Tensor, Traced};
use crate::tree::{Reader, Tree, Writer, map};
use crate::{eager, trace};

impl Tensor {
    /// The gradient of this scalar with respect to every tensor of `wrt`, in the same structure.
    ///
    /// Both belong to one trace: call it inside a closure given to [`accelerate`](crate::accelerate) or
    /// [`value_and_grad`]. The result is recorded as ordinary ops and can be differentiated again.
    ///
    /// Poisoned if this is not a scalar, if a leaf of `wrt` is not a float tensor of the trace, or if this does not
    /// depend on it.
    ///
    /// ```
    /// # use retape::{accelerate, Tensor};
    /// let slope = accelerate(|x: &Tensor| x.square().sum(..).grad(x));
    /// assert_eq!(slope.call(Tensor::from([1.0_f32, 2.0]))?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn grad<T: Tree>(&self, wrt: &T) -> T {
        gradient(self, wrt, "", Unused::Refuse, Location::caller())
    }

    /// As [`grad`](Tensor::grad), but zero for what this scalar does not depend on.
    ///
    /// ```
    /// # use retape::{accelerate, Tensor};
    /// let slopes = accelerate(|p: &(Tensor, Tensor)| p.0.square().sum(..).grad_or_zero(p));
    /// let (first, second) = slopes.call(&(Tensor::from([3.0_f32]), Tensor::from([5.0_f32])))?;
    /// assert_eq!((first.item::<f32>()?, second.item::<f32>()?), (6.0, 0.0));
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn grad_or_zero<T: Tree>(&self, wrt: &T) -> T {
        gradient(self, wrt, "", Unused::Zero, Location::caller())
    }
}

/// The argument of a function that is differentiated, as errors call it.
const ARGUMENT: &str = "argument 0";

/// How errors call the tensors of a tree, which itself is called `root`, or nothing.
fn names(leaves: &Writer<'_>, root: &str) -> impl Fn(usize) -> String {
    let paths = leaves.tensor_paths(root);
    move |position| match paths.get(position) {
        Some(path) if !path.is_empty() => path.clone(),
        _ => "the tensor".to_owned(),
    }
}

fn gradient<T: Tree>(loss: &Tensor, wrt: &T, root: &str, unused: Unused, at: Caller) -> T {
    let mut leaves = Writer::with_paths();
    wrt.write(&mut leaves);
    let name = names(&leaves, root);
    let scalar = loss.error().is_some() || loss.n_elements() == 1;
    let gradients = if scalar {
        let one = loss.constant_like(1.0, at);
        autodiff::vjp(&[(loss, one)], &leaves.tensors, unused, &name, at)
    } else {
        let message = format!("the value has shape {:?}, not one element; use `vjp` with a cotangent", loss.shape());
        let error = Error::Gradient { message, at, call: None };
        let poison = loss.as_traced().map(|traced| traced.recording.fail(error.clone()));
        vec![poison.unwrap_or_else(|| Tensor::poisoned(error)); leaves.tensors.len()]
    };
    T::read(&mut Reader::new(&leaves.words, &gradients)).expect("a tree reads what it wrote")
}

/// The value of a scalar function and its gradient with respect to its argument.
///
/// Outside a trace the function is traced and its ops run one by one, except that accelerated functions which it calls
/// run as compiled code, forward and backward. Inside a trace it becomes part of that trace.
///
/// # Errors
///
/// Fails if the function is ill-typed for this argument or panics.
///
/// ```
/// # use retape::{value_and_grad, Tensor};
/// let (y, dy) = value_and_grad(|x: &Tensor| x.square().sum(..), &Tensor::from([3.0_f64]))?;
/// assert_eq!((y.item::<f64>()?, dy.item::<f64>()?), (9.0, 6.0));
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn value_and_grad<T: Tree>(f: impl Fn(&T) -> Tensor, at: &T) -> Result<(Tensor, T)> {
    let caller = Location::caller();
    run("value_and_grad", at, caller, |x: &T| {
        let value = f(x);
        let gradient = gradient(&value, x, ARGUMENT, Unused::Refuse, caller);
        (value, gradient)
    })
}

/// As [`value_and_grad`], for a function that returns more than the scalar: new statistics of a layer, say, or scores,
/// which have no part in the gradient.
///
/// # Errors
///
/// As [`value_and_grad`].
///
/// ```
/// use retape::{Tensor, value_and_grad_aux};
///
/// let x = Tensor::from([3.0_f32, 4.0]);
/// let ((norm, largest), dx) = value_and_grad_aux(|x: &Tensor| (x.square().sum(..).sqrt(), x.max(..)), &x)?;
/// assert_eq!((norm.item::<f32>()?, largest.item::<f32>()?, dx.to_vec::<f32>()?), (5.0, 4.0, vec![0.6, 0.8]));
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn value_and_grad_aux<T: Tree, A: Tree>(f: impl Fn(&T) -> (Tensor, A), at: &T) -> Result<((Tensor, A), T)> {
    let caller = Location::caller();
    run("value_and_grad_aux", at, caller, |x: &T| {
        let (value, aux) = f(x);
        let gradient = gradient(&value, x, ARGUMENT, Unused::Refuse, caller);
        ((value, aux), gradient)
    })
}

/// The value of a function and the product of `cotangents` with its Jacobian. Cotangents of integers and truth values
/// among the results are not looked at.
///
/// # Errors
///
/// Fails if the function is ill-typed for this argument or panics, or if the cotangents do not fit its results.
///
/// ```
/// # use retape::{vjp, Tensor};
/// let x = Tensor::from([1.0_f64, 2.0]);
/// let (y, dx) = vjp(|x: &Tensor| x.square(), &x, &Tensor::from([1.0_f64, 10.0]))?;
/// assert_eq!(dx.to_vec::<f64>()?, [2.0, 40.0]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn vjp<T: Tree, R: Tree>(f: impl Fn(&T) -> R, at: &T, cotangents: &R) -> Result<(R, T)> {
    let caller = Location::caller();
    run("vjp", at, caller, |x: &T| {
        let value = f(x);
        let gradient = pull_back(&value, x, cotangents, caller);
        (value, gradient)
    })
}

fn pull_back<T: Tree, R: Tree>(value: &R, x: &T, ct: &R, at: Caller) -> T {
    let (mut values, mut wrt) = (Writer::default(), Writer::with_paths());
    value.write(&mut values);
    let ct = numbers_sent(ct, &values.tensors);
    let mut cotangents = Writer::default();
    ct.write(&mut cotangents);
    x.write(&mut wrt);
    let name = names(&wrt, ARGUMENT);
    let gradients = if values.words == cotangents.words {
        let pairs = values.tensors.iter().zip(cotangents.tensors.iter()).map(|(value, ct)| (*value, Tensor::clone(ct)));
        let (floats, others): (Vec<_>, Vec<_>) = pairs.partition(|(value, _)| value.dtype().is_float());
        // Integers and truth values have no gradient, and need none where something else has one.
        let seeds: Vec<(&Tensor, Tensor)> = if floats.is_empty() { others } else { floats };
        autodiff::vjp(&seeds, &wrt.tensors, Unused::Zero, &name, at)
    } else {
        let pairs = values.tensors.iter().zip(cotangents.tensors.iter());
        let elsewhere = pairs.filter(|(value, ct)| value.ty() == ct.ty());
        let elsewhere = elsewhere.map(|(value, ct)| common_device("vjp", &[value, ct], at)).find_map(Result::err);
        let message = "the cotangents do not have the structure of the value";
        let error = elsewhere.unwrap_or_else(|| Error::Gradient { message: message.into(), at, call: None });
        let traced = values.tensors.iter().chain(wrt.tensors.iter()).find_map(|tensor| tensor.as_traced());
        let poison = traced.map(|traced| traced.recording.fail(error.clone()));
        vec![poison.unwrap_or_else(|| Tensor::poisoned(error)); wrt.tensors.len()]
    };
    T::read(&mut Reader::new(&wrt.words, &gradients)).expect("a tree reads what it wrote")
}

/// Cotangents of which those that are numbers in main memory are where their values are: numbers fit anywhere.
fn numbers_sent<R: Tree>(ct: &R, values: &[&Tensor]) -> R {
    let mut values = values.iter();
    map(ct, |ct| match values.next().map(|value| value.device()) {
        Some(device) if is_number(ct) && ct.as_concrete().is_some() => ct.to(device),
        _ => ct.clone(),
    })
}

/// Runs a function that differentiates: on the tape its arguments are on, or on a fresh one that is evaluated at once.
fn run<T: Tree, R: Tree>(method: &'static str, at: &T, caller: Caller, f: impl Fn(&T) -> R) -> Result<R> {
    caught(|| differentiate(method, at, caller, f))
}

fn differentiate<T: Tree, R: Tree>(method: &'static str, at: &T, caller: Caller, f: impl Fn(&T) -> R) -> Result<R> {
    let mut leaves = Writer::default();
    at.write(&mut leaves);
    leaves.check()?;
    if let Some(tape) = leaves.tensors.iter().find_map(|tensor| tensor.as_traced()).map(Traced::tape) {
        let lifted = trace::stand_ins(&tape, &leaves.tensors, caller);
        return Ok(f(&T::read(&mut Reader::new(&leaves.words, &lifted))?));
    }
    let tape = Tape::evaluated(common_device(method, &leaves.tensors, caller)?);
    let parameter = |tensor: &&Tensor| tape.parameter_on(tensor.ty().expect("concrete").clone(), tensor.device());
    let params: Vec<Tensor> = leaves.tensors.iter().map(parameter).collect();
    let traced = trace::flatten(&tape, || Ok(f(&T::read(&mut Reader::new(&leaves.words, &params))?)))
        .map_err(|error| trace::in_words_of_caller(&tape, error, at))
        .map_err(|error| tape.in_call(error, || method.into(), caller))?;
    if tape.is_trapped()
        && let Some(found) = nonfinite::find(&traced, &leaves.tensors, caller)?
    {
        return Err(Error::NonFinite(Box::new(found)));
    }
    let results = eager::evaluate(&traced, &leaves.tensors)?;
    R::read(&mut Reader::new(&traced.words, &results))
}
