//! Arguments passed by value give their memory to results: training steps allocate nothing of the size of the
//! parameters, and nothing that a program can still see ever changes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test; measured bytes are printed")]

use retape::nn::{self, Dense};
use retape::optim::{Adam, AdamState};
use retape::{Check, CheckMode, Error, OnDifference, Tensor, accelerate, value_and_grad};
use retape_runtime::{live_bytes, memory_limit, peak_bytes, pool_stats, reset_peak_bytes, set_memory_limit};

use crate::programs::{Program, Random};
use crate::{alone, is_own_process};

const MIB: usize = 1 << 20;

fn ramp(n: usize, phase: usize) -> Tensor {
    (0..n).map(|i| ((i * 7 + phase * 13) % 101) as f32 * 0.02 - 1.0).collect()
}

fn square(side: usize, phase: usize) -> Tensor {
    ramp(side * side, phase).reshape([side, side]) + 0.0
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The pool's counts from here on. Threads that end meanwhile add to the blocks, so a test that counts blocks has a
/// process of its own.
struct Watch {
    live: usize,
    blocks: u64,
}

impl Watch {
    fn start() -> Watch {
        let stats = pool_stats();
        reset_peak_bytes();
        Watch { live: live_bytes(), blocks: stats.reused + stats.fresh }
    }

    /// The most bytes that lived above those that did at the start.
    fn peak(&self) -> usize {
        peak_bytes() - self.live
    }

    /// Blocks handed out since the start.
    fn n_blocks(&self) -> u64 {
        let stats = pool_stats();
        stats.reused + stats.fresh - self.blocks
    }
}

/// A vector becomes a tensor and then a result without a copy; its memory counts meanwhile, and never gets into the pool.
#[test]
fn the_memory_of_a_vector_is_written_over() {
    let _turn = alone();
    let double = accelerate(|x: &Tensor| x * 2.0);
    let elements = || (0..MIB).map(|i| i as f32).collect::<Vec<f32>>();
    double.call(Tensor::from_vec(elements(), [MIB]).unwrap()).unwrap();
    let bytes = || (live_bytes(), pool_stats().kept_bytes);
    let (live, kept) = bytes();
    let watch = Watch::start();
    let x = Tensor::from_vec(elements(), [MIB]).unwrap();
    assert_eq!(bytes(), (live + 4 * MIB, kept));
    let y = double.call(x).unwrap();
    assert_eq!((bytes(), watch.peak()), ((live + 4 * MIB, kept), 4 * MIB));
    assert!(y.to_vec::<f32>().unwrap().iter().zip(0..).all(|(y, i)| *y == 2.0 * i as f32));
    drop(y);
    assert_eq!(bytes(), (live, kept));
    // Lent, it stays as it is.
    let x = Tensor::from(elements());
    let y = double.call(&x).unwrap();
    assert_eq!((x.at(-1).item::<f32>().unwrap(), y.at(-1).item::<f32>().unwrap()), (1_048_575.0, 2_097_150.0));
}

#[test]
fn an_adam_step_allocates_nothing_of_the_size_of_the_parameters() {
    let _turn = alone();
    let n = 64 * MIB;
    let parts = || (0..4).map(|k| ramp(n / 4 / 4, k)).collect::<Vec<Tensor>>();
    let adam = Adam::new();
    let step = accelerate(
        move |params: &Vec<Tensor>, gradients: &Vec<Tensor>, state: &AdamState<Vec<Tensor>>, rate: &Tensor| {
            adam.update(params, gradients, state, rate)
        },
    );
    let gradients = parts();
    let (mut params, mut state) = (parts(), adam.init(&gradients));
    for _ in 0..3 {
        (params, state) = step.call(params, &gradients, state, 1e-3_f32).unwrap();
    }

    let (fresh, limit) = (pool_stats().fresh, memory_limit());
    // More is refused, so a step that needs it fails.
    set_memory_limit(live_bytes() + n / 64);
    let watch = Watch::start();
    for _ in 0..20 {
        (params, state) = step.call(params, &gradients, state, 1e-3_f32).unwrap();
    }
    let peak = watch.peak();
    println!("{n} bytes of parameters, {peak} bytes above what lives between steps");
    assert!(peak < n / 100, "{peak} bytes for {n} of parameters");
    assert_eq!(pool_stats().fresh, fresh, "nothing comes from the system");
    let refused = step.call(&params, &gradients, &state, 1e-3_f32);
    assert!(matches!(refused, Err(Error::Memory(_))), "by reference there is not enough memory");
    set_memory_limit(limit);
    let watch = Watch::start();
    let by_reference = step.call(&params, &gradients, &state, 1e-3_f32).unwrap();
    assert!(watch.peak() >= 3 * n, "{} bytes by reference", watch.peak());
    let by_value = step.call(params, &gradients, state, 1e-3_f32).unwrap();
    assert!(by_value.0.iter().zip(&by_reference.0).all(|(a, b)| bits(a) == bits(b)));
}

type Carried = (Vec<Dense>, AdamState<Vec<Dense>>);

#[test]
fn a_whole_training_step_allocates_nothing_for_its_state() {
    let _turn = alone();
    let adam = Adam::new();
    // Reads the parameters once more after the update: still the update comes last.
    let step = accelerate(move |(layers, state): &Carried, x: &Tensor, y: &Tensor| {
        let apply = |x: &Tensor| layers.iter().fold(x.clone(), |h, layer| layer.apply(&h).tanh());
        let loss = nn::mse(&apply(x), y);
        let next: Carried = adam.update(layers, &loss.grad(layers), state, 1e-3_f32);
        let mirrored = nn::mse(&apply(y), x);
        (loss, mirrored, next)
    });
    let layers: Vec<Dense> = (0..2).map(|seed| Dense::new(seed, 1024, 1024)).collect();
    let n = 2 * 4 * 1024 * 1024;
    let (x, y) = (ramp(1024 * 2, 1).reshape([2, 1024]), ramp(1024 * 2, 2).reshape([2, 1024]));
    let start = || (layers.clone(), adam.init(&layers));

    let mut carried = start();
    let mut expected = vec![];
    for _ in 0..4 {
        let (loss, mirrored, next) = step.call(&carried, &x, &y).unwrap();
        expected.push((bits(&loss), bits(&mirrored)));
        carried = next;
    }

    let mut carried = start();
    for (k, expected) in expected.iter().enumerate() {
        let watch = Watch::start();
        let (loss, mirrored, next) = step.call(carried, &x, &y).unwrap();
        println!("step {k}: {} bytes above {n} of parameters", watch.peak());
        // The first step leaves the layers alone, of which the test has a handle.
        assert!(watch.peak() < if k == 0 { n + n / 20 } else { n / 20 }, "step {k}: {} bytes", watch.peak());
        assert_eq!((bits(&loss), bits(&mirrored)), *expected, "step {k}");
        carried = next;
    }
    assert_eq!(step.stats().entries.len(), 1, "both ways share an entry");
}

#[test]
fn what_is_still_seen_is_left_alone() {
    let _turn = alone();
    let next = accelerate(|a: &Tensor, b: &Tensor| (a * 2.0 + b, b - a));
    let n = 10_000;
    let (a, b) = (ramp(n, 1), ramp(n, 2));
    let expected = next.call(&a, &b).unwrap();
    let check = |(sum, difference): (Tensor, Tensor)| {
        assert_eq!((bits(&sum), bits(&difference)), (bits(&expected.0), bits(&expected.1)));
    };
    let unchanged = |a: &Tensor, phase: usize| assert_eq!(bits(a), bits(&ramp(n, phase)));

    // A second handle, a reshaped view, and a view whose owner has gone.
    check(next.call(a.clone(), b.clone()).unwrap());
    unchanged(&a, 1);
    let view = a.reshape([100, 100]);
    check(next.call(a, &b).unwrap());
    unchanged(&view, 1);
    let again = view.reshape([n]);
    check(next.call(again, &b).unwrap());
    unchanged(&view, 1);
    let lone = view.reshape([n]);
    drop(view);
    check(next.call(lone, &b).unwrap());
    unchanged(&b, 2);

    // One tensor twice, both given, or one given and one lent.
    let doubled = accelerate(|a: &Tensor, b: &Tensor| (a * 2.0 + b, b - a));
    let same = doubled.call(&b, &b).unwrap();
    let (first, second) = doubled.call(b.clone(), &b).unwrap();
    assert_eq!((bits(&first), bits(&second)), (bits(&same.0), bits(&same.1)));
    unchanged(&b, 2);
    let (first, second) = doubled.call(b.clone(), b).unwrap();
    assert_eq!((bits(&first), bits(&second)), (bits(&same.0), bits(&same.1)));
}

#[test]
fn captured_tensors_and_results_handed_through_are_left_alone() {
    let _turn = alone();
    let n = 10_000;
    let offset = ramp(n, 3);
    let captured = offset.clone();
    let shifted = accelerate(move |x: &Tensor| (x + &captured, x.clone(), x * 3.0));
    let expected = shifted.call(&offset).unwrap();
    // Given away here, but the trace reads it at every call.
    shifted.call(offset).unwrap();
    let (sum, same, triple) = shifted.call(ramp(n, 3)).unwrap();
    assert_eq!(bits(&sum), bits(&expected.0));
    assert_eq!(bits(&same), bits(&ramp(n, 3)), "a result that is an argument keeps its bytes");
    assert_eq!(bits(&triple), bits(&expected.2));
}

#[test]
fn given_memory_is_used_and_no_more_blocks_are_taken() {
    if !is_own_process("donation::given_memory_is_used_and_no_more_blocks_are_taken") {
        return;
    }
    let step = accelerate(|a: &Tensor, b: &Tensor| (a + b, a - b));
    let n = 10_000;
    step.call(ramp(n, 1), ramp(n, 2)).unwrap();
    let blocks = |call: &dyn Fn(Tensor, Tensor) -> (Tensor, Tensor)| {
        let (a, b) = (ramp(n, 1), ramp(n, 2));
        let watch = Watch::start();
        let results = call(a, b);
        let n_blocks = watch.n_blocks();
        drop(results);
        n_blocks
    };
    assert_eq!(blocks(&|a, b| step.call(&a, &b).unwrap()), 2);
    assert_eq!(blocks(&|a, b| step.call(a, &b).unwrap()), 1);
    assert_eq!(blocks(&|a, b| step.call(&a, b).unwrap()), 1);
    assert_eq!(blocks(&|a, b| step.call(a, b).unwrap()), 0);
    assert_eq!(blocks(&|a, b| step.call(a.clone(), b).unwrap()), 1);
    // A view counts as long as something else shows the same bytes.
    assert_eq!(blocks(&|a, b| step.call(a.reshape([n]), b).unwrap()), 1);
    let lone = |a: Tensor| a.reshape([n]);
    assert_eq!(blocks(&|a, b| step.call(lone(a), b).unwrap()), 0);
    step.configure(|options| options.enabled = false);
    let (a, b) = (ramp(n, 1), ramp(n, 2));
    let plain = step.call(a.clone(), b.clone()).unwrap();
    step.configure(|options| options.enabled = true);
    let fast = step.call(a, b).unwrap();
    assert_eq!((bits(&plain.0), bits(&plain.1)), (bits(&fast.0), bits(&fast.1)));
}

#[test]
fn pinned_and_watched_calls_take_what_is_given_too() {
    if !is_own_process("donation::pinned_and_watched_calls_take_what_is_given_too") {
        return;
    }
    let step = accelerate(|a: &Tensor, b: &Tensor| ((a + b).tanh(), a - b));
    let n = 10_000;
    let (a, b) = (ramp(n, 1), ramp(n, 2));
    let expected = step.call(&a, &b).unwrap();
    let check = |found: (Tensor, Tensor)| {
        assert_eq!((bits(&found.0), bits(&found.1)), (bits(&expected.0), bits(&expected.1)));
    };
    let pinned = step.pin(&a, &b).unwrap();
    let given = (ramp(n, 1), ramp(n, 2));
    let watch = Watch::start();
    let found = pinned.call(given.0, given.1).unwrap();
    assert_eq!(watch.n_blocks(), 0);
    check(found);
    check(pinned.call(a.clone(), b.clone()).unwrap());

    step.configure(|options| options.check = (Check { on_difference: OnDifference::Err, ..Check::default() }).into());
    check(step.call(ramp(n, 1), b.clone()).unwrap());
    step.configure(|options| options.check = CheckMode::Never);
    // Nothing of a check in a gradient stays that has found no difference.
    step.configure(|options| {
        options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into()
    });
    value_and_grad(|a: &Tensor| step.call(a, &b).unwrap().0.sum(..), &a).unwrap();
    step.configure(|options| options.check = CheckMode::Never);
    let given = (ramp(n, 1), ramp(n, 2));
    let watch = Watch::start();
    let found = step.call(given.0, given.1).unwrap();
    assert_eq!(watch.n_blocks(), 0);
    check(found);

    step.configure(|options| options.trap_nonfinite = true);
    check(step.call(a.clone(), b.clone()).unwrap());
    assert_eq!((bits(&a), bits(&b)), (bits(&ramp(n, 1)), bits(&ramp(n, 2))));
}

#[test]
fn a_failed_call_consumes_its_arguments_and_nothing_else() {
    let _turn = alone();
    let n = MIB;
    let step = accelerate(|a: &Tensor, b: &Tensor| (a + b, a.sqrt() - b, (a * b).exp()));
    let (a, b) = (ramp(n, 1), ramp(n, 2));
    let expected = step.call(&a, &b).unwrap();
    let live = live_bytes();
    let wrong = step.call(ramp(n, 3), ramp(n - 1, 3));
    assert!(matches!(wrong, Err(Error::Type { .. })));
    assert_eq!(live_bytes(), live, "what was given is freed");

    let (given, limit) = (ramp(n, 1), memory_limit());
    set_memory_limit(live_bytes());
    let refused = step.call(given, &b);
    set_memory_limit(limit);
    assert!(matches!(refused, Err(Error::Memory(_))));
    assert_eq!(live_bytes(), live);
    let again = step.call(a, b).unwrap();
    for (a, b) in [(again.0, expected.0), (again.1, expected.1), (again.2, expected.2)] {
        assert_eq!(bits(&a), bits(&b));
    }
}

#[test]
fn threads_give_what_is_theirs() {
    let _turn = alone();
    let n = 50_000;
    let step = accelerate(|state: &Tensor, field: &Tensor| state * 0.5 + field);
    let field = ramp(n, 5);
    let expected: Vec<Vec<u32>> =
        (0..4).map(|k| bits(&(0..8).fold(ramp(n, k), |state, _| step.call(&state, &field).unwrap()))).collect();
    std::thread::scope(|scope| {
        for (k, expected) in expected.iter().enumerate() {
            let (step, field) = (&step, &field);
            scope.spawn(move || {
                for _ in 0..5 {
                    // The field has owners in other threads, which come and go.
                    let last = (0..8).fold(ramp(n, k), |state, _| step.call(state, field.clone()).unwrap());
                    assert_eq!(bits(&last), *expected, "thread {k}");
                }
            });
        }
    });
    assert_eq!(bits(&field), bits(&ramp(n, 5)));
}

/// Large enough for donations, and with parts of a vector at the end.
const SIDE: usize = 93;

#[test]
fn random_functions_give_the_same_bits_and_change_nothing_that_is_seen() {
    if !is_own_process("donation::random_functions_give_the_same_bits_and_change_nothing_that_is_seen") {
        return;
    }
    let mut n_saved = 0;
    for seed in 0..40 {
        let mut random = Random(seed);
        let program = Program::new(&mut random, 5);
        let captured = square(SIDE, 77);
        let f = accelerate(move |a: &(Tensor, Tensor), b: &Tensor, c: &Vec<Tensor>| {
            let args = [&a.0, &a.1, b, &c[0]].map(Tensor::clone).into_iter().chain([captured.clone()]);
            program.run(args.collect())
        });
        // Handles that the test keeps, with what they must go on to hold.
        let mut kept: Vec<(Tensor, Vec<u32>)> = vec![];
        let mut known: Vec<Tensor> = (0..4).map(|k| square(SIDE, seed as usize + k)).collect();
        for round in 0..8 {
            // Mostly fresh tensors; some are shared with each other, with what is kept, or are results of earlier calls.
            let args: Vec<Tensor> = (0..4)
                .map(|k| match random.below(4) {
                    0 => known[random.below(known.len())].clone(),
                    1 => known[random.below(known.len())].reshape([SIDE * SIDE]).reshape([SIDE, SIDE]),
                    _ => square(SIDE, round * 4 + k),
                })
                .collect();
            if random.below(2) == 0 {
                let tensor = args[random.below(4)].clone();
                kept.push((tensor.clone(), bits(&tensor)));
                known.push(tensor);
            }
            let [a0, a1, b, c0] = <[Tensor; 4]>::try_from(args).unwrap();
            let (a, c) = ((a0, a1), vec![c0]);
            let watch = Watch::start();
            let expected = f.call(&a, &b, &c).unwrap();
            let by_reference = watch.n_blocks();
            let expected: Vec<Vec<u32>> = expected.iter().map(bits).collect();
            let by_value = random.below(8);
            let watch = Watch::start();
            let found = match by_value {
                0 => f.call(a, &b, &c),
                1 => f.call(&a, b, &c),
                2 => f.call(&a, &b, c),
                3 => f.call(a, b, &c),
                4 => f.call(a, &b, c),
                5 => f.call(&a, b, c),
                _ => f.call(a, b, c),
            };
            let found = found.unwrap();
            if round > 0 {
                assert!(watch.n_blocks() <= by_reference);
                n_saved += by_reference - watch.n_blocks();
            }
            let found_bits: Vec<Vec<u32>> = found.iter().map(bits).collect();
            assert_eq!(found_bits, expected, "seed {seed}, round {round}, way {by_value}");
            for (tensor, expected) in &kept {
                assert_eq!(bits(tensor), *expected, "seed {seed}, round {round}: what is kept changed");
            }
            if let Some(result) = found.first().filter(|_| random.below(2) == 0) {
                kept.push((result.clone(), bits(result)));
                known.push(result.clone());
            }
        }
        assert_eq!(f.stats().misses, 1);
    }
    println!("{n_saved} blocks saved");
    assert!(n_saved > 200, "only {n_saved} results took the memory of an argument");
}
