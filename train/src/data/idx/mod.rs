//! IDX, the format of MNIST (LeCun, Cortes and Burges) and of the data sets in its form, such as Fashion-MNIST.

mod file;
mod images;

pub use file::{IdxArray, IdxValues, parse_idx, read_idx};
pub use images::IdxImages;
