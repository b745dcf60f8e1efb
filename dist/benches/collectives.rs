//! Sums over workers beside the plain `MPI_Allreduce` of the same library, alternately in one run.
//!
//! `mpirun -n 2 cargo bench -p retape-dist --bench collectives` (or the program that `cargo bench --no-run` names). Each
//! line has the bytes of the array, the median times and the median of the ratios of neighbours. Without a launcher there
//! is nothing beside it.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::time::Instant;

use libloading::Library;
use retape::Tensor;
use retape_dist::World;

fn main() -> Result<(), Box<dyn Error>> {
    let world = retape_dist::init()?;
    let is_test = std::env::args().any(|argument| argument == "--test");
    let plain = Plain::open()?;
    if world.rank() == 0 {
        println!("{} workers; bytes, sum of retape, MPI_Allreduce, ratio", world.size());
    }
    let sizes: &[usize] = if is_test { &[1 << 10] } else { &[4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20] };
    for &bytes in sizes {
        let rounds = if is_test { 1 } else { (1 << 26) / (bytes + (1 << 20)) + 5 };
        measure(&world, plain.as_ref(), bytes, rounds)?;
    }
    Ok(())
}

fn measure(world: &World, plain: Option<&Plain>, bytes: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let values: Vec<f32> = (0..bytes / 4).map(|n| (n % 7) as f32 + world.rank() as f32).collect();
    let tensor = Tensor::from_vec(&values[..], [values.len()])?;
    let mut result = vec![0.0_f32; values.len()];
    let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
    for round in 0..=rounds {
        world.barrier()?;
        let start = Instant::now();
        let sum = world.sum(&tensor);
        if let Some(error) = sum.error() {
            return Err(error.clone().into());
        }
        let own = start.elapsed().as_secs_f64();
        let mut other = f64::NAN;
        if let Some(plain) = plain {
            world.barrier()?;
            let start = Instant::now();
            plain.sum(&values, &mut result)?;
            other = start.elapsed().as_secs_f64();
            let largest = sum.to_vec::<f32>()?.iter().zip(&result).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            // Small integers: exact in any order.
            if largest > 0.0 {
                return Err(format!("the sums differ by {largest}").into());
            }
        }
        // The first round compiles, and touches memory.
        if round > 0 {
            ours.push(own);
            theirs.push(other);
            ratios.push(own / other);
        }
    }
    if world.rank() == 0 {
        let [ours, theirs, ratio] = [ours, theirs, ratios].map(median);
        match plain {
            Some(_) => println!("{bytes:>10} {:>12.1} us {:>12.1} us {ratio:>8.2}", 1e6 * ours, 1e6 * theirs),
            None => println!("{bytes:>10} {:>12.1} us", 1e6 * ours),
        }
    }
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The launcher's library, as programs use it.
struct Plain {
    library: Library,
    is_open_mpi: bool,
}

impl Plain {
    /// The library that the launcher's environment speaks of; none without a launcher.
    fn open() -> Result<Option<Plain>, Box<dyn Error>> {
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let (is_open_mpi, name) = match (is_set("OMPI_COMM_WORLD_SIZE"), is_set("PMI_SIZE")) {
            (true, _) => (true, "libmpi.so.40"),
            (false, true) => (false, "libmpich.so.12"),
            (false, false) => return Ok(None),
        };
        let name = std::env::var("RETAPE_MPI").unwrap_or_else(|_| name.to_owned());
        // SAFETY: the world has loaded and started this library already.
        Ok(Some(Plain { library: unsafe { Library::new(name) }?, is_open_mpi }))
    }

    /// `MPI_Allreduce` of `MPI_FLOAT` with `MPI_SUM` over `MPI_COMM_WORLD`.
    fn sum(&self, values: &[f32], result: &mut [f32]) -> Result<(), Box<dyn Error>> {
        let n = c_int::try_from(values.len())?;
        let (from, to) = (values.as_ptr().cast::<c_void>(), result.as_mut_ptr().cast::<c_void>());
        let code = if self.is_open_mpi {
            type AllReduce =
                unsafe extern "C" fn(*const c_void, *mut c_void, c_int, *mut c_void, *mut c_void, *mut c_void) -> c_int;
            // SAFETY: handles of Open MPI are the addresses of these objects, and the function is as the standard has it;
            // both buffers have `n` elements.
            unsafe {
                let object = |name: &[u8]| self.library.get::<*mut c_void>(name).map(|symbol| symbol.try_as_raw_ptr());
                let [float, sum, world] =
                    [&b"ompi_mpi_float"[..], b"ompi_mpi_op_sum", b"ompi_mpi_comm_world"].map(object);
                let all_reduce = self.library.get::<AllReduce>(b"MPI_Allreduce")?;
                let missing = "an object of Open MPI is missing";
                all_reduce(from, to, n, float?.ok_or(missing)?, sum?.ok_or(missing)?, world?.ok_or(missing)?)
            }
        } else {
            type AllReduce = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, c_int, c_int, c_int) -> c_int;
            const FLOAT: c_int = 0x4c00_040a;
            const SUM: c_int = 0x5800_0003;
            const WORLD: c_int = 0x4400_0000;
            // SAFETY: as above; handles of MPICH are these numbers.
            unsafe { self.library.get::<AllReduce>(b"MPI_Allreduce")?(from, to, n, FLOAT, SUM, WORLD) }
        };
        if code == 0 { Ok(()) } else { Err(format!("MPI_Allreduce failed with {code}").into()) }
    }
}
