//! Impossible requests are clear errors: no driver, no such device, tensors on several devices; and code on disk.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use retape::{Device, Error, Tensor, accelerate, concat, trace, value_and_grad, vjp};
use retape_runtime::Gpu;

use crate::compare::{all_bits, bits, ramp};
use crate::device::{driver, gpu, in_own_process, of_runtime, second_gpu};

/// Whether the text names these, and the line of this file that comes right after the one where this is called.
#[track_caller]
fn names(error: &Error, line: u32, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains(&format!("tests/gpu/refusals.rs:{line}:")), "line {line}: {text}");
}

#[test]
fn without_a_driver_there_is_a_clear_answer() {
    const NAME: &str = "refusals::without_a_driver_there_is_a_clear_answer";
    if driver_is_hidden() {
        assert_eq!(Device::available(), [Device::Cpu]);
        let text = Device::cuda(0).unwrap_err().to_string();
        assert!(text.contains("cuda:0") && text.contains("no NVIDIA driver is found"), "{text}");
        // A device may be named without being there, as one that was read from a file.
        let device = Device::Cuda(0);
        assert!(Tensor::from([1.0_f32]).to(device).error().unwrap().to_string().contains("no NVIDIA driver"));
        assert!(device.sync().is_err());
        let moved = accelerate(|x: &Tensor| x + 1.0).call(Tensor::from([1.0_f32]).to(device));
        assert!(moved.unwrap_err().to_string().contains("no NVIDIA driver"));
        // And everything else works.
        assert_eq!(
            accelerate(|x: &Tensor| x + 1.0).call(Tensor::from([1.0_f32])).unwrap().to_vec::<f32>().unwrap(),
            [2.0]
        );
        return;
    }
    if driver().is_none() {
        return;
    }
    in_own_process(NAME, &[(HIDDEN, "1")], || panic!("the child goes another way"));
}

/// Set where no driver is installed.
const HIDDEN: &str = "RETAPE_TEST_NO_DRIVER";

fn driver_is_hidden() -> bool {
    std::env::var_os(HIDDEN).is_some()
}

#[test]
fn a_device_that_is_not_there_is_named() {
    gpu();
    let text = Device::cuda(9).unwrap_err().to_string();
    assert!(text.contains("cuda:9") && text.contains("cuda:0"), "{text}");
    let text = Tensor::from([1.0_f32]).to(Device::Cuda(9)).error().unwrap().to_string();
    assert!(text.contains("cuda:9"), "{text}");
}

#[test]
fn a_device_that_is_too_old_is_refused() {
    let Some(driver) = driver() else { return };
    in_own_process("refusals::a_device_that_is_too_old_is_refused", &[], || {
        driver.set_capability(0, 70);
        let text = Device::cuda(0).unwrap_err().to_string();
        assert!(text.contains("7.0") && text.contains("7.5"), "{text}");
        assert_eq!(Device::available(), [Device::Cpu, Device::Cuda(1)]);
        driver.set_capability(0, 75);
        let x = ramp(&[33, 20], 1);
        let f = accelerate(|x: &Tensor| x.matmul(&x.t()).softmax(1));
        let apart = crate::compare::apart(&f.call(&x).unwrap(), &f.call(x.to(Device::cuda(0).unwrap())).unwrap());
        assert!(apart < 1e-6, "{apart}");
    });
}

#[test]
fn devices_do_not_mix() {
    let gpu = gpu();
    let x = ramp(&[4], 1);
    let there = x.to(gpu);
    // Eager ops of two and of three tensors.
    let line = line!() + 1;
    names((&x + &there).error().unwrap(), line, &["cpu", "cuda:0", "Tensor::to"]);
    let (mask, line) = (Tensor::from([true, false, true, false]), line!() + 1);
    names(mask.select(&there, &there).error().unwrap(), line, &["cpu", "cuda:0"]);
    // One of a list that is joined some at a time.
    let mut list = vec![&x; 40];
    list[35] = &there;
    let line = line!() + 1;
    names(concat(&list, 0).error().unwrap(), line, &["argument 35", "cpu", "cuda:0"]);
    // Arguments.
    let add = accelerate(|x: &Tensor, y: &Tensor| x + y);
    let line = line!() + 1;
    names(&add.call(&x, &there).unwrap_err(), line, &["cpu", "cuda:0"]);
    // A captured tensor on another device than the arguments.
    let captured = there.clone();
    let shifted = accelerate(move |x: &Tensor| x + &captured);
    let text = shifted.call(&x).unwrap_err().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0") && text.contains("tests/gpu/refusals.rs"), "{text}");
    assert_eq!(bits(&shifted.call(&there).unwrap()), bits(&(&x + &x)));
    // In a gradient that is evaluated at once.
    let line = line!() + 1;
    names(&vjp(|x: &Tensor| x * 2.0, &there, &x).unwrap_err(), line, &["cpu", "cuda:0"]);
    let text = value_and_grad(|x: &Tensor| (x * &there).sum(..), &x).unwrap_err().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0"), "{text}");
    // A traced tensor stays where its trace is.
    let text = accelerate(move |x: &Tensor| x.to(gpu)).call(&x).unwrap_err().to_string();
    assert!(text.contains("outside the closure"), "{text}");
    // Numbers fit anywhere.
    let scaled = accelerate(|x: &Tensor, rate: &Tensor| x * rate);
    assert_eq!(bits(&scaled.call(&there, 2.0_f32).unwrap()), bits(&(&x * 2.0)));
    assert_eq!(bits(&(&there * Tensor::from(2.0_f32))), bits(&(&x * 2.0)));
    let (_, slope) = vjp(|x: &Tensor| x.square().sum(..), &there, &Tensor::from(1.0_f32)).unwrap();
    assert_eq!(bits(&slope), bits(&(&x * 2.0)));
    // Host captures are sent along.
    let host = x.clone();
    let sent = accelerate(move |x: &Tensor| x * &host);
    assert_eq!(bits(&sent.call(&there).unwrap()), bits(&(&x * &x)));
}

#[test]
fn two_gpus_do_not_mix() {
    let (first, Some(second)) = (gpu(), second_gpu()) else { return };
    let x = ramp(&[4, 4], 1);
    let (one, other) = (x.to(first), x.to(second));
    let line = line!() + 1;
    names((&one * &other).error().unwrap(), line, &["cuda:0", "cuda:1"]);
    let f = accelerate(|x: &Tensor, y: &Tensor| x.matmul(y).tanh());
    let line = line!() + 1;
    names(&f.call(&one, &other).unwrap_err(), line, &["cuda:0", "cuda:1"]);
    let captured = other.clone();
    let text = accelerate(move |x: &Tensor| x + &captured).call(&one).unwrap_err().to_string();
    assert!(text.contains("cuda:0") && text.contains("cuda:1"), "{text}");
    // Each device has its entry, and both compute the same.
    let (a, b) = (f.call(&one, &one).unwrap(), f.call(&other, &other).unwrap());
    assert_eq!((a.device(), b.device(), f.stats().misses), (first, second, 3), "the call that was refused missed, too");
    assert_eq!(bits(&a), bits(&b));
    assert_eq!(bits(&a.to(second)), bits(&b));
    assert_eq!(bits(&f.call(&a, one.to(first)).unwrap()), bits(&f.call(a.to(second), &other).unwrap()));
}

#[test]
fn graphs_of_two_devices_are_refused() {
    let (x, there) = (ramp(&[4], 1), ramp(&[4], 1).to(gpu()));
    let graph = trace(|(x, y): &(Tensor, Tensor)| x + y, &(x.clone(), x.clone())).unwrap();
    let text = graph.apply(&[x, there]).unwrap_err().to_string();
    assert!(text.contains("cpu") && text.contains("cuda:0"), "{text}");
}

const ARTEFACT: &str = "RETAPE_TEST_GPU_ARTEFACT";

/// An artefact of entries on a GPU is loaded where there is none.
#[test]
fn an_artefact_whose_device_is_missing_is_a_clean_error() {
    const NAME: &str = "refusals::an_artefact_whose_device_is_missing_is_a_clean_error";
    let f = accelerate(|x: &Tensor| (x * 2.0).sum(..));
    if let Some(path) = std::env::var_os(ARTEFACT) {
        let text = f.load(&path).unwrap_err().to_string();
        assert!(text.contains("cuda:0") && text.contains("no NVIDIA driver"), "{text}");
        assert_eq!(f.stats().entries.len(), 0, "a load that fails leaves the cache as it was");
        assert_eq!(f.call(Tensor::ones([3])).unwrap().item::<f32>().unwrap(), 6.0);
        return;
    }
    if driver().is_none() {
        return;
    }
    let folder = Folder::new("artefact");
    let path = folder.0.join("f.retape");
    f.call(Tensor::ones([3]).to(gpu())).unwrap();
    assert_eq!(f.save(&path).unwrap().entries, 1);
    in_own_process(NAME, &[(ARTEFACT, path.to_str().unwrap())], || panic!("the child goes another way"));
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("retape-gpu-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The files of compiled code.
    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const KEPT: &str = "RETAPE_TEST_KEPT";

/// Code is compiled once for all processes; a broken file on disk is compiled again.
#[test]
fn code_on_disk_serves_the_next_process() {
    const NAME: &str = "refusals::code_on_disk_serves_the_next_process";
    if std::env::var_os(KEPT).is_some() {
        driver();
        let device = Device::cuda(0).unwrap();
        let f = accelerate(|x: &Tensor| (x.matmul(&x.t()).softmax(1), (x * 2.0).tanh().sum(..)));
        let found = all_bits(&f.call(ramp(&[12, 7], 1).to(device)).unwrap());
        let stats = Gpu::open(0).unwrap().code_stats();
        println!("\nfound {found:?}, {} compiled, {} from disk;", stats.compiled, stats.from_disk);
        return;
    }
    let folder = Folder::new("code");
    let run = || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", NAME, "--nocapture", "--test-threads=1"]).env(KEPT, "1");
        let output = child.env("RETAPE_CUBIN_CACHE", &folder.0).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let (_, text) = text.split_once("found ").unwrap();
        let mut parts = text.split(';').next().unwrap().rsplitn(3, ", ");
        let mut number = || parts.next().unwrap().split(' ').next().unwrap().parse::<usize>().unwrap();
        let (from_disk, compiled) = (number(), number());
        (parts.next().unwrap().to_owned(), compiled, from_disk)
    };
    let (expected, n, from_disk) = run();
    assert!(n > 0 && from_disk == 0);
    assert_eq!(folder.files().len(), n);
    assert_eq!(run(), (expected.clone(), 0, n));
    // Cut, changed, and not code at all.
    for (k, file) in folder.files().into_iter().enumerate() {
        let mut bytes = fs::read(&file).unwrap();
        match k % 3 {
            0 => bytes.truncate(bytes.len() / 2),
            1 => *bytes.last_mut().unwrap() ^= 1,
            _ => bytes = b"nothing of that kind".to_vec(),
        }
        fs::write(file, bytes).unwrap();
    }
    assert_eq!(run(), (expected.clone(), n, 0));
    assert_eq!(run(), (expected, 0, n));
    drop(of_runtime());
}
