//! `debug_print`: on every call, once, in the order of the program, whatever way the function runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Mutex;

use crate::printed::{listen, taken};
use retape::{
    Accelerated, Check, CheckMode, Error, Graph, OnDifference, Tensor, accelerate, trace, value_and_grad, vjp,
};

fn pair() -> Tensor {
    Tensor::from([1.0_f32, 2.0])
}

#[test]
fn every_call_prints_and_the_value_is_handed_on() {
    listen();
    let f = accelerate(|x: &Tensor| (x * 2.0_f32).debug_print("every").sum(..));
    for (value, hits) in [(1.0, 0), (2.0, 1), (3.0, 2)] {
        assert_eq!(f.call(Tensor::full([2], value)).unwrap().item::<f32>().unwrap(), value * 4.0);
        assert_eq!(f.stats().hits, hits);
    }
    assert_eq!(taken("every"), [": f32[2] [2.0, 2.0]", ": f32[2] [4.0, 4.0]", ": f32[2] [6.0, 6.0]"]);
    f.clear_cache();
    f.call(pair()).unwrap();
    assert_eq!(taken("every"), [": f32[2] [2.0, 4.0]"]);
}

#[test]
fn prints_that_nothing_uses_stay_and_equal_ones_are_two() {
    listen();
    let f = accelerate(|x: &Tensor| {
        x.exp2().debug_print("unused a");
        x.exp2().debug_print("unused a");
        (x * 3.0_f32).debug_print("unused b");
        x.debug_print("unused c");
        x + x
    });
    for _ in 0..2 {
        assert_eq!(f.call(pair()).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
        let expected = ["a: f32[2] [2.0, 4.0]", "a: f32[2] [2.0, 4.0]", "b: f32[2] [3.0, 6.0]", "c: f32[2] [1.0, 2.0]"];
        assert_eq!(taken("unused"), expected);
    }
}

#[test]
fn whatever_the_result_is_printing_is_no_part_of_it() {
    listen();
    let handed = accelerate(|x: &Tensor| x.debug_print("result"));
    let nothing = accelerate(|x: &Tensor| {
        x.debug_print("result");
    });
    let constant = accelerate(|x: &Tensor| {
        let y = x * 2.0_f32;
        (Tensor::from(7_i64), y.debug_print("result"), x.clone(), y)
    });
    let x = pair();
    for _ in 0..2 {
        assert_eq!(handed.call(&x).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
        nothing.call(&x).unwrap();
        let (seven, y, again, same) = constant.call(&x).unwrap();
        assert_eq!(seven.item::<i64>().unwrap(), 7);
        assert_eq!([y, again, same].map(|y| y.to_vec::<f32>().unwrap()), [[2.0, 4.0], [1.0, 2.0], [2.0, 4.0]]);
        let (line, doubled) = (": f32[2] [1.0, 2.0]", ": f32[2] [2.0, 4.0]");
        assert_eq!(taken("result"), [line, line, doubled]);
    }
}

#[test]
fn gradients_pass_through_and_functions_print_once() {
    listen();
    let loss = |x: &Tensor| (x.debug_print("gradient x") * x).debug_print("gradient squares").sum(..);
    let lines = ["x: f32[2] [1.0, 2.0]", "squares: f32[2] [1.0, 4.0]"];
    let (value, slope) = value_and_grad(loss, &pair()).unwrap();
    assert_eq!((value.item::<f32>().unwrap(), slope.to_vec::<f32>().unwrap()), (5.0, vec![2.0, 4.0]));
    assert_eq!(taken("gradient"), lines);

    let (_, slope) = vjp(loss, &pair(), &Tensor::from(10.0_f32)).unwrap();
    assert_eq!(slope.to_vec::<f32>().unwrap(), [20.0, 40.0]);
    assert_eq!(taken("gradient"), lines);

    let step = accelerate(|x: &Tensor| value_and_grad(loss, x).unwrap());
    let curvature = accelerate(|x: &Tensor| {
        let slope: Tensor = loss(x).grad(x);
        slope.debug_print("gradient slope").sum(..).grad(x)
    });
    for _ in 0..2 {
        assert_eq!(step.call(pair()).unwrap().1.to_vec::<f32>().unwrap(), [2.0, 4.0]);
        assert_eq!(taken("gradient"), lines);
        let second: Tensor = curvature.call(pair()).unwrap();
        assert_eq!(second.to_vec::<f32>().unwrap(), [2.0, 2.0]);
        assert_eq!(taken("gradient"), [lines[0], lines[1], "slope: f32[2] [2.0, 4.0]"]);
    }
}

#[test]
fn the_un_accelerated_path_and_single_ops_print_too() {
    listen();
    let f = accelerate(|x: &Tensor| {
        let y = x.exp2().debug_print("plain first");
        y.sum(..).debug_print("plain second")
    });
    f.configure(|options| options.enabled = false);
    for _ in 0..2 {
        assert_eq!(f.call(pair()).unwrap().item::<f32>().unwrap(), 6.0);
        assert_eq!(taken("plain"), ["first: f32[2] [2.0, 4.0]", "second: f32[] 6.0"]);
    }
    let mask = pair().lt(1.5_f32).debug_print("plain mask");
    assert_eq!(mask.to_vec::<bool>().unwrap(), [true, false]);
    pair().reshape([2, 1]).debug_print("plain column");
    assert_eq!(taken("plain"), ["mask: bool[2] [true, false]", "column: f32[2, 1] [[1.0], [2.0]]"]);
}

#[test]
fn nested_functions_print_in_the_order_of_the_program() {
    listen();
    let inner = accelerate(|x: &Tensor| {
        x.debug_print("nested inner");
        x * 2.0_f32
    });
    let outer = accelerate(|x: &Tensor| {
        x.debug_print("nested before");
        let y = inner.call(x).unwrap();
        y.sum(..).debug_print("nested after")
    });
    let lines = ["before: f32[2] [1.0, 2.0]", "inner: f32[2] [1.0, 2.0]", "after: f32[] 6.0"];
    for _ in 0..2 {
        assert_eq!(outer.call(pair()).unwrap().item::<f32>().unwrap(), 6.0);
        assert_eq!(taken("nested"), lines);
    }
    // Inside the gradient of someone else.
    let (_, slope) = value_and_grad(|x: &Tensor| inner.call(x).unwrap().sum(..), &pair()).unwrap();
    assert_eq!(slope.to_vec::<f32>().unwrap(), [2.0, 2.0]);
    assert_eq!(taken("nested"), [lines[1]]);
    let unused = |x: &Tensor| {
        inner.call(x).unwrap();
        inner.call(x + 1.0_f32).unwrap();
        x.sum(..).debug_print("nested after")
    };
    value_and_grad(unused, &pair()).unwrap();
    assert_eq!(taken("nested"), [lines[1], "inner: f32[2] [2.0, 3.0]", "after: f32[] 3.0"]);
}

#[test]
fn graphs_print_when_they_are_evaluated_applied_and_inlined() {
    listen();
    let body = |x: &Tensor| {
        x.debug_print("graph, of: {x}; [1]");
        (x + x).debug_print("graph twice")
    };
    let graph = trace(body, &pair()).unwrap();
    let graph: Graph = graph.to_string().parse().unwrap();
    graph.verify().unwrap();
    let lines = [", of: {x}; [1]: f32[2] [1.0, 2.0]", "twice: f32[2] [2.0, 4.0]"];
    for graph in [&graph, &graph.optimized().unwrap()] {
        assert_eq!(graph.evaluate(&[pair()]).unwrap()[0].to_vec::<f32>().unwrap(), [2.0, 4.0]);
        assert_eq!(taken("graph"), lines);
        assert_eq!(graph.apply(&[pair()]).unwrap()[0].to_vec::<f32>().unwrap(), [2.0, 4.0]);
        assert_eq!(taken("graph"), lines);
        // On the tape of another trace, after and before its own prints, and with no use of the token.
        let f = accelerate(|x: &Tensor| {
            x.sum(..).debug_print("graph before");
            let y = graph.apply(std::slice::from_ref(x)).unwrap().remove(0);
            y.sum(..).debug_print("graph after")
        });
        for _ in 0..2 {
            f.call(pair()).unwrap();
            assert_eq!(taken("graph"), ["before: f32[] 3.0", lines[0], lines[1], "after: f32[] 6.0"]);
        }
    }
}

/// A result may take the memory of an argument that is given away, but not before that is printed.
#[test]
fn an_argument_given_away_prints_as_it_was() {
    listen();
    let f = accelerate(|x: &Tensor| {
        let y = x * 2.0_f32;
        x.debug_print("given");
        y.debug_print("given");
        y
    });
    for _ in 0..2 {
        let y = f.call(Tensor::ones([1000])).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [2.0; 1000]);
        let expected = ["1.0, 1.0, 1.0, .., 1.0, 1.0, 1.0", "2.0, 2.0, 2.0, .., 2.0, 2.0, 2.0"];
        assert_eq!(taken("given"), expected.map(|elements| format!(": f32[1000] [{elements}]")));
    }
}

#[test]
fn a_captured_tensor_prints_while_tracing_only() {
    listen();
    let captured = Tensor::from(5_i32);
    let f = accelerate(|x: &Tensor| {
        captured.debug_print("captured");
        x + x
    });
    f.call(pair()).unwrap();
    f.call(pair()).unwrap();
    assert_eq!(taken("captured"), [": i32[] 5"]);
}

#[test]
fn poisoned_and_escaped_tensors_print_nothing_and_stay_errors() {
    listen();
    let poisoned = (Tensor::ones([2]) + Tensor::ones([3])).debug_print("poisoned");
    assert!(poisoned.error().unwrap().to_string().starts_with("add: "));
    let kept = Mutex::new(None);
    let f = accelerate(|x: &Tensor| {
        *kept.lock().unwrap() = Some(x.clone());
        x.debug_print("poisoned not");
        x + x
    });
    f.call(pair()).unwrap();
    let escaped = kept.lock().unwrap().take().unwrap().debug_print("poisoned");
    let message = escaped.error().unwrap().to_string();
    assert!(message.starts_with("debug_print: a traced tensor was used after its trace had ended"), "{message}");
    assert_eq!(taken("poisoned"), ["not: f32[2] [1.0, 2.0]"]);
}

#[test]
fn threads_print_whole_lines_each_in_its_order() {
    listen();
    let f = accelerate(|x: &Tensor| {
        x.debug_print("threads");
        (x * 10.0_f32).debug_print("threads").sum(..)
    });
    const CALLS: usize = 50;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let f = &f;
            scope.spawn(move || {
                for _ in 0..CALLS {
                    f.call(Tensor::from([thread as f32 + 1.0])).unwrap();
                }
            });
        }
    });
    let lines = taken("threads");
    assert_eq!(lines.len(), 4 * 2 * CALLS);
    for thread in 1..=4 {
        let (one, ten) = (format!(": f32[1] [{thread}.0]"), format!(": f32[1] [{thread}0.0]"));
        let own: Vec<&String> = lines.iter().filter(|line| **line == one || **line == ten).collect();
        assert_eq!(own, [&one, &ten].repeat(CALLS));
    }
}

/// Checks compare with the un-accelerated path, and the search for what was not finite runs ops again.
#[test]
fn watched_calls_print_once() {
    listen();
    let rate = Mutex::new(2.0_f32);
    let f = accelerate(|x: &Tensor| {
        let y = (x * *rate.lock().unwrap()).debug_print("watched");
        (y.log(), y)
    });
    let call = |x: f32| f.call(Tensor::from([x])).map(|(_, y)| y.to_vec::<f32>().unwrap()[0]);
    let line = |x: f32| vec![format!(": f32[1] [{x:?}]")];

    f.configure(|options| options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into());
    assert_eq!((call(1.0).unwrap(), taken("watched")), (2.0, line(2.0)));
    assert_eq!((call(2.0).unwrap(), taken("watched")), (4.0, line(4.0)));
    *rate.lock().unwrap() = 3.0;
    // The compiled code has printed before the comparison shows that it is out of date.
    assert_eq!((call(1.0).unwrap(), taken("watched")), (3.0, line(2.0)));
    // In quarantine.
    assert_eq!((call(1.0).unwrap(), taken("watched")), (3.0, line(3.0)));
    assert_eq!(f.stats().checks.quarantines, 1);
    f.clear_cache();
    f.configure(|options| options.check = CheckMode::Never);

    f.configure(|options| options.trap_nonfinite = true);
    assert_eq!((call(1.0).unwrap(), taken("watched")), (3.0, line(3.0)));
    assert!(matches!(call(-1.0), Err(Error::NonFinite(_))));
    assert_eq!(taken("watched"), line(-3.0));
}

#[test]
fn pinned_loaded_and_measured_entries_print() {
    listen();
    fn doubled() -> Accelerated<impl Fn(&Tensor) -> Tensor, (Tensor,), Tensor> {
        accelerate(|x: &Tensor| {
            x.debug_print("kept: {1}, \"2\"; [3]\n");
            x + x
        })
    }
    let line = ["{1}, \"2\"; [3]\n: f32[2] [1.0, 2.0]"];
    let f = doubled();
    let pinned = f.pin(pair()).unwrap();
    assert_eq!(taken("kept:"), [""; 0], "finding an entry runs nothing");
    for _ in 0..2 {
        assert_eq!(pinned.call(pair()).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
        assert_eq!(taken("kept:"), line);
    }
    f.configure(|options| options.profiling = true);
    f.call(pair()).unwrap();
    assert_eq!(taken("kept:"), line);

    let mut file = vec![];
    f.save_to(&mut file).unwrap();
    let loaded = doubled();
    loaded.load_from(&file[..]).unwrap();
    assert_eq!(loaded.call(pair()).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    assert_eq!(taken("kept:"), line);
    assert_eq!((loaded.stats().hits, loaded.stats().misses), (1, 0));
}
