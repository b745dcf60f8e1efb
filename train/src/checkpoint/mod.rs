//! Checkpoints: everything that a training needs to go on, in one folder each, with exact resume.
//!
//! [`Checkpoints`] writes the tree that a training carries from step to step (parameters, state of the optimiser,
//! running statistics, random keys) and a [`Manifest`] with the position in the data, metrics and the hash of every
//! file. A thread writes while the training goes on: tensors do not change, so a snapshot costs nothing.
//!
//! **A checkpoint is complete or it is not there.** It is written under another name, flushed to the disk and renamed.
//!
//! **A run that is killed at any step and resumed gives the same bits as one that was not**, in the middle of an epoch
//! too: batches follow from (seed, epoch, number) alone, so the [`Position`] is all that has to be kept of the data.
//!
//! ```
//! use retape::optim::{Sgd, SgdState};
//! use retape::{Tensor, Tree, accelerate};
//! use retape_train::checkpoint::{Checkpoint, Checkpoints};
//! use retape_train::data::{Loader, from_fn};
//! use retape_train::progress::Position;
//!
//! #[derive(Clone, Tree)]
//! struct Training {
//!     w: Tensor,
//!     sgd: SgdState<Tensor>,
//! }
//!
//! # let folder = std::env::temp_dir().join(format!("retape-doc-checkpoint-{}", std::process::id()));
//! let sgd = Sgd::new().momentum(0.9);
//! let step = accelerate(move |t: &Training, x: &Tensor| {
//!     let loss = (x - &t.w).square().mean(..);
//!     let (w, sgd) = sgd.update(&t.w, &loss.grad(&t.w), &t.sgd, 0.1);
//!     (loss, Training { w, sgd })
//! });
//! let loader = Loader::new(from_fn(10, |index| Ok(index as f32)), 4)?.shuffled(7);
//!
//! let mut checkpoints = Checkpoints::open(&folder)?.keep_last(2);
//! let w = Tensor::from(0.0_f32);
//! let mut training = Training { sgd: Sgd::new().init(&w), w };
//! let mut position = Position::default();
//! if let Some(restored) = checkpoints.latest(&training)? {
//!     (position, training) = (restored.manifest.position_in(&loader)?, restored.tree);
//! }
//! for epoch in position.epoch..3 {
//!     for batch in loader.epoch_from(epoch, position.batch) {
//!         let batch = batch?;
//!         let loss;
//!         (loss, training) = step.call(&training, &batch.data)?;
//!         position = position.after(loader.n_batches());
//!         checkpoints.save(Checkpoint::at(position).of(&loader).metric("loss", loss.item::<f32>()?.into()), &training)?;
//!     }
//! }
//! checkpoints.wait()?;
//! assert_eq!(checkpoints.list()?.len(), 2);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoints;
mod folder;
mod manifest;
mod reader;
mod writer;

pub use checkpoints::Checkpoints;
pub use folder::Saved;
pub use manifest::{Checkpoint, FileInfo, Manifest};
pub use reader::{Reader, Restored};

#[cfg(doc)]
use crate::progress::Position;
