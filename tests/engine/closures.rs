//! Functions to accelerate, in every form that Rust has for them, and boxes of accelerated functions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use retape::{Accelerable, Accelerated, Boxed, Function, OnRetrace, Result, Static, Tensor, Tree, accelerate};

fn ones(n: usize) -> Tensor {
    Tensor::ones([n])
}

#[track_caller]
fn is(result: Result<Tensor>, expected: &[f32]) {
    assert_eq!(result.unwrap().to_vec::<f32>().unwrap(), expected);
}

fn double(x: &Tensor) -> Tensor {
    x + x
}

fn sum<T: Tree>(x: &Tensor, _: &T) -> Tensor {
    x.sum(..)
}

struct Scale {
    by: f32,
}

impl Scale {
    fn apply(&self, x: &Tensor) -> Tensor {
        x * self.by
    }
}

#[test]
fn functions_of_every_form() {
    is(accelerate(double).call(ones(2)), &[2.0, 2.0]);
    is(accelerate(Tensor::neg_twice).call(ones(1)), &[-2.0]);
    is(accelerate(Tensor::matmul).call(ones(2), ones(2)), &[2.0]);
    is(accelerate(sum::<Vec<Tensor>>).call(ones(3), vec![ones(1)]), &[3.0]);
    is(accelerate(double as fn(&Tensor) -> Tensor).call(ones(1)), &[2.0]);
    let stored = |x: &Tensor| x * 3.0;
    is(accelerate(stored).call(ones(1)), &[3.0]);
    is(accelerate(&stored).call(ones(1)), &[3.0]);
    is(accelerate(Box::new(stored)).call(ones(1)), &[3.0]);
    let boxed: Box<dyn Fn(&Tensor) -> Tensor> = Box::new(stored);
    is(accelerate(boxed).call(ones(1)), &[3.0]);
    let object: &dyn Fn(&Tensor) -> Tensor = &stored;
    is(accelerate(object).call(ones(1)), &[3.0]);
    let scale = Scale { by: 4.0 };
    is(accelerate(|x: &Tensor| scale.apply(x)).call(ones(1)), &[4.0]);
    is(accelerate(move |x: &Tensor| scale.apply(x)).call(1.0_f32), &[4.0]);
    let made = |by: f32| move |x: &Tensor| x * by;
    is(accelerate(made(5.0)).call(ones(1)), &[5.0]);
    // The type of the field decides which function pointer it is.
    let field: Accelerated<fn(&Tensor) -> Tensor, (Tensor,), Tensor> = accelerate(double);
    is(field.call(ones(1)), &[2.0]);
}

trait NegTwice {
    fn neg_twice(&self) -> Tensor;
}

impl NegTwice for Tensor {
    fn neg_twice(&self) -> Tensor {
        -(self + self)
    }
}

#[test]
fn arguments_and_results_of_every_form() {
    let patterns = accelerate(|(a, b): &(Tensor, Tensor), [c, d]: &[Tensor; 2], Static(by): &Static<f32>| {
        ((a + b) * (c - d) * *by, (), vec![Some(a.clone()), None])
    });
    let (y, (), options) = patterns.call((ones(1), ones(1)), [ones(1), ones(1) * 3.0], Static(0.5)).unwrap();
    assert_eq!((y.item::<f32>().unwrap(), options.len()), (-2.0, 2));
    let eight = accelerate(
        |a: &Tensor, b: &bool, c: &String, d: &Vec<Tensor>, e: &BTreeMap<u8, Tensor>, f: &(), g: &Tensor, h: &u64| {
            let _ = (b, c, f, h);
            a + &d[0] + &e[&1] + g
        },
    );
    let map = BTreeMap::from([(1, ones(1))]);
    is(eight.call(ones(1), true, "c".to_owned(), vec![ones(1)], map, (), 2.0_f32, 7_u64), &[5.0]);
    // A closure may be there for what it does, and return nothing.
    let entered = AtomicU64::new(0);
    let nothing = accelerate(|_: &Tensor| _ = entered.fetch_add(1, Relaxed));
    nothing.configure(|options| options.stale_check = false);
    for _ in 0..3 {
        nothing.call(ones(1)).unwrap();
    }
    assert_eq!(entered.load(Relaxed), 1);
}

fn generic<F, Args, R, How>(function: F) -> Accelerated<F, Args, R>
where
    F: Accelerable<Args, R, How>,
{
    accelerate(function)
}

/// Calls need no bound on the function, and no lifetime on the arguments.
fn twice<F, A: Tree, R: Tree>(f: &Accelerated<F, (A,), R>, x: &A) -> [R; 2] {
    [f.call(x).unwrap(), f.call(x).unwrap()]
}

fn by_function<F: Function<(Tensor,), Tensor>>(f: &Accelerated<F, (Tensor,), Tensor>) -> Tensor {
    f.function().apply(&(ones(1),))
}

#[test]
fn generic_code_passes_functions_on() {
    let f = generic(|x: &Tensor| x + 1.0);
    let [y, z] = twice(&f, &ones(1));
    assert_eq!((y.item::<f32>().unwrap(), z.item::<f32>().unwrap()), (2.0, 2.0));
    assert_eq!((f.stats().hits, f.stats().misses), (1, 1));
    assert_eq!(by_function(&f).item::<f32>().unwrap(), 2.0);
    assert_eq!(by_function(&f.boxed()).item::<f32>().unwrap(), 2.0);
}

struct Trainer {
    step: Boxed<(Tensor, Tensor), (Tensor, Tensor)>,
    names: Vec<&'static str>,
}

/// A box is the same accelerated function: entries, counters and settings stay, and a hit does not open it.
#[test]
fn a_box_is_the_function_it_was_made_of() {
    let entered = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&entered);
    let step = accelerate(move |w: &Tensor, x: &Tensor| {
        counted.fetch_add(1, Relaxed);
        let loss = (w * x).square().sum(..);
        (w - loss.grad(w) * 0.25, loss)
    });
    step.configure(|options| options.stale_check = false);
    step.call(ones(2), ones(2)).unwrap();
    step.configure(|options| options.capacity = 3);
    let trainer = Trainer { step: step.boxed(), names: vec!["w"] };
    let (w, loss) = trainer.step.call(ones(2), ones(2)).unwrap();
    assert_eq!((w.to_vec::<f32>().unwrap(), loss.item::<f32>().unwrap()), (vec![0.5, 0.5], 2.0));
    assert_eq!((trainer.step.stats().hits, trainer.step.stats().misses, trainer.step.options().capacity), (1, 1, 3));
    assert_eq!((entered.load(Relaxed), trainer.names.len()), (1, 1));
    trainer.step.call(ones(3), ones(3)).unwrap();
    assert_eq!(entered.load(Relaxed), 2);
    // Everything else works as well: pins, the un-accelerated path, policies, bisection, threads.
    let pinned = trainer.step.pin(ones(3), ones(3)).unwrap();
    assert_eq!(pinned.call(ones(3), ones(3)).unwrap().1.item::<f32>().unwrap(), 3.0);
    assert!(trainer.step.bisect(ones(3), ones(3)).unwrap().value.is_none());
    trainer.step.configure(|options| options.retrace = OnRetrace::Error.into());
    assert!(trainer.step.call(ones(4), ones(4)).is_err());
    trainer.step.configure(|options| options.enabled = false);
    std::thread::scope(|scope| {
        let call = || trainer.step.call(ones(4), ones(4)).unwrap().1.item::<f32>().unwrap();
        assert_eq!(scope.spawn(call).join().unwrap(), 4.0);
    });
}

/// An artefact is for the function, boxed or not.
#[test]
fn a_box_reads_what_the_function_wrote_and_the_other_way_round() {
    let function = || accelerate(|x: &Tensor| x * 7.0);
    let (plain, boxed) = (function(), function().boxed());
    plain.call(ones(2)).unwrap();
    boxed.call(ones(3)).unwrap();
    let (mut of_plain, mut of_boxed) = (vec![], vec![]);
    plain.save_to(&mut of_plain).unwrap();
    boxed.save_to(&mut of_boxed).unwrap();
    boxed.load_from(&of_plain[..]).unwrap();
    plain.load_from(&of_boxed[..]).unwrap();
    is(boxed.call(ones(2)), &[7.0, 7.0]);
    is(plain.call(ones(3)), &[7.0; 3]);
    assert_eq!((boxed.stats().misses, plain.stats().misses), (1, 1));
}

#[test]
fn functions_of_many_kinds_are_in_one_list() {
    let scaled = |by: f32| accelerate(move |x: &Tensor| x * by).boxed();
    let mut list: Vec<Boxed<(Tensor,), Tensor>> = vec![accelerate(double).boxed(), accelerate(Tensor::square).boxed()];
    list.extend((1..4).map(|by| scaled(by as f32)));
    let values: Vec<f32> = list.iter().map(|f| f.call(3.0_f32).unwrap().item().unwrap()).collect();
    assert_eq!(values, [6.0, 9.0, 3.0, 6.0, 9.0]);
}
