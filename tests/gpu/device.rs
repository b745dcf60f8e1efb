//! The GPU of these tests: the stand-in driver, or with `RETAPE_TEST_GPU=real` that of the machine.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use retape::Device;
use retape_cuda_sim::driver::{Driver, install};

/// The stand-in driver, unless tests run on a real one.
pub(crate) fn driver() -> Option<Driver> {
    static DRIVER: LazyLock<Option<Driver>> =
        LazyLock::new(|| (std::env::var("RETAPE_TEST_GPU").as_deref() != Ok("real")).then(install));
    *DRIVER
}

/// The first GPU.
pub(crate) fn gpu() -> Device {
    driver();
    Device::cuda(0).unwrap_or_else(|e| panic!("{e}"))
}

/// Keeps tests apart that change the driver or count what it does.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
