//! The GPU of these tests: the stand-in driver, or with `RETAPE_TEST_GPU=real` that of the machine.

use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use retape::Device;
use retape_cuda_sim::Order;
use retape_cuda_sim::driver::{Driver, install};
use retape_runtime::Gpu;

/// The stand-in driver, unless tests run on a real one.
pub(crate) fn driver() -> Option<Driver> {
    static DRIVER: LazyLock<Option<Driver>> =
        LazyLock::new(|| (std::env::var("RETAPE_TEST_GPU").as_deref() != Ok("real")).then(installed));
    *DRIVER
}

/// The compute capability of the stand-in device, such as 80.
pub(crate) const CAPABILITY: &str = "RETAPE_TEST_CAPABILITY";

fn installed() -> Driver {
    let driver = install();
    if let Ok(capability) = std::env::var(CAPABILITY) {
        driver.set_capability(0, capability.parse().unwrap());
    }
    driver
}

/// The first GPU. Code compiled for it is not kept on disk.
///
/// Each buffer is an allocation of its own, so that the stand-in sees what is read and never written, or lies beyond a
/// buffer; but in processes of their own and on older devices memory is used again, as it is for everyone else.
pub(crate) fn gpu() -> Device {
    static PREPARED: LazyLock<()> = LazyLock::new(|| {
        let is_plain = [CHILD, CAPABILITY].iter().all(|variable| std::env::var_os(variable).is_none());
        of_runtime().set_code_folder(None);
        of_runtime().set_exact_memory(driver().is_some() && is_plain);
    });
    LazyLock::force(&PREPARED);
    Device::cuda(0).unwrap_or_else(|e| panic!("{e}"))
}

/// The first GPU as the runtime knows it.
pub(crate) fn of_runtime() -> Arc<Gpu> {
    driver();
    Gpu::open(0).unwrap_or_else(|e| panic!("{e}"))
}

/// The second GPU, if there is one.
pub(crate) fn second_gpu() -> Option<Device> {
    driver();
    Device::cuda(1).ok()
}

/// Runs something with blocks, warps and the nodes of graphs in reversed order, where the driver can do that; on a real
/// one it simply runs once more. Work that it queues is done at the end.
pub(crate) fn reversed<R>(run: impl FnOnce() -> R) -> R {
    in_order(Order::REVERSE, run)
}

/// Runs something in each order but the usual one.
pub(crate) fn in_every_order(run: impl Fn(Order)) {
    Order::ALL.into_iter().skip(1).for_each(|order| in_order(order, || run(order)));
}

fn in_order<R>(order: Order, run: impl FnOnce() -> R) -> R {
    static TURN: Mutex<()> = Mutex::new(());
    struct Reset(Driver);
    impl Drop for Reset {
        fn drop(&mut self) {
            let _ = of_runtime().sync();
            self.0.set_order(Order::FORWARD);
        }
    }
    let Some(driver) = driver() else { return run() };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    of_runtime().sync().unwrap();
    driver.set_order(order);
    let _reset = Reset(driver);
    run()
}

/// Set in the processes that [`in_own_process`] starts.
const CHILD: &str = "RETAPE_TEST_CHILD";

/// Runs all tests whose names begin so on stand-in devices of older kinds, for which other code is made.
pub(crate) fn on_older_devices(names: &[&str]) {
    if driver().is_none() || std::env::var_os(CAPABILITY).is_some() {
        return;
    }
    for capability in ["75", "80"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(names).env(CAPABILITY, capability).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(" passed; 0 failed"), "{capability}:\n{text}");
        assert!(!text.contains("ok. 0 passed"), "{text}");
    }
}

/// Runs the body of a test in a process of its own, where nothing else counts bytes, sets limits or opens a driver.
/// `name` is that of the test, with its module.
pub(crate) fn in_own_process(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var(CHILD).as_deref() == Ok(name) {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, name).env("RETAPE_CUBIN_CACHE", "0");
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let text = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{name} in a process of its own:\n{text}");
}
