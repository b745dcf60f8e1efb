//! Artefacts: a saved entry gives the same bits in another process, and any other file is refused.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails")]
#![allow(clippy::ptr_arg, reason = "the arguments of accelerated functions are trees")]

mod attack;
mod hostile;
mod panicking;
mod samples;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use retape::{Accelerated, ArtefactError, Error, Form, SkipReason, Static, Tensor, Tree, accelerate};

/// A path in a folder of this test, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("retape-artefact-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Debug, Tree)]
struct Params {
    w: Tensor,
    b: Option<Tensor>,
}

/// How often the closure below was entered in this process.
static ENTERED: AtomicUsize = AtomicUsize::new(0);

type Out = (Tensor, Params, Tensor, (bool, Static<f32>));

type In = (Params, Tensor, Static<f32>);

/// A training step whose result has all sources: outputs, an argument handed through, a constant, static values.
fn step() -> Accelerated<impl Fn(&Params, &Tensor, &Static<f32>) -> Out, In, Out> {
    let captured = Tensor::from([[0.5_f32, f32::from_bits(0x7fc0_1234)], [-0.0, 3.0]]);
    let mask = Tensor::from([true, false]);
    accelerate(move |p: &Params, x: &Tensor, rate: &Static<f32>| {
        ENTERED.fetch_add(1, SeqCst);
        let y = x.matmul(&p.w) * rate.0 + f32::NEG_INFINITY.max(-1.5);
        let y = mask.select(&y, &captured) + p.b.as_ref().unwrap_or(&captured);
        let loss = y.slice_axis(1, 0..1).tanh().mean(..);
        let grad: Params = loss.grad(p);
        (loss, grad, captured.clone(), (true, Static(f32::from_bits(0xffc0_0001))))
    })
}

fn arguments(with_bias: bool, rows: usize) -> (Params, Tensor) {
    let numbers =
        |n: usize| Tensor::from_vec((0..n).map(|k| (k as f32 * 0.37).sin()).collect::<Vec<_>>(), [n]).unwrap();
    let b = with_bias.then(|| numbers(2));
    (Params { w: numbers(6).reshape([3, 2]), b }, numbers(rows * 3).reshape([rows, 3]))
}

/// The bits of a result as text.
fn bits(out: &Out) -> String {
    let of =
        |x: &Tensor| x.to_vec::<f32>().unwrap().iter().map(|x| format!("{:08x} ", x.to_bits())).collect::<String>();
    let tensors = [Some(&out.0), Some(&out.1.w), out.1.b.as_ref(), Some(&out.2)];
    let text: String = tensors.into_iter().map(|x| x.map_or("none ".to_owned(), of)).collect();
    format!("{text}{} {:08x}", out.3.0, out.3.1.to_bits())
}

/// The calls that the artefact holds; the last is the most recently used.
fn calls(step: &Accelerated<impl Fn(&Params, &Tensor, &Static<f32>) -> Out, In, Out>) -> String {
    let mut text = String::new();
    for (with_bias, rows, rate) in [(true, 2, 0.1), (false, 2, 0.1), (true, 2, 0.2)] {
        let (p, x) = arguments(with_bias, rows);
        text += &bits(&step.call(&p, &x, Static(rate)).unwrap());
        text.push('\n');
    }
    text
}

const ARTEFACT: &str = "RETAPE_TEST_ARTEFACT";

/// Runs this very test once more in another process, which loads what this one saved.
#[test]
fn another_process_loads_what_this_one_saved() {
    if let Ok(path) = std::env::var(ARTEFACT) {
        let step = step();
        let loaded = step.load(path).unwrap();
        assert_eq!((loaded.entries, loaded.skipped.len(), loaded.recompiled_for_other_cpu), (3, 0, false));
        step.configure(|options| options.locked = true);
        let found = calls(&step);
        let stats = step.stats();
        assert_eq!((stats.misses, stats.hits, ENTERED.load(SeqCst)), (0, 3, 0));
        assert_eq!(stats.entries.iter().map(|entry| entry.calls).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(
            stats.entries[0].captures[0].contains("tests/engine/artefact/mod.rs:"),
            "{:?}",
            stats.entries[0].captures
        );
        assert!(
            step.text(&stats.entries[0].signature, Form::Graph).unwrap().contains("; tests/engine/artefact/mod.rs:")
        );
        print!("\nfound:{found}:end\n");
        return;
    }
    let folder = Folder::new("process");
    let path = folder.0.join("step.retape");
    let step = step();
    let expected = calls(&step);
    let saved = step.save(&path).unwrap();
    assert_eq!((saved.entries, saved.bytes), (3, std::fs::metadata(&path).unwrap().len()));
    assert_eq!(folder.names(), ["step.retape"]);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "artefact::another_process_loads_what_this_one_saved", "--nocapture"]).env(ARTEFACT, &path);
    let output = child.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let found = text.split_once("found:").and_then(|(_, rest)| rest.split_once(":end")).unwrap().0;
    assert_eq!(found, expected);
}

#[test]
fn a_loaded_function_saves_the_same_bytes() {
    let first = step();
    calls(&first);
    let mut bytes = vec![];
    first.save_to(&mut bytes).unwrap();
    let second = step();
    second.load_from(&bytes[..]).unwrap();
    let mut again = vec![];
    second.save_to(&mut again).unwrap();
    assert!(bytes == again);
}

#[test]
fn what_the_cache_has_stays_and_what_has_no_room_is_skipped() {
    let first = step();
    calls(&first);
    let mut bytes = vec![];
    first.save_to(&mut bytes).unwrap();
    let names: Vec<String> = first.stats().entries.iter().map(|entry| entry.signature.to_string()).collect();

    let second = step();
    second.configure(|options| options.capacity = 2);
    let (p, x) = arguments(false, 2);
    second.call(&p, &x, Static(0.1)).unwrap();
    let loaded = second.load_from(&bytes[..]).unwrap();
    // The most recently used entry went in; the next one is there; the last one found no room.
    assert_eq!(loaded.entries, 1);
    let skipped: Vec<_> =
        loaded.skipped.iter().map(|skipped| (skipped.signature.to_string(), skipped.reason)).collect();
    assert_eq!(skipped, [(names[1].clone(), SkipReason::Present), (names[2].clone(), SkipReason::NoRoom)]);
    let stats = second.stats();
    assert_eq!((stats.misses, stats.evictions, stats.entries.len()), (1, 0, 2));
    // Bytes are room as well.
    let third = step();
    third.configure(|options| options.byte_budget = retape::Budget { host: Some(stats.bytes() - 1), device: None });
    let loaded = third.load_from(&bytes[..]).unwrap();
    let entries = third.stats().entries.len();
    assert!(entries < 3 && loaded.skipped.iter().all(|skipped| skipped.reason == SkipReason::NoRoom));
    assert_eq!((loaded.entries, loaded.skipped.len()), (entries, 3 - entries));

    let again = second.load_from(&bytes[..]).unwrap();
    assert_eq!((again.entries, again.skipped.len()), (0, 3));
    assert_eq!(again.to_string().split(" (").next(), Some("0 entries loaded, 3 skipped"));
}

#[test]
fn misses_after_a_load_are_explained_by_what_was_loaded() {
    let first = doubling();
    first.call(Tensor::ones([4])).unwrap();
    let mut bytes = vec![];
    first.save_to(&mut bytes).unwrap();
    let second = doubling();
    second.load_from(&bytes[..]).unwrap();
    second.configure(|options| options.locked = true);
    let refused = second.call(Tensor::ones([5])).unwrap_err().to_string();
    assert!(refused.contains("argument 0 axis 0: 4 -> 5"), "{refused}");
    second.configure(|options| options.locked = false);
    second.call(Tensor::ones([5])).unwrap();
    assert_eq!((second.stats().misses, second.stats().entries.len()), (2, 2));
}

fn double(x: &Tensor) -> Tensor {
    x + x
}

/// The function that the artefacts of most tests are for: all of them are made at this line.
fn doubling() -> Accelerated<fn(&Tensor) -> Tensor, (Tensor,), Tensor> {
    accelerate(double as fn(&Tensor) -> Tensor)
}

fn negate(x: &Tensor) -> Tensor {
    -x
}

fn summed(x: &Tensor) -> (Tensor, Tensor) {
    (x.sum(..), x.clone())
}

/// The bytes of an artefact for `double` with one entry.
fn doubled() -> Vec<u8> {
    let function = doubling();
    function.call(Tensor::ones([4])).unwrap();
    let mut bytes = vec![];
    function.save_to(&mut bytes).unwrap();
    bytes
}

fn refusal(bytes: &[u8]) -> ArtefactError {
    let function = doubling();
    let error = match function.load_from(bytes) {
        Err(Error::Artefact(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(function.stats().entries.len(), 0);
    error
}

#[test]
fn artefacts_of_other_functions_and_types_are_refused() {
    let part = |result: retape::Result<retape::Loaded>| match result {
        Err(Error::Artefact(ArtefactError::OtherFunction { part, .. })) => part,
        other => panic!("{other:?}"),
    };
    let bytes = saved(&accelerate(double));
    assert_eq!(part(accelerate(negate).load_from(&bytes[..])), "function");
    assert_eq!(part(accelerate(summed).load_from(&bytes[..])), "result");
    assert_eq!(part(accelerate(|x: &Tensor, y: &Tensor| x + y).load_from(&bytes[..])), "argument");
}

/// Types do not tell all functions apart; the line does.
#[test]
fn functions_of_one_type_made_at_other_lines_are_refused() {
    type Boxed = Box<dyn Fn(&Tensor) -> Tensor>;
    struct Codec {
        encode: Accelerated<Boxed, (Tensor,), Tensor>,
        decode: Accelerated<Boxed, (Tensor,), Tensor>,
    }
    const ENCODE: u32 = line!() + 3;
    let codec = || Codec {
        // Moving these two lines apart is as good as an edit above them.
        encode: accelerate(Box::new(|x: &Tensor| x * 2.0) as Boxed),
        decode: accelerate(Box::new(|x: &Tensor| x * 100.0) as Boxed),
    };
    let (trained, served) = (codec(), codec());
    trained.encode.call(Tensor::ones([1])).unwrap();
    let bytes = saved(&trained.encode);
    let error = served.decode.load_from(&bytes[..]).unwrap_err();
    let Error::Artefact(ArtefactError::OtherPlace { found, own, .. }) = &error else { panic!("{error}") };
    assert!(found.starts_with(&format!("tests/engine/artefact/mod.rs:{ENCODE}:")), "{found}");
    assert!(own.starts_with(&format!("tests/engine/artefact/mod.rs:{}:", ENCODE + 1)), "{own}");
    assert!(error.to_string().contains("the source has moved since, and then calls simply trace anew"), "{error}");
    // It goes on as if there were no artefact.
    assert_eq!(served.decode.call(Tensor::ones([1])).unwrap().to_vec::<f32>().unwrap(), [100.0]);
    assert_eq!((served.decode.stats().misses, served.decode.stats().entries.len()), (1, 1));
    served.encode.load_from(&bytes[..]).unwrap();
    assert_eq!(served.encode.call(Tensor::ones([1])).unwrap().to_vec::<f32>().unwrap(), [2.0]);
    assert_eq!(served.encode.stats().misses, 0);

    // One line has columns.
    #[rustfmt::skip]
    let (enc, dec) = (accelerate(double), accelerate(double));
    assert!(matches!(dec.load_from(&saved(&enc)[..]), Err(Error::Artefact(ArtefactError::OtherPlace { .. }))));
}

#[test]
fn artefacts_of_other_versions_are_refused() {
    let bytes = doubled();
    let mut other = bytes.clone();
    other[8] = 1;
    assert!(matches!(refusal(&other), ArtefactError::OtherFormat { found: 1, own: 5, .. }));
    // The version is the first text of the header, after its length.
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(&bytes[24..24 + version.len()], version.as_bytes());
    let mut other = bytes[..bytes.len() - attack::CHECKSUM].to_vec();
    other[24] = b'9';
    match refusal(&attack::resealed(other)) {
        ArtefactError::OtherVersion { found, own, .. } => assert_eq!((&found[1..], &*own), (&version[1..], version)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_artefact_of_another_processor_is_compiled_for_this_one() {
    let bytes = doubled();
    let at = 24 + env!("CARGO_PKG_VERSION").len() + 8;
    let arch = std::env::consts::ARCH.as_bytes();
    assert_eq!(&bytes[at..at + arch.len()], arch);
    let mut other = bytes[..bytes.len() - attack::CHECKSUM].to_vec();
    other[at] = b'?';
    let function = doubling();
    let loaded = function.load_from(&attack::resealed(other)[..]).unwrap();
    assert!(loaded.recompiled_for_other_cpu);
    assert_eq!(function.call(Tensor::ones([4])).unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
    assert_eq!(function.stats().misses, 0);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = doubled();
    for len in 0..bytes.len() {
        let error = refusal(&bytes[..len]);
        assert!(matches!(error, ArtefactError::Truncated { .. }), "{len}: {error}");
    }
}

#[test]
fn every_flipped_byte_is_refused() {
    let bytes = doubled();
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut flipped = bytes.clone();
            flipped[at] ^= flip;
            let error = refusal(&flipped);
            assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn what_is_no_artefact_is_refused() {
    for bytes in [&b"PK\x03\x04 and so on for a while"[..], b"retape\n\n", &[0; 64], &[0xff; 4096]] {
        assert_eq!(refusal(bytes), ArtefactError::NotAnArtefact);
    }
    let mut random = retape::data::Random::new(1, 0, 0);
    for _ in 0..1000 {
        let len = random.below(300);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        refusal(&bytes);
        // Past the first checks.
        let known = doubled();
        let kept = random.below(40).min(known.len());
        bytes.splice(0..0, known[..kept].iter().copied());
        refusal(&bytes);
    }
}

#[test]
fn lengths_that_cannot_be_are_refused_before_memory_is_taken() {
    let bytes = doubled();
    let header = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let mut long_header = bytes.clone();
    long_header[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(refusal(&long_header), ArtefactError::Oversized { part: "header", .. }));
    for len in [u64::MAX, 1 << 41] {
        let mut long_payload = bytes.clone();
        long_payload[16 + header..24 + header].copy_from_slice(&len.to_le_bytes());
        assert!(matches!(refusal(&long_payload), ArtefactError::Oversized { part: "payload", .. }));
    }
    // As much as is allowed, but not there.
    let mut long_payload = bytes.clone();
    long_payload[16 + header..24 + header].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    assert_eq!(refusal(&long_payload).to_string(), "the artefact is cut off within its payload");
}

#[test]
fn files_that_cannot_be_read_or_written_are_errors_with_their_path() {
    let folder = Folder::new("files");
    let function = doubling();
    let missing = folder.0.join("missing.retape");
    let error = function.load(&missing).unwrap_err().to_string();
    assert!(error.contains("missing.retape"), "{error}");
    // A folder is in the way of the file.
    let taken = folder.0.join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("inside"), "").unwrap();
    assert!(function.save(&taken).is_err());
    assert!(function.save(folder.0.join("no/such/folder")).is_err());
    assert!(function.save("/").is_err());
    assert_eq!(folder.names(), ["taken"]);

    let path = folder.0.join("double.retape");
    std::fs::write(&path, "what was there").unwrap();
    function.call(Tensor::ones([4])).unwrap();
    function.save(&path).unwrap();
    assert_eq!(doubling().load(&path).unwrap().entries, 1);
    let mut longer = std::fs::read(&path).unwrap();
    longer.push(0);
    std::fs::write(&path, &longer).unwrap();
    let error = doubling().load(&path).unwrap_err().to_string();
    assert!(error.contains("goes on after"), "{error}");
}

/// A function, and another one made at the same line, which loads what the first one saves.
fn twins<F, R>(function: F) -> [Accelerated<F, (Tensor,), R>; 2]
where
    F: Fn(&Tensor) -> R + Clone,
    R: Tree,
{
    [(); 2].map(|()| accelerate(function.clone()))
}

fn saved<F, Args, R>(function: &Accelerated<F, Args, R>) -> Vec<u8>
where
    F: retape::Function<Args, R>,
    Args: Tree,
    R: Tree,
{
    let mut bytes = vec![];
    function.save_to(&mut bytes).unwrap();
    bytes
}

fn root(x: &Tensor) -> Tensor {
    (x - 1.0).sqrt()
}

#[test]
fn entries_with_a_trap_are_loaded_with_it() {
    let [first, second] = twins(root);
    first.configure(|options| options.trap_nonfinite = true);
    first.call(Tensor::ones([3])).unwrap();
    second.load_from(&saved(&first)[..]).unwrap();
    second.configure(|options| options.locked = true);
    assert!(second.call(Tensor::ones([3])).is_err(), "the entry without a trap is another one");
    second.configure(|options| options.trap_nonfinite = true);
    assert_eq!(second.call(Tensor::ones([3])).unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
    let trapped = second.call(Tensor::zeros([3])).unwrap_err();
    assert!(matches!(trapped, Error::NonFinite(_)), "{trapped}");
}

#[test]
fn entries_in_quarantine_are_not_saved() {
    use retape::{Check, CheckWhen, OnDifference, Tolerance};
    let factor = std::sync::Mutex::new(2.0_f32);
    let scaled = accelerate(|x: &Tensor| x * *factor.lock().unwrap());
    scaled.call(Tensor::ones([2])).unwrap();
    *factor.lock().unwrap() = 3.0;
    scaled.call(Tensor::ones([3])).unwrap();
    let when = CheckWhen::Every;
    scaled.configure(|options| {
        options.check = Check { when, tolerance: Tolerance::default(), on_difference: OnDifference::FallBack }.into()
    });
    for n in [2, 3] {
        assert_eq!(scaled.call(Tensor::ones([n])).unwrap().to_vec::<f32>().unwrap(), vec![3.0; n]);
    }
    let before = scaled.stats().checks;
    let saved = scaled.save_to(std::io::sink()).unwrap();
    assert_eq!((saved.entries, saved.quarantined), (1, 1));
    assert_eq!(scaled.stats().checks, before, "saving is no call");
}

/// A loaded entry called inside a gradient that is taken outside: forward and backward code come from its graph.
#[test]
fn loaded_entries_have_gradients() {
    fn energy(x: &Tensor) -> Tensor {
        assert!(x.is_traced());
        (x.tanh() * x).sum(..)
    }
    let x = Tensor::from([0.3_f32, -2.0, 1.5]);
    let [first, second] = twins(energy);
    let expected = retape::value_and_grad(|x: &Tensor| first.call(x).unwrap(), &x).unwrap();
    first.call(&x).unwrap();
    second.load_from(&saved(&first)[..]).unwrap();
    let found = retape::value_and_grad(|x: &Tensor| second.call(x).unwrap(), &x).unwrap();
    assert_eq!(found.0.to_vec::<f32>().unwrap(), expected.0.to_vec::<f32>().unwrap());
    assert_eq!(found.1.to_vec::<f32>().unwrap(), expected.1.to_vec::<f32>().unwrap());
    assert_eq!(second.stats().misses, 0);
}

#[test]
fn a_stream_may_hold_several_artefacts() {
    let negating = || accelerate(negate);
    let (one, two) = (doubling(), negating());
    one.call(Tensor::ones([2])).unwrap();
    two.call(Tensor::ones([3])).unwrap();
    let mut stream = vec![];
    one.save_to(&mut stream).unwrap();
    two.save_to(&mut stream).unwrap();
    stream.extend(b"what follows is not read");
    let (one, two, mut from) = (doubling(), negating(), &stream[..]);
    one.load_from(&mut from).unwrap();
    two.load_from(&mut from).unwrap();
    assert_eq!(from, b"what follows is not read");
    assert_eq!(two.call(Tensor::ones([3])).unwrap().to_vec::<f32>().unwrap(), [-1.0; 3]);
    assert_eq!(two.stats().misses, 0);
}
