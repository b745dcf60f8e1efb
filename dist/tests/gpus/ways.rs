//! Which way bytes take, and why.

use retape::{Device, Tensor};
use retape_dist::{GpuTransport, World};

use crate::device::{MOST, Place, in_own_process, stage};

/// Sums of the ranks and a half for each worker, and the way that they took.
fn sums(place: Place) -> Vec<(Vec<f32>, GpuTransport)> {
    let outcome = World::threads(MOST, |world| {
        let x = Tensor::from([world.rank() as f32, 0.5]).to(place.of(&world));
        assert_eq!(world.gpu_transport(), GpuTransport::Undecided);
        let sum = world.sum(&x);
        Ok((sum.to_vec::<f32>()?, world.gpu_transport()))
    });
    outcome.unwrap()
}

/// The reason why all workers went through the host, to the same sums.
fn reason(place: Place) -> String {
    let sums = sums(place);
    assert!(sums.iter().all(|(sum, transport)| *sum == [6.0, 2.0] && *transport == sums[0].1), "{sums:?}");
    match &sums[0].1 {
        GpuTransport::Host { reason } => reason.clone(),
        other => panic!("{other}"),
    }
}

#[test]
fn workers_with_gpus_of_their_own_use_nccl() {
    let stage = stage();
    for (sum, transport) in sums(Place::OwnGpu) {
        assert_eq!(sum, [6.0, 2.0]);
        assert_eq!(transport, GpuTransport::Nccl { version: "2.22.3".to_owned() });
        assert_eq!(transport.to_string(), "NCCL 2.22.3");
    }
    assert_eq!(stage.nccl.counters().joined, MOST as u64);
}

#[test]
fn workers_that_share_a_gpu_go_through_the_host() {
    let stage = stage();
    assert_eq!(reason(Place::OneGpu), "ranks 0 and 1 have the same GPU");
    assert_eq!(stage.nccl.counters().joined, 0);
}

#[test]
fn tensors_in_main_memory_decide_nothing() {
    let _stage = stage();
    assert!(sums(Place::Host).iter().all(|(_, transport)| *transport == GpuTransport::Undecided));
}

#[test]
fn a_library_that_is_switched_off_is_not_used() {
    in_own_process("ways::a_library_that_is_switched_off_is_not_used", Some("off"), || {
        let stage = stage();
        assert_eq!(reason(Place::OwnGpu), "rank 0: RETAPE_NCCL=off");
        assert_eq!(stage.nccl.counters().joined, 0);
    });
}

#[test]
fn a_library_that_is_missing_is_named() {
    in_own_process("ways::a_library_that_is_missing_is_named", Some("/nowhere/libnccl.so.9"), || {
        let _stage = stage();
        let reason = reason(Place::OwnGpu);
        assert!(
            reason.starts_with("rank 0: NCCL is not found: ") && reason.contains("/nowhere/libnccl.so.9"),
            "{reason}"
        );
    });
}

#[test]
fn a_library_that_is_none_of_nccl_is_named() {
    in_own_process("ways::a_library_that_is_none_of_nccl_is_named", Some("libcuda.so.1"), || {
        let _stage = stage();
        assert_eq!(reason(Place::OwnGpu), "rank 0: libcuda.so.1: it has no function ncclGetVersion");
    });
}

#[test]
fn a_library_that_is_too_old_is_not_used() {
    in_own_process("ways::a_library_that_is_too_old_is_not_used", None, || {
        let stage = stage();
        stage.nccl.set_version(21_605);
        assert_eq!(reason(Place::OwnGpu), "rank 0: libnccl.so.2: NCCL 2.16.5 is older than 2.18.0, which is needed");
    });
}

#[test]
fn a_worker_stays_on_its_gpu() {
    let _stage = stage();
    let outcome = World::threads(2, |world| {
        let x = Tensor::from([1.0_f32]);
        world.sum(&x.to(Place::OwnGpu.of(&world))).to_vec::<f32>()?;
        let other = Device::cuda(2 + world.rank() as u32).unwrap();
        let error = world.sum(&x.to(other)).to_vec::<f32>().unwrap_err().to_string();
        assert!(error.contains("the first collective was of tensors on cuda:"), "{error}");
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
}
