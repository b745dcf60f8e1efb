//! The environment variables of the front crate, read once.
//!
//! `RETAPE_LOG=opt` prints every optimised graph to standard error; `trace`, `plan` and `code`, or several with commas,
//! print what was recorded, what was planned, and the machine code; with `profile`, every function is profiled, and its
//! profile printed when it is dropped. `RETAPE_VERIFY=1` checks the graph after every pass, as debug builds always do.
//! `RETAPE_OPT=0` leaves out all passes except the removal of unused values. `RETAPE_WARN=0` keeps warnings off standard
//! error. `RETAPE_STALE_CHECK=0` lets no hit enter a closure.

use std::io::Write;
use std::sync::OnceLock;

/// A stage whose text can be logged: of compilation, or the profile at the end of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Trace,
    Opt,
    Plan,
    Code,
    Profile,
}

impl Stage {
    const ALL: [(&'static str, Stage); 5] = [
        ("trace", Stage::Trace),
        ("opt", Stage::Opt),
        ("plan", Stage::Plan),
        ("code", Stage::Code),
        ("profile", Stage::Profile),
    ];
}

/// The settings that the environment asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    logged: Vec<Stage>,
    /// Whether graphs are checked after every pass.
    pub(crate) verify: bool,
    /// Whether passes run at all.
    pub(crate) optimise: bool,
    /// Whether warnings that nobody listens for are written to standard error.
    pub(crate) warn: bool,
    /// Whether functions look for changes of their closures.
    pub(crate) stale_check: bool,
}

impl Settings {
    /// The settings of this process.
    pub(crate) fn get() -> &'static Settings {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()))
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Settings {
        let log = variable("RETAPE_LOG").unwrap_or_default();
        let is_logged = |name: &str| log.split(',').any(|stage| stage.trim() == name);
        let stages = Stage::ALL.iter().filter(|(name, _)| is_logged(name));
        let is_on = |name: &str| variable(name).is_none_or(|value| value.trim() != "0");
        Settings {
            logged: stages.map(|&(_, stage)| stage).collect(),
            verify: cfg!(debug_assertions) || variable("RETAPE_VERIFY").is_some_and(|value| value.trim() == "1"),
            optimise: is_on("RETAPE_OPT"),
            warn: is_on("RETAPE_WARN"),
            stale_check: is_on("RETAPE_STALE_CHECK"),
        }
    }

    /// Whether texts of this stage are printed.
    pub(crate) fn is_logged(&self, stage: Stage) -> bool {
        self.logged.contains(&stage)
    }

    /// Prints what `text` makes to standard error if the stage is logged.
    pub(crate) fn log(&self, stage: Stage, text: impl FnOnce() -> String) {
        if self.is_logged(stage) {
            write_line(&text());
        }
    }
}

/// Writes a line to standard error, whole; a closed one is no reason to stop.
pub(crate) fn write_line(line: &str) {
    drop(std::io::stderr().lock().write_all(format!("{line}\n").as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Settings {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn nothing_is_logged_and_passes_run_unless_the_environment_says_otherwise() {
        let settings = read(&[]);
        assert_eq!(settings.logged, []);
        assert!(settings.optimise && settings.warn && settings.stale_check);
        assert_eq!(settings.verify, cfg!(debug_assertions));
    }

    #[test]
    fn every_variable_is_understood() {
        let switches = ["RETAPE_OPT", "RETAPE_WARN", "RETAPE_STALE_CHECK"].map(|name| (name, "0"));
        let settings =
            read(&[&[("RETAPE_LOG", "plan, opt,nothing,profile"), ("RETAPE_VERIFY", "1")], &switches[..]].concat());
        assert_eq!(settings.logged, [Stage::Opt, Stage::Plan, Stage::Profile]);
        assert!(settings.verify);
        assert!(!settings.optimise && !settings.warn && !settings.stale_check);
    }
}
