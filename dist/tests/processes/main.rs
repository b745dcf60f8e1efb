//! Worlds of processes under the launchers of two libraries of MPI: what workers say, and how jobs end.

mod calls;
mod faults;
mod job;
mod libraries;
