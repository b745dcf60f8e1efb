//! Trees of tensors on disk, and their contents.
//!
//! [`save`] writes any [`Tree`](retape::Tree) as safetensors, the format of model hubs, and [`load`] reads it into a tree
//! of the same structure. Tensors are named by their path in the tree ([`retape::tree::named`]): `blocks.3.conv.weight`.
//! [`Save`] and [`Load`] have the options: shards with an index, other names, conversions, partial loads. A [`Summary`]
//! lists the tensors of a tree, and [`Frozen`] keeps some of them as they are while the others learn.
//!
//! ```
//! use retape::{nn, tree};
//! use retape_train::state;
//!
//! let model = (nn::Conv2d::new(1, [3, 3], 1, 8), nn::Dense::new(2, 8, 10));
//! println!("{}", state::Summary::of(&model));
//!
//! # let folder = std::env::temp_dir().join(format!("retape-doc-state-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("model.safetensors");
//! state::save(&model, &path)?;
//! let start = (nn::Conv2d::new(3, [3, 3], 1, 8), nn::Dense::new(4, 8, 10)); // its elements do not matter
//! let again = state::load(&start, &path)?;
//! assert!(tree::same_bits(&model, &again)?);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod format;
mod frozen;
mod load;
mod save;
mod shards;
mod summary;

pub use crate::problem::Problem;
pub use frozen::Frozen;
pub use load::{Load, Loaded, load};
pub(crate) use save::tensors_of;
pub use save::{Save, save};
pub use summary::{Summary, SummaryRow};
