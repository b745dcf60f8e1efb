//! Tests of the PTX that kernels become, executed by the interpreter: loop nests, library kernels, products.

mod library;
mod loops;
mod product;
