//! A worker that launchers of MPI start: it does what its argument says, and prints what came of it.

#![allow(clippy::print_stdout, reason = "the tests read what workers print")]

use std::os::unix::process::CommandExt;
use std::process::{ExitCode, exit};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use retape::Tensor;
use retape_dist::{Error, World};
use retape_kernels::library::communicator;

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    let world = match retape_dist::init() {
        Ok(world) => world,
        Err(error) => {
            say(format!("init: {error}\n"));
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    match run(&case, &world) {
        Ok(line) => {
            println!("rank {} of {}: {line}", world.rank(), world.size());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let ms = start.elapsed().as_millis();
            say(format!("rank {} of {} failed after {ms} ms: {error}\n", world.rank(), world.size()));
            // Time for the others to say the same: the launcher ends them when one has ended.
            std::thread::sleep(Duration::from_secs(1));
            ExitCode::FAILURE
        }
    }
}

/// Writes in one piece, as the lines of several workers go to one place.
fn say(line: String) {
    eprint!("{line}");
}

fn run(case: &str, world: &World) -> Result<String, Error> {
    let (rank, size) = (world.rank(), world.size());
    match case {
        "calls" => calls(world),
        "large" => large(world),
        "latency" => latency(world),
        "order" => {
            world.barrier()?;
            if rank == 1 {
                world.any(true).map(drop)?
            } else {
                world.barrier()?
            }
            Ok("no error".to_owned())
        }
        "left out" => {
            for _ in 0..if rank == 1 { 4 } else { 5 } {
                world.barrier()?;
            }
            Ok("no error".to_owned())
        }
        "lengths" => {
            let (sent, wanted) = if rank == 0 { (1 << 20, 8) } else { (8, 8) };
            exchange(world, sent, wanted)?;
            Ok("no error".to_owned())
        }
        "long" => {
            long(world)?;
            Ok("no error".to_owned())
        }
        "agree" => {
            let text = || format!("same\nshape of rank {}", if rank == 1 { "one" } else { "any" });
            let error = world.agree("the graph", &[u8::from(rank == 1)], &text);
            world.barrier()?;
            Ok(error.map_or_else(|error| error.to_string().replace('\n', "; "), |()| "no error".to_owned()))
        }
        "killed" => {
            world.barrier()?;
            if rank == 1 {
                kill();
            }
            world.barrier()?;
            Ok("no error".to_owned())
        }
        "panic" => {
            world.barrier()?;
            assert!(rank != 1, "on purpose");
            world.barrier()?;
            Ok("no error".to_owned())
        }
        "abort" => {
            if rank == 1 {
                world.abort("on purpose");
            }
            world.barrier()?;
            Ok("no error".to_owned())
        }
        "late" | "behind" => {
            world.barrier()?;
            if rank == 1 {
                // A worker that is behind finds the others still there, after they have given up.
                std::thread::sleep(Duration::from_secs(if case == "late" { 60 } else { 1 }));
            }
            world.barrier()?;
            Ok("no error".to_owned())
        }
        "blame" => blame(world),
        "alone" => {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            Ok(format!("{}, with a library of MPI: {}", calls(world)?, maps.contains("libmpi")))
        }
        "again" => {
            let other = retape_dist::init()?;
            other.barrier()?;
            Ok(format!("same world: {}", (other.rank(), other.size()) == (rank, size)))
        }
        _ => leave(case, world),
    }
}

/// Cases of processes that exit before they have dropped their world.
fn leave(case: &str, world: &World) -> Result<String, Error> {
    let (rank, size) = (world.rank(), world.size());
    match case {
        "exit" | "exit_status" => {
            world.barrier()?;
            if rank == 1 {
                exit(if case == "exit" { 0 } else { 3 });
            }
            world.barrier()?;
            Ok("no error".to_owned())
        }
        "exit_end" => {
            world.barrier()?;
            // The others come later, and are waited for.
            std::thread::sleep(Duration::from_millis(200 * rank as u64));
            println!("rank {rank} of {size}: exits");
            exit(0)
        }
        "exit_busy" => exit_busy(world),
        "exit_abort" => {
            world.barrier()?;
            if rank == 1 {
                let other = world.clone();
                std::thread::spawn(move || other.abort("on purpose"));
                std::thread::sleep(Duration::from_millis(100));
            }
            exit(0)
        }
        "exit_child" => {
            world.barrier()?;
            let mut child = std::process::Command::new("true");
            // SAFETY: the copy of this process calls nothing else than `exit`, whose handlers are looked at here.
            unsafe { child.pre_exec(|| exit(0)) };
            let is_ok = child.status().is_ok_and(|status| status.success());
            world.barrier()?;
            Ok(format!("child ended well: {is_ok}"))
        }
        "static" => {
            static WORLD: OnceLock<World> = OnceLock::new();
            WORLD.get_or_init(|| world.clone()).barrier()?;
            std::thread::sleep(Duration::from_millis(200 * rank as u64));
            Ok("kept".to_owned())
        }
        _ => Err(Error::Argument(format!("no such case: {case}"))),
    }
}

/// Bodies of lengths on which two workers do not agree, while the third one sends to both.
fn long(world: &World) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    // The heads of both others fit those of worker 0, which then waits for bodies that are never sent.
    let len = |peer: usize| if rank + peer == 3 { 1 << (18 + rank) } else { 1 << 20 };
    let sent: Vec<Vec<u8>> = (0..size).map(|to| vec![1; len(to)]).collect();
    let mut received: Vec<Vec<u8>> = (0..size).map(|from| vec![0; len(from)]).collect();
    let sends: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    let mut receives: Vec<&mut [u8]> = received.iter_mut().map(Vec::as_mut_slice).collect();
    let group = communicator(world.group()).expect("the group of this world");
    group.exchange("parts", &sends, &mut receives).map_err(Error::Broken)
}

/// One worker fails, and each tells the others of its error, as programs do. The errors of the others come out of the
/// engine.
fn blame(world: &World) -> Result<String, Error> {
    world.barrier()?;
    let sum = || match world.rank() {
        2 => Err("the disk is full".to_owned()),
        _ => world.sum(&Tensor::ones([3])).to_vec::<f32>().map_err(|error| error.to_string()),
    };
    let error = sum().err().unwrap_or_default();
    world.fail(&error);
    world.barrier()?;
    Ok("no error".to_owned())
}

/// One worker exits by a second thread, as a second Ctrl-C lets it, with the status that a variable names; its first
/// thread waits for a worker that does not come.
fn exit_busy(world: &World) -> Result<String, Error> {
    world.barrier()?;
    if world.rank() != 1 {
        std::thread::sleep(Duration::from_secs(60));
    }
    let status = std::env::var("STATUS").ok().and_then(|status| status.parse().ok()).unwrap_or(0);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        exit(status);
    });
    world.barrier()?;
    Ok("no error".to_owned())
}

/// As `kill -9` does it, from outside.
fn kill() -> ! {
    let id = std::process::id().to_string();
    let _ = std::process::Command::new("kill").args(["-9", &id]).status();
    loop {
        std::thread::park();
    }
}

fn bytes(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) ^ (n >> 8) ^ rank.wrapping_mul(97)) as u8).collect()
}

/// Each call against what it must give.
fn calls(world: &World) -> Result<String, Error> {
    let (rank, size) = (world.rank(), world.size());
    world.barrier()?;
    for len in [0, 1, 3935, 3936, 3937, 100_000, 3_000_001] {
        let all = world.gather_bytes(&bytes(rank, len * rank))?;
        assert!(all.iter().enumerate().all(|(from, all)| *all == bytes(from, len * from)), "gather of {len}");
        let mut held = bytes(rank, len);
        world.broadcast_bytes(&mut held)?;
        assert!(held == bytes(0, len), "broadcast of {len}");
    }
    assert!(!world.any(false)?);
    for from in 0..size {
        assert!(world.any(from == rank)?);
    }
    world.agree("nothing", &[], &String::new)?;
    assert_eq!(communicator(world.group()).map(|group| (group.rank(), group.size())), Some((rank, size)));
    let shards = world.gather_bytes(&world.with_shards(9)?.shards().map(|shard| shard as u8).collect::<Vec<_>>())?;
    assert_eq!(shards.concat(), (0..9).collect::<Vec<u8>>());
    assert_eq!(world.hosts(), vec![world.hosts()[0].clone(); size]);
    let ordinal = world.device_ordinal().map_or_else(|error| error.to_string(), |ordinal| ordinal.to_string());
    Ok(format!("local {} device {ordinal}", world.local_rank()))
}

/// A broadcast of more than counts of MPI hold in one message of any of its pieces.
fn large(world: &World) -> Result<String, Error> {
    /// Between two places that are looked at.
    const STEP: usize = 1 << 10;
    let len = 1_usize << 30;
    let word = |n: usize| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut held = vec![1; len];
    if world.rank() == 0 {
        held.chunks_exact_mut(STEP).enumerate().for_each(|(n, bytes)| bytes[..8].copy_from_slice(&word(n)));
    }
    world.barrier()?;
    let start = Instant::now();
    world.broadcast_bytes(&mut held)?;
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(held.len(), len);
    assert!(held.chunks_exact(STEP).enumerate().all(|(n, bytes)| bytes[..8] == word(n)));
    Ok(format!("1 GiB in {seconds:.2} s"))
}

/// The time of exchanges of few bytes and of many.
fn latency(world: &World) -> Result<String, Error> {
    let group = communicator(world.group()).expect("the group of this world");
    let mut line = vec![];
    for (len, n) in [(0, 1000), (3000, 1000), (100_000, 300), (1 << 20, 100), (16 << 20, 10)] {
        let sent = vec![1; len];
        let mut received = vec![vec![2; len]; world.size()];
        world.barrier()?;
        let start = Instant::now();
        for _ in 0..n {
            let mut receives: Vec<&mut [u8]> = received.iter_mut().map(Vec::as_mut_slice).collect();
            group.exchange("parts", &vec![sent.as_slice(); world.size()], &mut receives).map_err(Error::Broken)?;
        }
        line.push(format!("{len} B: {:.1} us", start.elapsed().as_secs_f64() * 1e6 / f64::from(n)));
    }
    Ok(line.join(", "))
}

fn exchange(world: &World, sent: usize, wanted: usize) -> Result<(), Error> {
    let group = communicator(world.group()).expect("the group of this world");
    let sent = vec![1; sent];
    let mut receives = vec![vec![0; wanted]; world.size()];
    let mut receives: Vec<&mut [u8]> = receives.iter_mut().map(Vec::as_mut_slice).collect();
    group.exchange("parts", &vec![sent.as_slice(); world.size()], &mut receives).map_err(Error::Broken)
}
