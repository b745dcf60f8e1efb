//! A bar for a person at a terminal, and the lines that stand in a file of output.

use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::record::{Event, Phase, Record, Sink};
use crate::Result;
use crate::plot::number::short;

/// How often the bar is drawn at most, per second.
const DRAWS_PER_SECOND: u8 = 10;

/// A bar on a terminal; lines where standard error is none.
///
/// Lines are few, since a file keeps them all: the first step, then a step if the last line is older than the interval,
/// the last step, every validation and every note.
#[derive(Debug)]
pub(super) struct Terminal {
    name: String,
    n_steps: Option<u64>,
    interval: Duration,
    bar: ProgressBar,
    /// Where lines go if there is no bar.
    line: fn(&str),
    last_line: Option<Instant>,
    /// The last record that has not become a line.
    left: Option<Record>,
    is_begun: bool,
}

impl Terminal {
    pub(super) fn stderr(name: &str) -> Terminal {
        Terminal::with_target(name, ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND), |line| eprintln!("{line}"))
    }

    /// Shows nothing.
    pub(super) fn silent(name: &str) -> Terminal {
        Terminal::with_target(name, ProgressDrawTarget::hidden(), |_| ())
    }

    fn with_target(name: &str, target: ProgressDrawTarget, line: fn(&str)) -> Terminal {
        let bar = ProgressBar::with_draw_target(None, target).with_style(style("{spinner} {prefix}  {wide_msg}"));
        bar.set_prefix(name.to_owned());
        Terminal {
            name: name.to_owned(),
            n_steps: None,
            interval: Duration::from_secs(10),
            bar,
            line,
            last_line: None,
            left: None,
            is_begun: false,
        }
    }

    /// Sets how much time passes at least between two lines of steps.
    pub(super) fn every(&mut self, interval: Duration) {
        self.interval = interval;
    }

    fn record(&mut self, record: &Record) {
        if self.bar.is_hidden() {
            return self.record_line(record);
        }
        match record.phase {
            Phase::Validation => self.bar.println(self.text(record)),
            Phase::Training => {
                self.bar.set_position(record.step);
                // A training that goes on did not do the steps before it just now.
                if !self.is_begun {
                    self.bar.reset_eta();
                }
                self.bar.set_message(values(record));
            }
        }
        self.is_begun = true;
    }

    fn record_line(&mut self, record: &Record) {
        let is_due = self.last_line.is_none_or(|last| last.elapsed() >= self.interval);
        match record.phase {
            Phase::Validation => (self.line)(&self.text(record)),
            Phase::Training if is_due => {
                (self.line)(&self.text(record));
                (self.last_line, self.left) = (Some(Instant::now()), None);
            }
            Phase::Training => self.left = Some(record.clone()),
        }
    }

    fn say(&self, text: &str) {
        if self.bar.is_hidden() { (self.line)(text) } else { self.bar.println(text) }
    }

    /// A record as a line.
    fn text(&self, record: &Record) -> String {
        let mut text = format!("{}: step {}", self.name, record.step);
        if let Some(n_steps) = self.n_steps {
            let _ = write!(text, "/{n_steps}");
        }
        if record.phase == Phase::Validation {
            text.push_str(", validation");
        }
        let _ = write!(text, ", {}", values(record));
        text
    }
}

/// The epoch and the scalars of a record.
fn values(record: &Record) -> String {
    let mut text = format!("epoch {}", record.epoch);
    for (name, value) in &record.scalars {
        let _ = write!(text, ", {name} {}", short(*value));
    }
    text
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed").progress_chars("━╸ ")
}

impl Sink for Terminal {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Record(record) => self.record(record),
            Event::Note(text) => self.say(&format!("{}: {text}", self.name)),
            Event::Steps(n_steps) => {
                self.n_steps = Some(*n_steps);
                self.bar.set_length(*n_steps);
                self.bar.set_style(style("{prefix}  {bar:20} {pos}/{len}  {wide_msg} {eta:>4} left"));
            }
            Event::Info { .. } | Event::Cache(_) => {}
            Event::Finish => {
                if let Some(record) = self.left.take() {
                    (self.line)(&self.text(&record));
                }
                self.bar.abandon();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps what is written to it, and goes on in a new line where one is full.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    const WIDTH: u16 = 80;

    impl Screen {
        fn add(&self, text: &str) -> io::Result<()> {
            let mut seen = self.0.lock().unwrap();
            for c in text.chars() {
                if seen.chars().rev().take_while(|c| *c != '\n').count() == usize::from(WIDTH) {
                    seen.push('\n');
                }
                seen.push(c);
            }
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            WIDTH
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.add(text).and_then(|()| self.add("\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.add("\n")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_shows_the_step_and_fits_the_screen() {
        let screen = Screen::default();
        let mut terminal =
            Terminal::with_target("cifar", ProgressDrawTarget::term_like(Box::new(screen.clone())), |_| ());
        let record =
            |phase, step| Record::now(phase, step, 2, None, &[("loss", 0.123_456), ("a very long name", 1e-9)]);
        terminal.take(&Event::Steps(40)).unwrap();
        terminal.take(&Event::Record(&record(Phase::Training, 20))).unwrap();
        terminal.take(&Event::Record(&record(Phase::Validation, 20))).unwrap();
        terminal.take(&Event::Note("a checkpoint was written")).unwrap();
        terminal.bar.tick();
        terminal.take(&Event::Finish).unwrap();
        let seen = screen.0.lock().unwrap().clone();
        let lines: Vec<&str> = seen.lines().map(str::trim_end).collect();
        assert!(lines.iter().any(|line| line.starts_with("cifar  ━━━━━━━━━━") && line.contains("20/40")), "{seen}");
        assert!(seen.contains("epoch 2, loss 0.1235"), "{seen}");
        let validation = "cifar: step 20/40, validation, epoch 2, loss 0.1235, a very long name 1.000e-9";
        assert!(lines.contains(&validation) && lines.contains(&"cifar: a checkpoint was written"), "{seen}");
        let bars = lines.iter().filter(|line| line.contains('━'));
        assert!(bars.clone().count() > 0 && bars.clone().all(|line| line.contains(" left")), "{seen}");
    }
}
