//! The tools for looking into a function work on a GPU too: reasons of misses, checks, bisection, traps, pins,
//! artefacts, printing, profiles and the report.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use retape::{
    BisectCause, CallKind, Check, CheckMode, Device, Error, Form, MathMode, MissReason, OnDifference, Tensor,
    Tolerance, accelerate, set_debug_sink, value_and_grad, vjp,
};
use retape_report::{Report, TraceEvents, prometheus};

use crate::compare::{all_bits, apart, bits, ramp};
use crate::device::{gpu, in_own_process};

#[test]
fn another_device_is_a_reason_to_miss() {
    let f = accelerate(|x: &Tensor, y: &Tensor| x * y);
    let (x, y) = (ramp(&[4], 1), ramp(&[4], 2));
    f.call(&x, &y).unwrap();
    f.call(x.to(gpu()), y.to(gpu())).unwrap();
    let misses = f.explain();
    assert_eq!(
        misses.iter().map(|miss| miss.reason).collect::<Vec<_>>(),
        [MissReason::FirstCall, MissReason::NewDevice]
    );
    let texts: Vec<String> = misses[1].differences.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["argument 0 device: cpu -> cuda:0", "argument 1 device: cpu -> cuda:0"]);
    assert!(misses[1].to_string().contains("cuda:0"), "{}", misses[1]);
    let stats = f.stats();
    let entry = stats.entries.iter().find(|entry| entry.signature.to_string().contains("cuda:0")).unwrap();
    assert!(entry.device_bytes > 0 && stats.device_bytes() == entry.device_bytes, "{stats}");
    assert!(f.text(&entry.signature, Form::Kernels).unwrap().contains("mul"));
    let text = f.text(&entry.signature, Form::Ptx).unwrap();
    assert!(text.contains(".target sm_") && text.contains("mul.rn.f32"), "{text}");
    assert!(
        f.text(&entry.signature, Form::Graph).unwrap().contains("mul")
            && !f.text(&entry.signature, Form::Plan).unwrap().is_empty()
    );
}

#[test]
fn checks_find_what_changed_and_nothing_else() {
    let factor = AtomicU32::new(2);
    let f = accelerate(|x: &Tensor, w: &Tensor| {
        let y = x.matmul(w).tanh();
        let scaled = &y * factor.load(SeqCst) as f32;
        (scaled.square().sum(..), y)
    });
    let (x, w) = (ramp(&[5, 6], 1).to(gpu()), ramp(&[6, 4], 2).to(gpu()));
    f.configure(|options| options.check = (Check { on_difference: OnDifference::Err, ..Check::default() }).into());
    for _ in 0..3 {
        f.call(&x, &w).unwrap();
    }
    assert_eq!((f.stats().checks.checked, f.stats().checks.differing), (3, 0));
    assert_eq!(f.bisect(&x, &w).unwrap().cause, BisectCause::None);
    factor.store(3, SeqCst);
    let Err(Error::Check(deviation)) = f.call(&x, &w) else { panic!("nothing was found") };
    assert_eq!((&*deviation.path, deviation.n_tensors), ("result[0]", 1));
    assert!(deviation.at.file().ends_with("tests/gpu/tools.rs"));
    let found = f.bisect(&x, &w).unwrap();
    assert_ne!(found.cause, BisectCause::None, "{found}");
    assert!(found.to_string().contains("tests/gpu/tools.rs"), "{found}");
    // The un-accelerated result takes over.
    f.configure(|options| options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into());
    let fallen = f.call(&x, &w).unwrap();
    assert_eq!(fallen.0.device(), gpu());
    f.configure(|options| options.enabled = false);
    assert_eq!(all_bits(&f.call(&x, &w).unwrap()), all_bits(&fallen));
    f.configure(|options| options.check = CheckMode::Never);
}

/// Pointwise functions pass checks that allow no difference at all.
#[test]
fn exact_checks_of_formulas_pass() {
    let f = accelerate(|x: &Tensor| (x * 2.0 + x.sin()).tanh().relu());
    f.configure(|options| {
        options.check =
            (Check { tolerance: Tolerance::EXACT, on_difference: OnDifference::Err, ..Check::default() }).into()
    });
    (1..4).for_each(|n| drop(f.call(ramp(&[n * 100], n).to(gpu())).unwrap()));
    assert_eq!((f.stats().checks.checked, f.stats().checks.differing), (3, 0));
}

#[test]
fn the_trap_names_the_op_and_its_line() {
    const LOG: u32 = line!() + 3;
    let f = accelerate(|x: &Tensor| {
        let y = x * 2.0;
        let z = y.log();
        (z + 1.0).exp().sum(..)
    });
    f.configure(|options| options.trap_nonfinite = true);
    let plain = f.call(Tensor::from([1.0_f32, 2.0, 3.0]).to(gpu())).unwrap();
    let Err(Error::NonFinite(found)) = f.call(Tensor::from([1.0_f32, -2.0, 3.0]).to(gpu())) else {
        panic!("nothing was trapped")
    };
    assert_eq!((found.op, found.at.unwrap().line()), ("log", LOG));
    assert_eq!((found.n_elements, found.n_nan, found.n_infinite, found.first), (3, 1, 0, 1));
    assert_eq!((found.inputs[0].min, found.inputs[0].at_first), (-4.0, Some(-4.0)));
    assert_eq!((f.stats().checks.trapped, f.stats().hits, f.stats().misses), (1, 1, 1));
    // No bit changes.
    f.configure(|options| options.trap_nonfinite = false);
    assert_eq!(bits(&f.call(Tensor::from([1.0_f32, 2.0, 3.0]).to(gpu())).unwrap()), bits(&plain));
}

#[test]
fn the_trap_sees_sums_products_and_backward_code() {
    let product = accelerate(|x: &Tensor| x.matmul(x).sum(..));
    product.configure(|options| options.trap_nonfinite = true);
    product.call(ramp(&[8, 8], 1).to(gpu())).unwrap();
    let Err(Error::NonFinite(found)) = product.call(Tensor::full([8, 8], 1e30_f32).to(gpu())) else {
        panic!("nothing was trapped")
    };
    assert_eq!((found.op, found.n_infinite), ("matmul", 64));
    let root = accelerate(|x: &Tensor| x.sqrt().sum(..));
    root.configure(|options| options.trap_nonfinite = true);
    let x = Tensor::from([1.0_f32, 0.0, 4.0]).to(gpu());
    root.call(&x).unwrap();
    let text = value_and_grad(|x: &Tensor| root.call(x).unwrap(), &x).err().unwrap().to_string();
    assert!(text.contains("tests/gpu/tools.rs"), "{text}");
}

#[test]
fn pinned_entries_run() {
    let f = accelerate(|x: &Tensor, y: &Tensor| ((x + y).tanh(), x.matmul(y).sum(..)));
    let (x, y) = (ramp(&[6, 6], 1).to(gpu()), ramp(&[6, 6], 2).to(gpu()));
    let expected = all_bits(&f.call(&x, &y).unwrap());
    let pinned = f.pin(&x, &y).unwrap();
    assert_eq!(all_bits(&pinned.call(&x, &y).unwrap()), expected);
    assert_eq!(all_bits(&pinned.call(ramp(&[6, 6], 1).to(gpu()), y.clone()).unwrap()), expected);
    // It is for this device.
    let text = pinned.call(ramp(&[6, 6], 1), ramp(&[6, 6], 2)).err().unwrap().to_string();
    assert!(text.contains("cuda:0") && text.contains("cpu"), "{text}");
    f.clear_cache();
    assert!(!pinned.is_in_cache());
    assert_eq!(all_bits(&pinned.call(&x, &y).unwrap()), expected);
    drop(f);
    assert_eq!(all_bits(&pinned.call(&x, &y).unwrap()), expected);
}

#[test]
fn artefacts_keep_the_device_and_the_bits() {
    let captured = ramp(&[4], 7);
    let make = |may_trace: bool| {
        let captured = captured.clone();
        accelerate(move |w: &Tensor, x: &Tensor| {
            assert!(may_trace, "a loaded entry never enters the closure");
            let loss = (x.matmul(w) + &captured).sigmoid().mean(..);
            (w - loss.grad(w), loss)
        })
    };
    let (w, x) = (ramp(&[5, 4], 1).to(gpu()), ramp(&[3, 5], 2).to(gpu()));
    let first = make(true);
    let expected = all_bits(&first.call(&w, &x).unwrap());
    let here = all_bits(&first.call(w.to(Device::Cpu), x.to(Device::Cpu)).unwrap());
    let mut bytes = vec![];
    assert_eq!(first.save_to(&mut bytes).unwrap().entries, 2);
    let second = make(false);
    let loaded = second.load_from(&bytes[..]).unwrap();
    assert_eq!((loaded.entries, loaded.skipped.len()), (2, 0));
    assert_eq!(all_bits(&second.call(&w, &x).unwrap()), expected);
    assert_eq!(all_bits(&second.call(w.to(Device::Cpu), x.to(Device::Cpu)).unwrap()), here);
    assert_eq!((second.stats().hits, second.stats().misses), (2, 0));
}

/// The lines that were printed, for the sink belongs to the process.
static LINES: Mutex<Vec<String>> = Mutex::new(vec![]);

#[test]
fn values_are_printed_at_every_call() {
    in_own_process("tools::values_are_printed_at_every_call", &[], || {
        set_debug_sink(|line| LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line.into()));
        let f = accelerate(|x: &Tensor| (x * 2.0_f32).debug_print("doubled").sum(..));
        let taken = || std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner));
        for device in [Device::Cpu, gpu()] {
            for value in [1.0_f32, 2.0] {
                let sum = f.call(Tensor::full([2], value).to(device)).unwrap();
                assert_eq!(sum.item::<f32>().unwrap(), 4.0 * value);
                let lines = taken();
                assert_eq!(lines.len(), 1, "{lines:?}");
                assert!(lines[0].contains("doubled") && lines[0].contains(&format!("{:?}", 2.0 * value)), "{lines:?}");
            }
        }
        Tensor::from([3.0_f32]).to(gpu()).debug_print("eager").to_vec::<f32>().unwrap();
        assert!(taken().concat().contains("eager"));
    });
}

#[test]
fn profiles_and_reports_show_calls_and_groups() {
    let step = accelerate(|w: &Tensor, x: &Tensor| {
        let loss = x.matmul(w).tanh().square().mean(..);
        (w - loss.grad(w), loss)
    });
    let (w, x) = (ramp(&[16, 16], 1).to(gpu()), ramp(&[8, 16], 2).to(gpu()));
    step.configure(|options| options.profiling = true);
    let profiled: Vec<_> = (0..3).map(|_| all_bits(&step.call(&w, &x).unwrap())).collect();
    step.configure(|options| options.profiling = false);
    let plain = all_bits(&step.call(&w, &x).unwrap());
    assert!(profiled.iter().all(|bits| *bits == plain), "watching changes no bit");
    let profile = step.profile();
    let kinds: Vec<CallKind> = profile.calls.iter().map(|call| call.kind).collect();
    assert_eq!(kinds, [CallKind::Miss, CallKind::Hit, CallKind::Hit]);
    assert!(profile.groups.iter().any(|group| group.label.contains("matmul")), "{:?}", profile.groups);
    assert!(profile.groups.iter().all(|group| group.count == 3), "{:?}", profile.groups);
    let json: serde_json::Value = serde_json::from_str(&profile.to_trace_events()).unwrap();
    assert!(json["traceEvents"].as_array().unwrap().len() > 6);
    let path = std::env::temp_dir().join(format!("retape-gpu-{}.html", std::process::id()));
    step.report_html(&path).unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(page.contains("cuda:0") && page.contains("matmul"));
    assert!(prometheus(&[&step.stats()]).contains("retape_cache_hits_total"));
}

/// Another mode is another signature, and near the strict results.
#[test]
fn fast_mathematics_is_another_entry() {
    let f = accelerate(|x: &Tensor| (x.exp() / (x.square() + 1.0)).sqrt().matmul(x));
    let x = ramp(&[24, 24], 1).to(gpu());
    let strict = f.call(&x).unwrap();
    f.configure(|options| options.math = MathMode::Fast);
    let fast = f.call(&x).unwrap();
    assert_eq!((f.stats().misses, f.explain()[1].reason), (2, MissReason::ModeChanged));
    assert!(apart(&strict, &fast) < 5e-3, "{}", apart(&strict, &fast));
    f.configure(|options| options.math = MathMode::Strict);
    assert_eq!(bits(&f.call(&x).unwrap()), bits(&strict));
    assert_eq!(f.stats().misses, 2);
}

/// Gradients of gradients, with the inner one outside of the accelerated function.
#[test]
fn second_derivatives_are_those_of_the_processor() {
    let f = accelerate(|x: &Tensor| (x.matmul(x) * x.sin()).tanh().mean(..));
    let norm = |x: &Tensor| {
        let (_, gradient) = vjp(|x: &Tensor| f.call(x).unwrap(), x, &Tensor::from(1.0_f32)).unwrap();
        gradient.square().sum(..)
    };
    let x = ramp(&[7, 7], 1);
    let here = value_and_grad(norm, &x).unwrap();
    let there = value_and_grad(norm, &x.to(gpu())).unwrap();
    assert_eq!(there.1.device(), gpu());
    assert!(apart(&here.0, &there.0) < 2e-6 && apart(&here.1, &there.1) < 2e-6, "{here:?} {there:?}");
}

/// Captured tensors are compared where the closure holds them, in main memory or on the device.
#[test]
fn hits_find_captured_tensors_that_were_replaced() {
    let gpu = gpu();
    let x = Tensor::ones([2]).to(gpu);
    for device in [Device::Cpu, gpu] {
        let weights = Mutex::new(Tensor::from([1.0_f32, 2.0]).to(device));
        // A constant that is made anew on each trace besides.
        let f = accelerate(|x: &Tensor| x * &*weights.lock().unwrap() + Tensor::from([0.5_f32, 0.5]));
        f.call(&x).unwrap();
        // Another one with the same elements, and then with others.
        for (weight, n) in [(2.0_f32, 0), (7.0, 1)] {
            *weights.lock().unwrap() = Tensor::from([1.0_f32, weight]).to(device);
            let looks = f.stats().checks.stale_checks;
            // A budget of time says which hits look, so a machine that is busy with other work needs more of them.
            let has_looked = (0..1_000_000).any(|_| {
                assert_eq!(f.call(&x).unwrap().to_vec::<f32>().unwrap(), [1.5, 2.5]);
                f.stats().checks.stale_checks > looks
            });
            assert!(has_looked && f.stats().checks.stale == n, "{}", f.stats());
        }
        let advice = f.advice();
        assert_eq!(advice.len(), 1, "{}", f.stats());
        assert!(advice[0].message.contains("has other elements, 7.0 at 1 was 2.0"), "{advice:?}");
    }
}
