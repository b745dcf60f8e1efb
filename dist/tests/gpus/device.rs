//! The GPUs of these tests, and the library between them.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use retape::Device;
use retape_dist::World;
use retape_nccl_sim::Nccl;
use retape_runtime::Gpu;

/// The most workers of a test.
pub(crate) const MOST: usize = 4;

/// The stand-ins, for one test at a time: their counters and failures are those of the process.
pub(crate) struct Stage {
    pub(crate) nccl: Nccl,
    _turn: MutexGuard<'static, ()>,
}

/// Prepares the stand-ins. Each buffer is an allocation of its own, so that reads of what nobody wrote are faults.
pub(crate) fn stage() -> Stage {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    retape_cuda_sim::driver::install().add_devices(MOST);
    let nccl = retape_nccl_sim::install();
    nccl.reset();
    for ordinal in 0..MOST as u32 {
        let gpu = Gpu::open(ordinal).unwrap_or_else(|error| panic!("{error}"));
        gpu.set_code_folder(None);
        gpu.set_exact_memory(true);
    }
    Stage { nccl, _turn: turn }
}

/// Where the tensors of a worker lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In main memory.
    Host,
    /// On a GPU of its own, so that there can be a link.
    OwnGpu,
    /// On the GPU that all workers have, so that bytes go through the host.
    OneGpu,
}

impl Place {
    pub(crate) fn of(self, world: &World) -> Device {
        match self {
            Place::Host => Device::Cpu,
            Place::OwnGpu => Device::cuda(world.rank() as u32).unwrap(),
            Place::OneGpu => Device::cuda(0).unwrap(),
        }
    }
}

/// Set in the processes that [`in_own_process`] starts.
const CHILD: &str = "RETAPE_TEST_CHILD";

/// Runs the body of a test in a process of its own, where the library is looked for anew. `name` is that of the test, with
/// its module.
pub(crate) fn in_own_process(name: &str, nccl: Option<&str>, body: impl FnOnce()) {
    if std::env::var(CHILD).as_deref() == Ok(name) {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, name);
    child.envs(nccl.map(|nccl| ("RETAPE_NCCL", nccl)));
    let output = child.output().unwrap();
    let text = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{name} in a process of its own:\n{text}");
}
