//! Asking a training to stop: from its own code, another thread, a page, or by Ctrl-C.

use std::fmt;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;
use crate::{Error, Result};

/// The exit status of a process that Ctrl-C ended, as shells give it: 128 and the number of the signal.
const INTERRUPTED: i32 = 130;

/// A request to stop after the current step; clones share it.
///
/// ```
/// use retape_train::progress::Stop;
///
/// let stop = Stop::new();
/// let other = stop.clone();
/// let worker = std::thread::spawn(move || other.request());
/// worker.join().expect("the thread does not panic");
/// assert!(stop.is_requested());
/// ```
#[derive(Clone, Default)]
pub struct Stop(Arc<Flags>);

#[derive(Default)]
struct Flags {
    is_requested: AtomicBool,
    /// Whether Ctrl-C has already been the one to ask.
    is_interrupted: AtomicBool,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.is_requested()).finish()
    }
}

impl Stop {
    /// No request yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Asks for a stop after the current step.
    pub fn request(&self) {
        self.0.is_requested.store(true, Ordering::Release);
    }

    /// Whether a stop was asked for.
    pub fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::Acquire)
    }

    /// Lets Ctrl-C ask for the stop; a second Ctrl-C ends the process at once, with status 130.
    ///
    /// One Ctrl-C asks all trainings of the process that want to hear of it. When none of them is left, Ctrl-C ends the
    /// process as it usually does.
    ///
    /// # Errors
    ///
    /// Fails if the program has a handler of its own, or the system takes none.
    ///
    /// ```no_run
    /// use retape_train::progress::Stop;
    ///
    /// let stop = Stop::new();
    /// stop.on_ctrl_c()?;
    /// while !stop.is_requested() {
    ///     // a step
    /// }
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    #[track_caller]
    pub fn on_ctrl_c(&self) -> Result<()> {
        let mut listeners = lock(&LISTENERS);
        if !listeners.is_installed {
            if let Err(error) = ctrlc::set_handler(interrupt) {
                return Err(Error::argument(format!("Ctrl-C cannot be listened to: {error}")));
            }
            listeners.is_installed = true;
        }
        listeners.flags.retain(|flags| flags.strong_count() > 0);
        listeners.flags.push(Arc::downgrade(&self.0));
        Ok(())
    }
}

/// The trainings that want to hear of Ctrl-C; a process has one handler for all.
struct Listeners {
    is_installed: bool,
    flags: Vec<Weak<Flags>>,
}

static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners { is_installed: false, flags: vec![] });

/// Runs on a thread of its own, so that it may lock and print.
fn interrupt() {
    let flags: Vec<Arc<Flags>> = {
        let listeners = lock(&LISTENERS);
        listeners.flags.iter().filter_map(Weak::upgrade).collect()
    };
    let mut is_news = false;
    for flags in flags {
        is_news |= !flags.is_interrupted.swap(true, Ordering::AcqRel);
        flags.is_requested.store(true, Ordering::Release);
    }
    if !is_news {
        process::exit(INTERRUPTED);
    }
    eprintln!("\nstopping after this step; Ctrl-C again ends the program at once");
}
