//! Memory that is refused: errors name the op or the call with its line, what is in use, the limit and the remedy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use retape::random::Key;
use retape::{Check, Error, OnDifference, OutOfMemory, Refusal, Tensor, accelerate, value_and_grad};
use retape_runtime::{live_bytes, memory_limit, set_memory_limit, trim};

const MIB: usize = 1 << 20;

/// Sets how much more memory there is, until it is dropped.
struct Limited(usize);

impl Drop for Limited {
    fn drop(&mut self) {
        set_memory_limit(self.0);
    }
}

fn with_room(bytes: usize) -> Limited {
    let limited = Limited(memory_limit());
    trim();
    set_memory_limit(live_bytes() + bytes);
    limited
}

/// The refusal, which names a line of this file.
#[track_caller]
fn refused(error: &Error, by: &str, line: u32, bytes: usize) -> OutOfMemory {
    let Error::Memory(refused) = error else { panic!("another error: {error}") };
    let text = error.to_string();
    assert!(refused.by.contains(by), "{text}");
    assert_eq!((refused.at.file(), refused.at.line()), (file!(), line), "{text}");
    assert_eq!((refused.shortage.bytes, refused.shortage.refusal), (bytes, Refusal::Limit), "{text}");
    assert_eq!(refused.shortage.limit, memory_limit());
    assert!(text.contains(" in use, limit ") && text.contains("`retape_runtime::set_memory_limit`"), "{text}");
    assert!(std::error::Error::source(error).unwrap().to_string().contains("asked for"));
    OutOfMemory::clone(refused)
}

/// Floats of so many bytes.
fn floats(bytes: usize) -> Tensor {
    Tensor::ones([bytes / 4])
}

#[test]
fn ops_outside_traces_are_named() {
    let _turn = super::alone();
    let (x, row, matrix) = (floats(4 * MIB), Tensor::ones([1, 1024]), Tensor::ones([1024, 1024]));
    let (y, column) = (floats(4 * MIB), Tensor::ones([1024, 1]));
    let _room = with_room(3 * MIB);
    let one_op = |result: Tensor, by: &str, line: u32, bytes: usize| {
        let refused = refused(result.error().unwrap(), by, line, bytes);
        assert!(refused.to_string().starts_with("4.0 MiB asked for by `"), "{refused}");
    };
    one_op(&x + &y, "`add`", line!(), 4 * MIB);
    one_op(x.exp(), "`exp`", line!(), 4 * MIB);
    one_op(column.matmul(&row), "`matmul`", line!(), 4 * MIB);
    one_op(matrix.t(), "`t`", line!(), 4 * MIB);
    // Making large tensors is refused as well, and small ones are not.
    one_op(Tensor::zeros([MIB]), "`zeros`", line!(), 4 * MIB);
    one_op(x.zeros_like(), "`zeros_like`", line!(), 4 * MIB);
    one_op(Tensor::from(vec![1.0_f32; MIB]), "`from`", line!(), 4 * MIB);
    one_op(Tensor::iota(retape::DType::F32, [MIB], 0), "`iota`", line!(), 4 * MIB);
    let made = Tensor::from_vec(vec![1.0_f32; MIB], [MIB]);
    refused(&made.unwrap_err(), "`from_vec`", line!() - 1, 4 * MIB);
    assert_eq!((&row + 1.0).sum(..).item::<f32>().unwrap(), 2048.0);
    let key = Key::new(1);
    let drawn = retape::random::normal(&key, [MIB], retape::DType::F32);
    assert!(matches!(drawn.error(), Some(Error::Memory(_))), "{drawn}");
    // The first error of a formula is its error.
    let line = line!() + 1;
    let formula = (&x + &y).exp().sum(..) * 3.0;
    refused(formula.error().unwrap(), "`add`", line, 4 * MIB);
}

#[test]
fn calls_name_their_function_and_what_they_need() {
    let _turn = super::alone();
    let at = line!() + 1;
    let f = accelerate(|x: &Tensor| (x.sort(0).cumsum(0), x.exp()));
    let x = floats(4 * MIB);
    let expected = f.call(&x).unwrap();
    let arena = f.stats().entries[0].arena_bytes;
    assert!(arena >= 4 * MIB, "{arena}");
    drop(expected);
    let room = with_room(3 * MIB);
    let error = f.call(&x).map(drop).unwrap_err();
    let found = refused(&error, &format!("accelerated at {}:{at}:", file!()), line!() - 1, 4 * MIB);
    assert!(found.by.contains("(f32[1048576])"), "{found}");
    let needs = format!("needs {} for its arena and 8.0 MiB for results", retape::ByteCount(arena));
    assert!(found.by.contains(&needs), "{needs} is not in {found}");

    // By value, profiled, trapped, pinned: the same.
    drop(room);
    let pinned = f.pin(&x).unwrap();
    let given = floats(4 * MIB);
    let room = with_room(3 * MIB);
    let by_value = f.call(given).map(drop).unwrap_err();
    refused(&by_value, "accelerated at", line!() - 1, 4 * MIB);
    let by_pin = pinned.call(&x).map(drop).unwrap_err();
    refused(&by_pin, "accelerated at", line!() - 1, 4 * MIB);
    f.configure(|options| options.profiling = true);
    let profiled = f.call(&x).map(drop).unwrap_err();
    refused(&profiled, "accelerated at", line!() - 1, 4 * MIB);
    // Op by op, the op is named.
    f.configure(|options| options.enabled = false);
    let plain = f.call(&x).map(drop).unwrap_err();
    let Error::Memory(found) = &plain else { panic!("{plain}") };
    assert_eq!((&*found.by, found.at.line(), found.shortage.bytes), ("`argsort`", at, 8 * MIB), "{found}");
    f.configure(|options| options.enabled = true);
    drop(room);
    assert!(f.call(&x).is_ok(), "nothing is lost");
    assert_eq!((f.stats().misses, f.stats().entries.len()), (1, 1));
}

#[test]
fn a_first_call_and_checks_are_named_too() {
    let _turn = super::alone();
    let at = line!() + 1;
    let f = accelerate(|x: &Tensor| x.exp().sort(0));
    let x = floats(4 * MIB);
    let room = with_room(3 * MIB);
    let first = f.call(&x).map(drop).unwrap_err();
    refused(&first, &format!("accelerated at {}:{at}:", file!()), line!() - 1, 4 * MIB);
    drop(room);
    // A constant that the closure makes while it is traced.
    let at = line!() + 1;
    let g = accelerate(|x: &Tensor| x + Tensor::ones([MIB]));
    let room = with_room(3 * MIB);
    let traced = g.call(Tensor::ones([1])).map(drop).unwrap_err();
    refused(&traced, "`ones`", at, 4 * MIB);
    drop(room);

    // The un-accelerated path of a check needs its own.
    f.configure(|options| options.check = (Check { on_difference: OnDifference::Err, ..Check::default() }).into());
    assert!(f.call(&x).is_ok());
    let slope =
        |f: &retape::Accelerated<_, (Tensor,), Tensor>| value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &x);
    let h = accelerate(|x: &Tensor| x.exp() * x.sin());
    slope(&h).unwrap();
    let _room = with_room(3 * MIB);
    let error = slope(&h).map(drop).unwrap_err();
    let Error::Memory(found) = &error else { panic!("{error}") };
    assert!(found.by.contains("a call inside a gradient of the function accelerated at"), "{error}");
    assert_eq!(found.at.file(), file!());
}

/// More than there is at all, with no limit set.
#[test]
fn without_a_limit_the_machine_is_named() {
    let _turn = super::alone();
    let text = |error: &Error| error.to_string();
    let huge = Tensor::zeros([1_usize << 55]);
    let error = huge.error().unwrap();
    let Error::Memory(found) = error else { panic!("{error}") };
    assert_eq!((found.shortage.refusal, found.shortage.bytes), (Refusal::Size, 1 << 57));
    assert!(text(error).starts_with("memory: 128.0 PiB asked for by `zeros` (at tests/process/memory.rs:"), "{error}");
    assert!(text(error).contains("that there are; drop tensors") && !text(error).contains("limit"), "{error}");
}
