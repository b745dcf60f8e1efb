//! Bits: between GPUs, through the host, and on the processor.

use retape::collective::{Group, broadcast, gather, share, sum, sum_each};
use retape::{DType, Device, Tensor, accelerate, value_and_grad};
use retape_dist::{GpuTransport, World};

use crate::device::{MOST, Place, Stage, stage};

/// Numbers whose sum depends on the order of additions, with zeros of both signs.
fn values(seed: usize, n: usize, dtype: DType) -> Tensor {
    let value = |i: usize| match i % 13 {
        0 => -0.0,
        _ => ((seed * 7919 + i * 104_729) % 1009) as f64 / 7.0 - if dtype.is_float() { 70.0 } else { 0.0 },
    };
    Tensor::from((0..n).map(value).collect::<Vec<f64>>()).cast(dtype)
}

/// Sums, sums for each shard, gathered and copied arrays of each worker, as bytes.
fn collectives(place: Place, size: usize, shards: usize, lens: &[usize], dtype: DType) -> Vec<Vec<Vec<u8>>> {
    let results = World::threads(size, |world| {
        let group = Group { number: world.group(), size, shards };
        let to = place.of(&world);
        let held = share(shards, world.rank(), size);
        let arrays = |shard: usize| lens.iter().enumerate().map(move |(n, &len)| values(5 * shard + n, len, dtype));
        let arrays: Vec<Vec<Tensor>> = held.map(|shard| arrays(shard).map(|array| array.to(to)).collect()).collect();
        let all = accelerate(move |arrays: &Vec<Vec<Tensor>>| {
            let mut results = vec![];
            if dtype != DType::Bool {
                results.extend(sum(group, arrays));
                results.extend(sum_each(group, arrays).into_iter().flatten());
            }
            let of_workers = Group { shards: size, ..group };
            results.extend(gather(of_workers, &arrays[0]).into_iter().flatten());
            results.extend(broadcast(of_workers, &arrays[0]));
            results
        });
        // The second run is one of a known entry.
        let first = all.call(&arrays)?;
        let second = all.call(&arrays)?;
        assert!(second.iter().all(|tensor| tensor.device() == to));
        let bytes = |tensors: &[Tensor]| tensors.iter().map(Tensor::to_le_bytes).collect::<Result<Vec<_>, _>>();
        let (first, second) = (bytes(&first)?, bytes(&second)?);
        assert!(first == second, "two runs differ");
        if size > 1 && place != Place::Host {
            let is_over_nccl = matches!(world.gpu_transport(), GpuTransport::Nccl { .. });
            assert_eq!(is_over_nccl, place == Place::OwnGpu, "{}", world.gpu_transport());
        }
        Ok(second)
    });
    results.unwrap_or_else(|error| panic!("{size} workers, {shards} shards of {lens:?} {dtype}: {error}"))
}

/// The bytes that NCCL moved for collectives whose bits must be those of the processor.
fn checked(stage: &Stage, size: usize, shards: usize, lens: &[usize], dtype: DType) -> u64 {
    let wanted = collectives(Place::Host, size, shards, lens, dtype);
    let before = stage.nccl.counters().bytes;
    for place in [Place::OwnGpu, Place::OneGpu] {
        let found = collectives(place, size, shards, lens, dtype);
        for (rank, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let differs = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
            assert_eq!(differs, None, "result of {lens:?} {dtype}, {shards} shards, rank {rank} of {size}, {place:?}");
            assert_eq!(found.len(), wanted.len());
        }
    }
    stage.nccl.counters().bytes - before
}

#[test]
fn short_collectives_have_the_bits_of_the_processor() {
    let stage = stage();
    for dtype in DType::ALL {
        for (size, shards) in [(1, 3), (2, 2), (2, 5), (3, 4), (4, 7)] {
            let bytes = checked(&stage, size, shards, &[7, 0, 130], dtype);
            assert_eq!(bytes > 0, size > 1, "NCCL carried {bytes} bytes of {size} workers");
        }
    }
}

#[test]
fn long_collectives_go_in_two_rounds_with_the_bits_of_the_processor() {
    let stage = stage();
    // More than 64 KiB, in parts that are not equal.
    for (dtype, len) in [(DType::F32, 16_411), (DType::Bf16, 33_001)] {
        for (size, shards) in [(2, 3), (3, 3), (MOST, 5)] {
            checked(&stage, size, shards, &[len, 6], dtype);
        }
    }
}

#[test]
fn sums_of_many_shards_are_added_in_pieces_of_the_tree() {
    let stage = stage();
    for (size, shards) in [(1, 71), (2, 135)] {
        checked(&stage, size, shards, &[33], DType::F32);
        checked(&stage, size, shards, &[33], DType::F16);
    }
}

#[test]
fn each_worker_sends_the_least_that_a_sum_takes() {
    let stage = stage();
    let sum_of = |size: usize, len: usize| {
        let before = stage.nccl.counters();
        World::threads(size, |world| {
            let x = values(world.rank(), len, DType::F32).to(Place::OwnGpu.of(&world));
            world.sum(&x).to_vec::<f32>()?;
            Ok(())
        })
        .unwrap();
        let after = stage.nccl.counters();
        (after.messages - before.messages, after.bytes - before.bytes)
    };
    assert_eq!(sum_of(2, 3), (2, 24), "a short sum goes in one round");
    assert_eq!(sum_of(3, 5), (6, 120));
    let n = 4 * (1 << 15);
    assert_eq!(sum_of(2, n / 4), (4, 2 * n as u64), "a long one in two, of a part to each");
    assert_eq!(sum_of(4, n / 4), (24, 6 * n as u64));
}

#[test]
fn gradients_of_copies_are_scattered_and_those_of_sums_added() {
    let stage = stage();
    let run = |place: Place, size: usize, len: usize| {
        let outcome = World::threads(size, |world| {
            let group = Group { number: world.group(), size, shards: size };
            let to = place.of(&world);
            let x = values(world.rank() + 1, len, DType::F32).to(to);
            let scale = values(9, len, DType::F32).to(to);
            let (_, gradient) = value_and_grad(
                |x: &Tensor| {
                    let all = gather(group, std::slice::from_ref(x));
                    let first = broadcast(group, std::slice::from_ref(x)).remove(0);
                    let total = sum_each(group, &[vec![x.clone()]]).remove(0).remove(0);
                    let each = all.iter().map(|row| row[0].square() * &scale);
                    let gathered = each.reduce(|sum, row| sum + row).expect("a row for each worker");
                    // One element is the loss, since the order of a sum over many differs between devices.
                    (gathered + first * &scale + total.square()).slice_axis(0, 1..2).reshape([0; 0])
                },
                &x,
            )?;
            assert_eq!(gradient.device(), to);
            Ok(gradient.to(Device::Cpu).to_le_bytes()?)
        });
        outcome.unwrap()
    };
    for (size, len) in [(1, 5), (2, 5), (3, 5), (4, 5), (3, 20_000)] {
        let wanted = run(Place::Host, size, len);
        let before = stage.nccl.counters().bytes;
        assert!(run(Place::OwnGpu, size, len) == wanted, "{size} workers, {len} elements");
        assert_eq!(stage.nccl.counters().bytes > before, size > 1);
        assert!(run(Place::OneGpu, size, len) == wanted, "{size} workers with one GPU, {len} elements");
    }
}
