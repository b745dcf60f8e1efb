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
//! # What all workers must do alike
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

#![deny(unsafe_code)]

mod agree;
mod error;
mod frame;
mod launcher;
mod mailbox;
#[cfg(unix)]
#[allow(unsafe_code, reason = "functions of a library that is opened when the program runs")]
mod mpi;
mod norm;
mod threads;
mod transport;
mod trees;
mod wire;
mod world;

pub use error::{Error, Result};
pub use threads::Failure;
pub use world::{World, init};

/// The page of the guide, whose programs run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/distributed.md")]
mod guide {}
