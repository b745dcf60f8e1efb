//! With the switch of determinism off, scatter-add on a GPU depends on the order in which blocks run; with it on, it does
//! not. The stand-in driver runs them forwards and backwards.
//!
//! The switch belongs to the process, so each test has one of its own.

use retape::{DType, Device, Form, Tensor, accelerate, nn, set_deterministic, value_and_grad};

use crate::compare::{bits, ramp};
use crate::device::{driver, gpu, in_own_process, reversed};

const ROWS: usize = 5;
const COLUMNS: usize = 3;
const N: usize = 600;

/// Rows of a table that are taken again and again, and cotangents of many magnitudes.
fn batch(dtype: DType) -> (Tensor, Tensor, Tensor) {
    let ids: Vec<i64> = (0..N as i64).map(|k| k * k % 11 % ROWS as i64).collect();
    let cotangent = |k: usize| ((k * 7919 % 2003) as f64 - 1001.3) * 10_f64.powi((k * 31 % 7) as i32 - 3);
    let cotangents: Vec<f64> = (0..N * COLUMNS).map(cotangent).collect();
    let to = |x: Tensor| x.cast(dtype).to(gpu());
    let cotangents = to(Tensor::from_vec(cotangents, [N, COLUMNS]).unwrap());
    (to(ramp(&[ROWS, COLUMNS], 1)), Tensor::from_vec(ids, [N]).unwrap().to(gpu()), cotangents)
}

/// The gradient of a loss by a table of which rows are taken.
fn gradient(table: &Tensor, ids: &Tensor, cotangents: &Tensor) -> Tensor {
    let loss = (nn::embedding(table, ids) * cotangents).sum(..);
    loss.grad(table)
}

/// Asserts that gradients are those of the batch except for rounding, in `f64` on the host.
fn assert_right(found: &Tensor, ids: &Tensor, cotangents: &Tensor) {
    let host = |x: &Tensor| x.to(Device::Cpu).cast(DType::F64).to_vec::<f64>().unwrap();
    let (cts, ids) = (host(cotangents), ids.to_vec::<i64>().unwrap());
    let (mut sums, mut sizes) = (vec![0.0; ROWS * COLUMNS], vec![0.0; ROWS * COLUMNS]);
    for (k, ct) in cts.iter().enumerate() {
        let at = ids[k / COLUMNS] as usize * COLUMNS + k % COLUMNS;
        sums[at] += ct;
        sizes[at] += ct.abs();
    }
    let epsilon = if found.dtype() == DType::F32 { f64::from(f32::EPSILON) } else { 2.0 * f64::EPSILON };
    for (found, (sum, size)) in host(found).into_iter().zip(sums.into_iter().zip(sizes)) {
        // Each of the additions rounds a sum that is no larger than all sizes.
        assert!((found - sum).abs() <= N as f64 * epsilon * size, "{found} is not {sum}");
    }
}

/// Whether results in the usual and in the reversed order have the same bits; both are right.
fn has_same_bits(run: impl Fn() -> Tensor, ids: &Tensor, cotangents: &Tensor) -> bool {
    let forward = run();
    let forward_bits = bits(&forward);
    assert_right(&forward, ids, cotangents);
    let backward = reversed(|| {
        let found = run();
        bits(&found);
        found
    });
    assert_right(&backward, ids, cotangents);
    forward_bits == bits(&backward)
}

/// Asserts that two orders have given the same bits with the switch on, and others with it off, where the order is ours:
/// on hardware, atomic additions may come in any order, and by chance in one.
#[track_caller]
fn assert_follows(is_on: bool, is_same: bool, what: &str) {
    let is_expected = if is_on { is_same } else { !is_same || driver().is_none() };
    assert!(is_expected, "{what}, with the switch {}: the same bits: {is_same}", if is_on { "on" } else { "off" });
}

#[test]
fn the_order_of_blocks_shows_with_the_switch_off_alone() {
    in_own_process("determinism::the_order_of_blocks_shows_with_the_switch_off_alone", &[], || {
        for dtype in [DType::F32, DType::F64] {
            let (table, ids, cotangents) = batch(dtype);
            let f = accelerate(gradient);
            let call = || f.call(&table, &ids, &cotangents).unwrap();
            let on = bits(&call());
            let check = |is_on| assert_follows(is_on, has_same_bits(call, &ids, &cotangents), dtype.name());
            check(true);
            let previous = set_deterministic(false);
            for _ in 0..3 {
                check(false);
            }
            set_deterministic(previous);
            check(true);
            assert_eq!(bits(&call()), on, "{dtype}");
            assert_eq!(f.stats().misses, 2);
            let miss = f.explain()[1].to_string();
            assert!(miss.contains("mode: usual -> nondeterministic algorithms"), "{miss}");
            let texts = f.stats().entries.into_iter().map(|entry| {
                let is_off = entry.signature.to_string().ends_with("; nondeterministic algorithms");
                (is_off, f.text(&entry.signature, Form::Ptx).unwrap().contains(&format!("red.global.add.{dtype}")))
            });
            let mut texts: Vec<(bool, bool)> = texts.collect();
            texts.sort();
            assert_eq!(texts, [(false, false), (true, true)], "{dtype}");
        }
    });
}

/// Ops outside of a function, functions that are not accelerated, and gradients that are taken outside.
#[test]
fn every_way_to_run_follows_the_switch() {
    in_own_process("determinism::every_way_to_run_follows_the_switch", &[], || {
        let (table, ids, cotangents) = batch(DType::F32);
        let zeros = table.zeros_like();
        let plain = accelerate(gradient);
        plain.configure(|options| options.enabled = false);
        let taken = accelerate(|table: &Tensor, ids: &Tensor| nn::embedding(table, ids));
        let loss = |table: &Tensor| (taken.call(table, &ids).unwrap() * &cotangents).sum(..);
        let ways: [(&str, &dyn Fn() -> Tensor); 4] = [
            ("an op", &|| zeros.scatter_add(0, &ids, &cotangents)),
            ("a function that is not accelerated", &|| plain.call(&table, &ids, &cotangents).unwrap()),
            ("a gradient outside", &|| value_and_grad(loss, &table).unwrap().1),
            ("a gradient op by op", &|| {
                value_and_grad(|table: &Tensor| (nn::embedding(table, &ids) * &cotangents).sum(..), &table).unwrap().1
            }),
        ];
        for is_on in [true, false, true] {
            set_deterministic(is_on);
            for (name, way) in &ways {
                assert_follows(is_on, has_same_bits(way, &ids, &cotangents), name);
            }
        }
    });
}

/// A trap, a pin, an artefact: each entry is of the state that it was made in.
#[test]
fn entries_keep_their_state() {
    in_own_process("determinism::entries_keep_their_state", &[], || {
        let (table, ids, cotangents) = batch(DType::F32);
        let make = || accelerate(gradient);
        let f = make();
        let on = f.pin(&table, &ids, &cotangents).unwrap();
        set_deterministic(false);
        let off = f.pin(&table, &ids, &cotangents).unwrap();
        let mut bytes = vec![];
        assert_eq!(f.save_to(&mut bytes).unwrap().entries, 2);
        let loaded = make();
        assert_eq!(loaded.load_from(&bytes[..]).unwrap().entries, 2);
        for is_on in [true, false] {
            set_deterministic(is_on);
            let check = |is_on, what, run: &dyn Fn() -> Tensor| {
                assert_follows(is_on, has_same_bits(run, &ids, &cotangents), what);
            };
            check(true, "pinned while on", &|| on.call(&table, &ids, &cotangents).unwrap());
            check(false, "pinned while off", &|| off.call(&table, &ids, &cotangents).unwrap());
            check(is_on, "loaded", &|| loaded.call(&table, &ids, &cotangents).unwrap());
            loaded.configure(|options| options.trap_nonfinite = true);
            check(is_on, "loaded, with a trap", &|| loaded.call(&table, &ids, &cotangents).unwrap());
            loaded.configure(|options| options.trap_nonfinite = false);
        }
        // The two with a trap are new.
        assert_eq!((loaded.stats().misses, f.stats().misses), (2, 2));
    });
}

/// Ops for which the switch has no other algorithm keep their bits: few indices, integers, everything that is not scattered.
#[test]
fn the_rest_keeps_its_bits() {
    in_own_process("determinism::the_rest_keeps_its_bits", &[], || {
        let (_, ids, cotangents) = batch(DType::F32);
        let few = (ids.at(..20), cotangents.at(..20));
        let x = ramp(&[65, 33], 7).to(gpu());
        let f = accelerate(|ids: &Tensor, few: &(Tensor, Tensor), cts: &Tensor, x: &Tensor| {
            let zeros = Tensor::zeros([ROWS, COLUMNS]);
            let numbers = zeros.cast(DType::I32).scatter_add(0, ids, &cts.cast(DType::I32));
            let few = zeros.scatter_add(0, &few.0, &few.1);
            (numbers, few, x.exp().sum(..), x.softmax(1), x.matmul(&x.t()), x.cumsum(0))
        });
        let call = || {
            let found = f.call(&ids, &few, &cotangents, &x).unwrap();
            crate::compare::all_bits(&found)
        };
        let on = call();
        set_deterministic(false);
        assert_eq!(call(), on);
        assert_eq!(reversed(call), on);
        assert_eq!(f.stats().misses, 2);
    });
}
