//! Watching a training: in the terminal, in files, on a page in the browser.
//!
//! A [`Monitor`] is told of each step by the loop, and passes it on to its sinks: the terminal always, and those that
//! were asked for. Telling it never fails and never waits for a viewer: a sink that fails, as on a full disk, is said
//! once and then left alone, and [`Monitor::finish`] returns its error.
//!
//! ```
//! use retape_train::monitor::Monitor;
//!
//! # let folder = std::env::temp_dir().join(format!("retape-doc-monitor-{}", std::process::id()));
//! # let (path, board) = (folder.join("log.jsonl"), folder.join("board"));
//! let mut monitor = Monitor::new("cifar").json_lines(&path)?.tensor_board(&board)?.steps(20);
//! monitor.info("model", "ResNet-18");
//! for step in 1..=20 {
//!     let loss = 1.0 / step as f64; // of the step
//!     monitor.step(step, step / 10, &[("loss", loss), ("rate", 1e-3)]);
//!     if step % 10 == 0 {
//!         monitor.validation(step, step / 10, &[("loss", 1.1 * loss), ("accuracy", 1.0 - loss)]);
//!     }
//!     if monitor.should_stop() {
//!         break;
//!     }
//! }
//! monitor.finish()?;
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok::<(), retape_train::Error>(())
//! ```
//!
//! With the feature `web`, `monitor.web(Web::default())?` serves the page and prints its address.

mod json_lines;
mod record;
mod tensor_board;
mod terminal;
#[cfg(feature = "web")]
mod web;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use retape::{Accelerated, Function, Miss, Tree};

pub use json_lines::{JsonLines, read_json_lines};
pub use record::{CacheReport, Event, MissReport, Phase, Record, Sink};
pub use tensor_board::TensorBoard;
#[cfg(feature = "web")]
pub use web::{Page, Web};

use self::terminal::Terminal;
use crate::progress::Stop;
use crate::{Error, Result};

/// Tells of a training as it goes, and hears of requests to stop it.
///
/// The [module's page](self) has an example.
pub struct Monitor {
    name: String,
    terminal: Terminal,
    sinks: Vec<NamedSink>,
    stop: Stop,
    /// The first error of a sink.
    error: Option<Error>,
    step: u64,
    rank: Option<usize>,
    n_steps: Option<u64>,
    /// The last misses of each function by name, and how many there were then.
    misses: Vec<(String, u64, Vec<Miss>)>,
    is_finished: bool,
    #[cfg(feature = "web")]
    url: Option<String>,
}

struct NamedSink {
    name: String,
    sink: Box<dyn Sink>,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sinks: Vec<&str> = self.sinks.iter().map(|sink| sink.name.as_str()).collect();
        f.debug_struct("Monitor").field("name", &self.name).field("sinks", &sinks).field("step", &self.step).finish()
    }
}

impl Monitor {
    /// Watches a run of this name in the terminal: a bar on standard error, or lines where that is no terminal.
    pub fn new(name: &str) -> Monitor {
        Monitor {
            name: name.to_owned(),
            terminal: Terminal::stderr(name),
            sinks: vec![],
            stop: Stop::new(),
            error: None,
            step: 0,
            rank: None,
            n_steps: None,
            misses: vec![],
            is_finished: false,
            #[cfg(feature = "web")]
            url: None,
        }
    }

    /// Makes it the monitor of one of several workers, which train in step: the lines of logs have its number, and the
    /// terminal is left to that of worker 0.
    ///
    /// ```
    /// use retape_train::monitor::{Monitor, read_json_lines};
    ///
    /// # let path = std::env::temp_dir().join(format!("retape-doc-rank-{}.jsonl", std::process::id()));
    /// let mut monitor = Monitor::new("run").of_rank(2).json_lines(&path)?;
    /// monitor.step(1, 0, &[("loss", 0.5)]); // nothing on the terminal
    /// assert_eq!(read_json_lines(&path)?[0].rank, Some(2));
    /// # std::fs::remove_file(&path).ok();
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    pub fn of_rank(mut self, rank: usize) -> Monitor {
        self.rank = Some(rank);
        if rank > 0 {
            self.terminal = Terminal::silent(&self.name);
        }
        self
    }

    /// Adds a log with an object per step, as [`JsonLines`] writes it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened or made.
    pub fn json_lines(self, path: impl AsRef<Path>) -> Result<Monitor> {
        Ok(self.sink("log", JsonLines::open(path)?))
    }

    /// Adds a folder for TensorBoard, as [`TensorBoard`] fills it.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be made.
    pub fn tensor_board(self, folder: impl AsRef<Path>) -> Result<Monitor> {
        Ok(self.sink("TensorBoard", TensorBoard::open(folder)?))
    }

    /// Serves a page on the run, and prints its address, token included.
    ///
    /// # Errors
    ///
    /// Fails if the settings make no sense, or the page cannot be served there: a port that is in use is named.
    #[cfg(feature = "web")]
    #[track_caller]
    pub fn web(mut self, settings: Web) -> Result<Monitor> {
        let page = Page::serve(&self.name, settings, self.stop.clone())?;
        // For the terminal alone: the address has the token.
        self.terminal.take(&Event::Note(&format!("watch it at {}", page.url())))?;
        self.url = Some(page.url().to_owned());
        Ok(self.sink("page", page))
    }

    /// The address of the page with its token, if there is one.
    #[cfg(feature = "web")]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Adds a sink of your own; the name is for messages.
    pub fn sink(mut self, name: &str, sink: impl Sink + 'static) -> Monitor {
        self.sinks.push(NamedSink { name: name.to_owned(), sink: Box::new(sink) });
        if let Some(n_steps) = self.n_steps {
            self.tell(&Event::Steps(n_steps));
        }
        self
    }

    /// Says how many steps the whole training has, for the bar and the time that is left.
    pub fn steps(mut self, n_steps: u64) -> Monitor {
        self.n_steps = Some(n_steps);
        self.tell(&Event::Steps(n_steps));
        self
    }

    /// Sets the least time between two lines of steps where standard error is no terminal; it is 10 seconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use retape_train::monitor::Monitor;
    /// let mut monitor = Monitor::new("short").every(Duration::ZERO); // a line per step
    /// monitor.step(1, 0, &[("loss", 0.5)]);
    /// ```
    pub fn every(mut self, interval: Duration) -> Monitor {
        self.terminal.every(interval);
        self
    }

    /// Lets Ctrl-C ask for a stop after the current step, and a second Ctrl-C end the process, as [`Stop::on_ctrl_c`].
    ///
    /// # Errors
    ///
    /// Fails if the program has a handler of its own, or the system takes none.
    #[track_caller]
    pub fn stop_on_ctrl_c(self) -> Result<Monitor> {
        self.stop.on_ctrl_c()?;
        Ok(self)
    }

    /// Tells of a step: how many steps are done, the epoch, and the measurements.
    ///
    /// Of equal names the last counts. Scalars may be NaN or infinite.
    pub fn step(&mut self, step: u64, epoch: u64, scalars: &[(&str, f64)]) {
        self.step = step;
        self.tell(&Event::Record(&Record::now(Phase::Training, step, epoch, self.rank, scalars)));
    }

    /// Tells of a validation after a step.
    ///
    /// A scalar of the same name as one of [`step`](Monitor::step) is drawn in the same chart.
    pub fn validation(&mut self, step: u64, epoch: u64, scalars: &[(&str, f64)]) {
        self.tell(&Event::Record(&Record::now(Phase::Validation, step, epoch, self.rank, scalars)));
    }

    /// Sets a field that says something of the whole run, such as the device or the number of parameters.
    pub fn info(&mut self, name: &str, value: impl fmt::Display) {
        self.tell(&Event::Info { name, value: &value.to_string() });
    }

    /// Tells of something that happened, such as a checkpoint.
    pub fn note(&mut self, text: &str) {
        self.tell(&Event::Note(text));
    }

    /// Tells of the cache of an accelerated function: its hit rate, and why calls missed.
    ///
    /// Once per some steps is enough: it looks at every entry of the cache.
    ///
    /// ```
    /// use retape::{Tensor, accelerate};
    /// use retape_train::monitor::Monitor;
    ///
    /// let step = accelerate(|x: &Tensor| x.square().sum(..));
    /// let mut monitor = Monitor::new("run");
    /// for n in 1..=3 {
    ///     step.call(Tensor::ones([n as usize]))?;
    ///     monitor.step(n, 0, &[]);
    ///     monitor.cache("step", &step);
    /// }
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    pub fn cache<F, Args, R>(&mut self, name: &str, function: &Accelerated<F, Args, R>)
    where
        F: Function<Args, R>,
        R: Tree,
    {
        let stats = function.stats();
        let known = self.misses.iter().position(|(known, ..)| known == name);
        let known = known.unwrap_or_else(|| {
            self.misses.push((name.to_owned(), 0, vec![]));
            self.misses.len() - 1
        });
        // Misses are copied with their signatures, so only new ones are asked for.
        if self.misses[known].1 != stats.misses {
            self.misses[known] = (name.to_owned(), stats.misses, function.explain());
        }
        let report = CacheReport::new(name, self.step, &stats, &self.misses[known].2);
        self.tell(&Event::Cache(&report));
    }

    /// Whether a stop was asked for: by Ctrl-C, on the page, or by [`stop`](Monitor::stop).
    pub fn should_stop(&self) -> bool {
        self.stop.is_requested()
    }

    /// The request to stop, to be shared with other threads.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Ends the run: the last line is written, and the page closed.
    ///
    /// A monitor that is dropped does the same, without the error.
    ///
    /// # Errors
    ///
    /// Fails with the first error of a sink during the run.
    pub fn finish(mut self) -> Result<()> {
        self.end();
        self.error.take().map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        if !self.is_finished {
            self.is_finished = true;
            self.tell(&Event::Finish);
            self.sinks.clear();
        }
    }

    fn tell(&mut self, event: &Event<'_>) {
        let mut failed = vec![];
        self.sinks.retain_mut(|NamedSink { name, sink }| match sink.take(event) {
            Ok(()) => true,
            Err(error) => {
                failed.push((name.clone(), error));
                false
            }
        });
        // A terminal that is gone is no reason to stop.
        let _ = self.terminal.take(event);
        for (name, error) in failed {
            let text = format!("{name}: {error}; nothing more is written there");
            let _ = self.terminal.take(&Event::Note(&text));
            self.error.get_or_insert(error);
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}
