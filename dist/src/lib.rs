//! Workers that compute together: several machines, several processes of one, or several threads of one process.
//!
//! A [`World`] is one worker's view of all of them. The launcher of a cluster starts the workers and the library of MPI
//! that belongs to it carries their bytes; both are found when the program runs, and nothing of them is needed to build.
//! Without a launcher the world has one worker, in which every call gives back what it was given, so the same program
//! runs alone. [`World::threads`] has the same calls for threads of one process, for tests and for small machines.
//!
//! ```
//! use retape_dist::World;
//!
//! // `retape_dist::init()?` in a program that a launcher starts.
//! let sums = World::threads(3, |world| {
//!     let mine = world.rank() as u64 + 1;
//!     let all = world.gather_bytes(&mine.to_le_bytes())?;
//!     let all = all.iter().filter_map(|bytes| bytes.first_chunk().copied().map(u64::from_le_bytes));
//!     Ok(all.sum::<u64>())
//! })?;
//! assert_eq!(sums, [6, 6, 6]);
//! # Ok::<(), retape_dist::Error>(())
//! ```
//!
//! # Calls that all workers must make alike
//!
//! The calls that need all workers (their documentation says so) are made by all of them, in one order. A worker that is
//! elsewhere, or that has failed, is an error on every worker, which says who is where:
//!
//! ```
//! use retape_dist::World;
//!
//! let error = World::threads(2, |world| {
//!     if world.rank() == 0 { world.barrier()? } else { drop(world.any(true)?) }
//!     Ok(())
//! });
//! assert_eq!(
//!     error.unwrap_err().to_string(),
//!     "rank 0 is at `barrier` (exchange 1), rank 1 is at `any` (exchange 1)"
//! );
//! ```

//!
//! Nobody waits for ever: calls end with an error after [`World::set_timeout`], 5 minutes if nothing else is said, which
//! names who is missing. A world with an error is not used any more. Workers are started again, from a checkpoint.
//!
//! # Launchers
//!
//! | launcher | known by | library |
//! |---|---|---|
//! | Open MPI's `mpirun` | `OMPI_COMM_WORLD_SIZE` | `libmpi.so.40` |
//! | MPICH's `mpiexec`, `srun --mpi=pmi2` | `PMI_SIZE`, `PMI_RANK` | `libmpich.so.12`, `libmpi.so.12` |
//! | `srun --mpi=pmix` | `PMIX_RANK` | the first of these that is there |
//!
//! `RETAPE_MPI=PATH` names another library, `RETAPE_DIST_TIMEOUT=SECONDS` another time-out, and `RETAPE_DEVICES=0,2,3` the
//! GPUs that the workers of a machine take. A library that does not belong to the launcher finds itself alone: [`init`]
//! refuses it, for otherwise each worker would train a model of its own.

//!
//! # GPUs
//!
//! Tensors on GPUs go from worker to worker over NCCL, if all workers find the library (`libnccl.so.2`, 2.18 or later, or
//! the one that `RETAPE_NCCL=PATH` names; `RETAPE_NCCL=off` uses none) and each has a GPU of its own, and through the host
//! otherwise, with the same bits. [`World::gpu_transport`] says which way they take, and why. NCCL is the default feature
//! `nccl`. It has been tested on a stand-in for the library, and never on hardware.

#![deny(unsafe_code)]

mod agree;
mod error;
#[cfg(unix)]
#[allow(unsafe_code, reason = "the C library calls a handler when the process exits")]
mod exit;
mod frame;
mod launcher;
mod link;
mod mailbox;
#[cfg(unix)]
#[allow(unsafe_code, reason = "functions of a library that is opened when the program runs")]
mod mpi;
#[cfg(feature = "nccl")]
#[allow(unsafe_code, reason = "functions of a library that is opened when the program runs")]
mod nccl;
#[cfg(not(feature = "nccl"))]
#[path = "nccl/absent.rs"]
mod nccl;
mod norm;
mod sync;
mod threads;
mod transport;
mod trees;
mod wire;
mod world;

pub use error::{Error, Result};
pub use link::GpuTransport;
pub use threads::Failure;
pub use world::{World, init};

/// The page of the guide, whose programs run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/distributed.md")]
mod guide {}
