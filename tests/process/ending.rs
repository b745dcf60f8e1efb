//! Calls from the destructors of thread-local values, when those of the library are gone.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use retape::ops::ConvOptions;
use retape::random::{self, Key};
use retape::{Accelerated, DType, Tensor, accelerate, value_and_grad};

use crate::alone;

/// Work for the end of a thread.
struct Last(Option<Box<dyn FnOnce()>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
}

/// The order in which a thread comes by its work for the end and uses the library. Values are destroyed in the reverse
/// of the order in which they were first used.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// The library's own values are gone when the work begins.
    WorkFirst,
    /// They are still there.
    LibraryFirst,
    /// The library is not used before.
    WorkOnly,
}

/// The result of some work that runs while a thread ends.
fn at_the_end<T: Send + 'static>(order: Order, before: fn(), work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        if order == Order::LibraryFirst {
            before();
        }
        let work = move || {
            // A panic in a destructor at this point would end the process.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        };
        LAST.with_borrow_mut(|last| last.0 = Some(Box::new(work)));
        if order == Order::WorkFirst {
            before();
        }
    });
    thread.join().unwrap();
    receiver.recv().unwrap().unwrap_or_else(|_| panic!("it panics where the order is {order:?}"))
}

/// Uses all that the library keeps by thread: memory, lists, scratch of compilers and products, profiles, numbers.
fn everything() {
    let x = Tensor::iota(DType::F32, [96, 96], 0) * 1e-2;
    let leaves: Vec<Tensor> = (0..100).map(|n| Tensor::from(n as f32)).collect();
    let product = accelerate(|x: &Tensor, by: &Vec<Tensor>| x.matmul(x) * &by[3] + x.sin());
    product.configure(|options| options.profiling = true);
    for _ in 0..3 {
        product.call(&x, &leaves).unwrap();
    }
    let image = x.reshape([1, 96, 96, 1]);
    image.conv2d(&Tensor::ones([3, 3, 1, 8]), ConvOptions::same()).to_vec::<f32>().unwrap();
    value_and_grad(|x: &Tensor| x.matmul(x).tanh().sum(..), &x).unwrap();
}

type Square = Accelerated<fn(&Tensor) -> Tensor, (Tensor,), Tensor>;

fn square() -> Square {
    accelerate((|x: &Tensor| x.matmul(x).tanh() + 1.0) as fn(&Tensor) -> Tensor)
}

fn matrix(n: usize) -> Tensor {
    (Tensor::iota(DType::F32, [n, n], 0) - Tensor::iota(DType::F32, [n, n], 1)) * 1e-3
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

const ORDERS: [Order; 3] = [Order::WorkFirst, Order::LibraryFirst, Order::WorkOnly];

#[test]
fn hits_and_misses_at_the_end_of_a_thread_are_as_good_as_any() {
    let _alone = alone();
    for (n, order) in ORDERS.into_iter().enumerate() {
        // Extents that no other round has, so that there is something to compile.
        let (known, new) = (matrix(70 + n), matrix(80 + n));
        let expected = [&known, &new].map(|x| bits(&square().call(x).unwrap()));
        let function: &'static Square = Box::leak(Box::new(square()));
        function.call(&known).unwrap();
        for is_profiled in [false, true] {
            function.clear_cache();
            function.call(&known).unwrap();
            function.configure(|options| options.profiling = is_profiled);
            let (known, new) = (known.clone(), new.clone());
            let found = at_the_end(order, everything, move || {
                // A hit, a miss, a hit on it; by value, too.
                [function.call(&known), function.call(&new), function.call(&new), function.call(new.clone())]
                    .map(|result| bits(&result.unwrap()))
            });
            assert_eq!(found, [0, 1, 1, 1].map(|n| expected[n].clone()), "{order:?}");
            if is_profiled {
                let kinds: Vec<String> =
                    function.profile().calls.iter().map(|call| format!("{:?}", call.kind)).collect();
                assert_eq!(kinds, ["Hit", "Miss", "Hit", "Hit"], "{order:?}");
            }
        }
        assert_eq!((function.stats().entries.len(), function.stats().waits), (2, 0));
    }
}

#[test]
fn ops_at_the_end_of_a_thread_are_as_good_as_any() {
    let _alone = alone();
    fn work(n: usize) -> Vec<Vec<u32>> {
        let x = matrix(n);
        let image = x.reshape([1, n, n, 1]);
        let gradient = value_and_grad(|x: &Tensor| (x.matmul(x) * x).sum(..), &x).unwrap();
        let tensors = [
            x.exp() * 2.0,
            x.matmul(&x.t()),
            image.conv2d(&Tensor::ones([3, 3, 1, 16]), ConvOptions::same()),
            x.sort(0),
            x.cumsum(1),
            x.cast(DType::F16).matmul(&x.cast(DType::F16)).cast(DType::F32),
            random::normal(&Key::new(n as u64), [n], DType::F32),
            gradient.0,
            gradient.1,
            Tensor::from(x.debug_print("ending").to_string().len() as f32),
        ];
        tensors.iter().map(bits).collect()
    }
    retape::set_debug_sink(|_| {});
    for (n, order) in ORDERS.into_iter().enumerate() {
        let n = 61 + n;
        let found = at_the_end(order, everything, move || work(n));
        assert_eq!(found, work(n), "{order:?}");
    }
    retape::reset_debug_sink();
}
