//! Functions inside traces: a gradient is by the argument, even if another input is the same tensor.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Barrier, LazyLock, Mutex, OnceLock};

use retape::ops::Padding;
use retape::{Accelerated, Error, Result, Tensor, accelerate, value_and_grad, vjp};

fn x() -> Tensor {
    Tensor::from([1.0_f64, 2.0])
}

fn elements(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

#[test]
fn an_argument_given_twice_is_two_arguments() {
    let by_first = accelerate(|a: &Tensor, b: &Tensor| (a * b).sum(..).grad(a));
    assert_eq!(elements(&by_first.call(x(), x()).unwrap()), [1.0, 2.0]);
    let inlined = accelerate(|x: &Tensor| by_first.call(x, x).unwrap());
    assert_eq!(elements(&inlined.call(x()).unwrap()), [1.0, 2.0]);
    inlined.configure(|options| options.enabled = false);
    assert_eq!(elements(&inlined.call(x()).unwrap()), [1.0, 2.0]);
}

#[test]
fn leaves_of_one_tensor_are_differentiated_apart() {
    let product = |(a, b): &(Tensor, Tensor)| (a * b).sum(..);
    let both = |x: &Tensor| value_and_grad(product, &(x.clone(), x.clone())).unwrap().1;
    let (a, b) = accelerate(move |x: &Tensor| both(x)).call(x()).unwrap();
    assert_eq!((elements(&a), elements(&b)), (vec![1.0, 2.0], vec![1.0, 2.0]));
    let (a, b) = both(&x());
    assert_eq!((elements(&a), elements(&b)), (vec![1.0, 2.0], vec![1.0, 2.0]));
}

#[test]
fn a_captured_copy_of_the_argument_is_a_constant() {
    let inside = accelerate(|x: &Tensor| vjp(|y: &Tensor| y * x, x, x).unwrap().1);
    assert_eq!(elements(&inside.call(x()).unwrap()), [1.0, 4.0]);
    // d/dx of sum(2 x x) with the inner derivative taken by y alone: d/dy y y x = 2 y x, at y = x.
    let inner = |x: &Tensor| value_and_grad(|y: &Tensor| (y * y * x).sum(..), x).unwrap().1.sum(..);
    let (value, gradient) = value_and_grad(inner, &x()).unwrap();
    assert_eq!((value.item::<f64>().unwrap(), elements(&gradient)), (10.0, vec![4.0, 8.0]));
}

#[test]
fn a_concrete_argument_of_a_nested_call_can_be_differentiated_by() {
    let by_first = accelerate(|a: &Tensor, b: &Tensor| (a * b).sum(..).grad(a));
    let constant = x();
    let outer = accelerate(|x: &Tensor| by_first.call(&constant, x).unwrap());
    assert_eq!(elements(&outer.call(Tensor::from([5.0_f64, 7.0])).unwrap()), [5.0, 7.0]);
}

#[test]
fn folds_over_nothing_have_a_value() {
    let empty = Tensor::zeros([0, 3]);
    for function in [
        (|w: &Tensor| w.flatten().sum(..)) as fn(&Tensor) -> Tensor,
        |w| w.reshape([0, 1]).exp().sum(..),
        |w| w.reshape([3, 0]).sum(..),
        |w| w.sum(0).sum(..),
        |w| (w.sum(0) + 1.0).exp().sum(..) * 0.0,
    ] {
        let fast = accelerate(function);
        assert_eq!(fast.call(&empty).unwrap().item::<f32>().unwrap(), 0.0);
        fast.configure(|options| options.enabled = false);
        assert_eq!(fast.call(&empty).unwrap().item::<f32>().unwrap(), 0.0);
    }
}

#[test]
fn what_is_too_large_is_an_error() {
    assert!(matches!(Tensor::arange(usize::MAX).error(), Some(Error::Type { .. })));
    assert!(Tensor::arange(1 << 50).error().is_some());
    assert_eq!(Tensor::arange(4).to_vec::<i64>().unwrap(), [0, 1, 2, 3]);
    let image = Tensor::ones([1, 2, 3, 2]);
    for pooled in [
        image.max_pool2d([usize::MAX, 1], [1, 1], Padding::Same),
        image.avg_pool2d([1 << 40, 1 << 40], [1, 1], Padding::Same),
        image.avg_pool2d([1, 1], [1 << 62, 1], Padding::Same),
    ] {
        assert!(matches!(pooled.error(), Some(Error::Type { .. })), "{pooled}");
    }
    let parts = Tensor::ones([4]).chunk(0, 0);
    assert!(matches!(parts[0].error(), Some(Error::Type { .. })));
}

type Slot = OnceLock<Accelerated<Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>, (Tensor,), Tensor>>;

/// Two functions that need each other's values, each traced by its own thread: one of them must give up.
#[test]
fn functions_that_wait_for_each_other_do_not_wait_forever() {
    let (first, second): (Arc<Slot>, Arc<Slot>) = (Arc::default(), Arc::default());
    let both_trace = Arc::new(Barrier::new(2));
    for (own, other) in [(&first, &second), (&second, &first)] {
        let (other, both_trace) = (Arc::clone(other), Arc::clone(&both_trace));
        let once = OnceLock::new();
        let body = move |x: &Tensor| {
            // Both have begun before either asks for the other; later calls do not wait.
            once.get_or_init(|| both_trace.wait());
            let found: Result<Tensor> = other.get().unwrap().call(Tensor::ones([2]));
            x + found.unwrap_or_else(|_| Tensor::zeros([2]))
        };
        let boxed: Box<dyn Fn(&Tensor) -> Tensor + Send + Sync> = Box::new(body);
        assert!(own.set(accelerate(boxed)).is_ok());
    }
    std::thread::scope(|scope| {
        let calls = [&first, &second].map(|slot| scope.spawn(|| slot.get().unwrap().call(Tensor::ones([2])).is_ok()));
        let ended = calls.map(|call| call.join().unwrap());
        assert!(ended.contains(&true), "at least one of them has a value");
    });
}

#[test]
fn a_function_that_calls_itself_with_its_argument_is_an_error() {
    type Recursive = Accelerated<fn(&Tensor) -> Tensor, (Tensor,), Tensor>;
    static F: LazyLock<Recursive> = LazyLock::new(|| accelerate(again as fn(&Tensor) -> Tensor));
    static SEEN: Mutex<Option<Error>> = Mutex::new(None);

    fn again(x: &Tensor) -> Tensor {
        F.call(x * 0.5_f32).unwrap_or_else(|error| {
            SEEN.lock().unwrap().get_or_insert(error);
            x.clone()
        })
    }

    let y = F.call(Tensor::ones([2])).unwrap();
    assert!(y.to_vec::<f32>().unwrap()[0] < 1e-15);
    let error = SEEN.lock().unwrap().take().unwrap().to_string();
    assert!(error.contains("does one call itself?") && error.contains(file!()), "{error}");
    // Nesting that ends is none of this, and neither is what comes after an error.
    let inner = accelerate(|x: &Tensor| x + 1.0_f32);
    let outer = accelerate(|x: &Tensor| inner.call(x).unwrap() * 2.0_f32);
    assert_eq!(outer.call(Tensor::ones([2])).unwrap().to_vec::<f32>().unwrap(), [4.0, 4.0]);
}

#[test]
fn an_argument_whose_trace_has_ended_is_an_error_of_the_call() {
    let mut slot = None;
    let kept = std::cell::RefCell::new(&mut slot);
    value_and_grad(
        |w: &Tensor| {
            **kept.borrow_mut() = Some(w * 2.0_f32);
            w.sum(..)
        },
        &Tensor::ones([2]),
    )
    .unwrap();
    let f = accelerate(|x: &Tensor, y: &Tensor| x + y);
    let error = f.call(Tensor::ones([2]), slot.unwrap()).unwrap_err();
    assert!(matches!(error, Error::Escaped { op: "call", .. }), "{error}");
    assert_eq!((f.stats().misses, f.stats().hits), (0, 0));
}

#[test]
fn results_without_gradients_pass_through_vjp() {
    let x = Tensor::from([1.0_f64, 2.0]);
    let f = |x: &Tensor| (x.square(), x.gt(1.5_f64), Tensor::from([7_i64]));
    let cotangents = (Tensor::from([1.0_f64, 1.0]), Tensor::from([false, false]), Tensor::from([0_i64]));
    let ((_, is_large, counter), dx) = vjp(f, &x, &cotangents).unwrap();
    assert_eq!(dx.to_vec::<f64>().unwrap(), [2.0, 4.0]);
    assert_eq!((is_large.to_vec::<bool>().unwrap(), counter.to_vec::<i64>().unwrap()), (vec![false, true], vec![7]));
}
