//! Tests of the crate `retape` by its public interface, in one program, since linking one is dear.
//!
//! They run at the same time, so none may depend on what belongs to the process; `tests/process` is for those.

#![allow(clippy::unwrap_used, clippy::type_complexity, reason = "a test fails by panicking, and names few types")]
#![allow(unreachable_pub, reason = "the examples' modules are programs of their own")]

mod artefact;
mod bad_input;
mod blame;
mod cache;
mod centred;
mod check;
mod closures;
mod collective;
mod debug_print;
mod docs;
mod einsum;
mod events;
mod explain;
mod formulas;
mod forward_backward;
mod golden;
mod heard;
mod hostile;
mod imports;
mod indexing;
mod joins;
mod kinks;
mod layers;
mod layouts;
mod losses;
mod matrices;
mod merged_products;
mod methods;
mod named;
mod names;
mod ndarray;
mod nested;
mod nonfinite;
mod numbers;
mod ops;
mod padding;
mod pinned;
mod places;
mod printed;
mod products;
mod profile;
mod random_graphs;
mod recurrences;
mod recurrent;
mod reference;
mod report;
mod serialize;
mod shapes;
mod stale;
mod stats;
mod strided;
mod tidy;
mod training;
mod transposes;
mod traps;
mod trees;
mod views;
mod windows;

#[path = "../../examples/workloads/formula.rs"]
mod formula;
#[path = "../../examples/workloads/models.rs"]
mod models;
#[path = "../../examples/digits/network.rs"]
mod network;
