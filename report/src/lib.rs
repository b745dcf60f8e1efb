//! Pictures of a function of [`retape`] and its cache: a page for a browser, metrics for Prometheus, traces for Perfetto.
//!
//! All three read the plain structs that `retape` gives: [`retape::Stats`], [`retape::Profile`], and
//! [`retape::inspection`]. Its feature `serde`, which is on here, writes these in any other format too.
//!
//! # A page on a function
//!
//! [`Report::report_html`] writes one file that contains all it shows and loads nothing, for wide and narrow windows,
//! light and dark, and for paper:
//!
//! - the name of the function, where it was accelerated, the processor with the number of threads and the instruction
//!   set of its kernels;
//! - the hit rate from the first call on, with a sign for each miss that tells its reason;
//! - the entries, by their summaries: the full signature, the stages of making it, captured tensors and code for
//!   gradients on demand;
//! - of the entries used last the graph, which opens whole and with the slowest group chosen, the time of each group if
//!   profiling was on, and the arena over the steps;
//! - the log of misses with what differed, and errors.
//!
//! Drawings are reached by keys too: each is one stop of the tab key, and the arrow keys move inside.
//!
//! ```
//! use retape::{Tensor, accelerate};
//! use retape_report::Report;
//!
//! let norm = accelerate(|x: &Tensor| x.square().sum(..).sqrt()).named("norm");
//! norm.configure(|options| options.profiling = true); // for the times of groups
//! norm.call(Tensor::ones([4]))?;
//! # let file = std::env::temp_dir().join(format!("retape-report-{}.html", std::process::id()));
//! norm.report_html(&file)?; // open it in a browser
//! # std::fs::remove_file(file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Metrics
//!
//! [`prometheus()`] writes statistics in the text format that Prometheus reads.
//!
//! ```
//! use retape::{Tensor, accelerate};
//! use retape_report::prometheus;
//!
//! let double = accelerate(|x: &Tensor| x + x).named("double");
//! let halve = accelerate(|x: &Tensor| x * 0.5_f32).named("halve");
//! double.call(Tensor::ones([4]))?;
//! let text = prometheus(&[&double.stats(), &halve.stats()]);
//! assert!(text.contains("\nretape_cache_misses_total{function=\"double\"} 1\n"));
//! assert!(text.contains("\nretape_cache_misses_total{function=\"halve\"} 0\n"));
//! # Ok::<(), retape::Error>(())
//! ```
//!
//! # Traces
//!
//! The option `profiling` measures calls, the stages of misses and each launch. [`TraceEvents`] writes them for
//! [Perfetto](https://ui.perfetto.dev) and Chrome's tracing page.
//!
//! ```
//! use retape::{Tensor, accelerate};
//! use retape_report::TraceEvents;
//!
//! let total = accelerate(|x: &Tensor| x.exp().sum(..)).named("total");
//! total.configure(|options| options.profiling = true);
//! for _ in 0..3 {
//!     total.call(Tensor::ones([64]))?;
//! }
//! assert!(total.profile().to_trace_events().contains("retape: total"));
//! # let file = std::env::temp_dir().join(format!("retape-profile-{}.json", std::process::id()));
//! total.profile().write_trace_events(&file)?; // open it in ui.perfetto.dev
//! # std::fs::remove_file(file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod page;
mod prometheus;
mod trace_events;

pub use self::page::Report;
pub use self::prometheus::prometheus;
pub use self::trace_events::TraceEvents;
