//! Printing an array while a plan runs: the one library kernel that is called for its effect.
//!
//! Where a program prints twice, the order must not depend on how steps are sorted. So each print reads a *token*, an
//! empty array, and makes one, which the next print reads. Lines go to standard error or, if there is one, to the sink
//! of the process; each is written whole, whatever other threads print.

use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::{Arc, RwLock};

use retape_runtime::{DType, Shape, in_user_code, lock_to_read, lock_to_write, panic_message};

use super::extents::{Checked, countable};
use super::flag::raised;
use super::text::{Field, descriptor};
use super::token::Token;
use super::view::{exactly, only};
use crate::array_text::ArrayText;
use crate::error::{Error, Result};

descriptor! {
    /// Writes one line, `label: f32[2] [1.0, 2.0]`; reads a token after the array and makes a token.
    Print "print" {
        /// The beginning of the line.
        label: Label,
        /// The dtype of the array.
        dtype: DType,
        /// Its extents.
        shape: Shape,
    }
}

impl Print {
    fn check(&self) -> Checked {
        countable("the array", &self.shape)
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.shape.n_elements()), (Token::DTYPE, 0)]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(Token::DTYPE, 0)]
    }

    /// Prints the line.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say, or if the sink panics.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        if let Err(error) = self.try_run(inputs, outputs) {
            panic!("{error}");
        }
    }

    /// Prints the line.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Panicked`] if the sink panics.
    ///
    /// # Panics
    ///
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn try_run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<()> {
        assert!(self.is_valid(), "{self}");
        let [bytes, token] = exactly(inputs);
        assert_eq!(bytes.len(), self.shape.n_elements() * self.dtype.size(), "length of what is printed");
        assert!(token.is_empty() && only(outputs).is_empty(), "tokens are empty");
        let text = ArrayText { dtype: self.dtype, shape: &self.shape, bytes, one_line: true };
        let Label(label) = &self.label;
        write_line(&format!("{label}: {}{} {text}", self.dtype, self.shape))
    }

    /// Prints the line: there is no other way to.
    ///
    /// # Panics
    /// As [`run`](Print::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run(inputs, outputs);
    }
}

/// Takes lines, without their ends.
type Sink = dyn Fn(&str) + Send + Sync;

static SINK: RwLock<Option<Arc<Sink>>> = RwLock::new(None);

/// Sends all lines printed from now on to a function, or with `None` to standard error, as at the start.
///
/// The sink belongs to the process. It is called on the thread that runs the plan, and several threads may call it at
/// once.
pub fn set_print_sink(sink: Option<Arc<Sink>>) {
    *lock_to_write(&SINK) = sink;
}

thread_local! {
    static IS_MUTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` without the prints of this thread, for work that is done a second time.
pub fn without_prints<R>(work: impl FnOnce() -> R) -> R {
    raised(&IS_MUTED, work)
}

/// Whether this thread runs the work of [`without_prints`].
pub fn is_muted() -> bool {
    IS_MUTED.get()
}

fn write_line(line: &str) -> Result<()> {
    if is_muted() {
        return Ok(());
    }
    // Called without the lock, so that a sink may print, or set another.
    let sink = lock_to_read(&SINK).clone();
    match sink {
        // State that a sink leaves half done is its own; a plan that runs has nothing half done while it prints.
        Some(sink) => {
            let told = catch_unwind(AssertUnwindSafe(|| in_user_code(|| sink(line))));
            told.map_err(|thrown| Error::Panicked(panic_message(thrown)))
        }
        None => {
            // A closed standard error is no reason to stop.
            let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
            Ok(())
        }
    }
}

/// Any text; in text forms in quotes, with what has a meaning there escaped as `\(2c)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

impl From<&str> for Label {
    fn from(text: &str) -> Label {
        Label(text.into())
    }
}

/// Whether a character stands for itself; the others may end a list, an attribute, a comment or a line.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || " _-+*/=.!?#%&<>^~|@$'".contains(c)
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match is_plain(c) {
                true => write!(f, "{c}")?,
                false => write!(f, "\\({:x})", u32::from(c))?,
            }
        }
        f.write_str("\"")
    }
}

impl FromStr for Label {
    type Err = ();

    /// Reads what `Display` printed, and nothing else.
    fn from_str(text: &str) -> Result<Label, ()> {
        let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(())?;
        let mut parts = inside.split('\\');
        let mut label = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (code, rest) = part.strip_prefix('(').and_then(|part| part.split_once(')')).ok_or(())?;
            label.extend(u32::from_str_radix(code, 16).ok().and_then(char::from_u32));
            label.push_str(rest);
        }
        let label = Label(label.into());
        // Each label has one text.
        if label.to_string() == text { Ok(label) } else { Err(()) }
    }
}

impl Field for Label {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Field for Shape {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.iter().map(usize::to_string).collect();
        write!(f, "[{}]", extents.join(","))
    }

    fn read(text: &str) -> Option<Self> {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        super::text::split(inside).into_iter().map(usize::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::library::Library;
    use crate::library::testing::{Draw, assert_twins};

    /// The sink belongs to the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn lines_of(body: impl FnOnce()) -> Vec<String> {
        let _guard = retape_runtime::lock(&ONE_AT_A_TIME);
        let lines = Arc::new(Mutex::new(vec![]));
        let log = Arc::clone(&lines);
        set_print_sink(Some(Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()))));
        body();
        set_print_sink(None);
        lines.lock().unwrap().clone()
    }

    #[test]
    fn labels_read_back_whatever_they_hold() {
        let all: String = (0..0x500).chain(0x1f600..0x1f610).filter_map(char::from_u32).collect();
        for text in
            ["", "loss", "step 3: a, b; {c} [d]", "\"quoted\" \\(41)", " padded ", "größe €\n\t", "%1 = add", &all]
        {
            let label = Label::from(text);
            let printed = label.to_string();
            assert!(!printed.contains(['{', '}', '[', ']', ';', ',', '\n', ':']), "{printed}");
            assert_eq!(printed.parse(), Ok(label.clone()), "{printed}");
            let print = Print { label, dtype: DType::F16, shape: Shape::new(&[2, 0, 3]) };
            assert_eq!(Library::parse(&print.to_string()), Some(print.into()));
        }
        for other in ["", "\"", "loss", "\"a,b\"", "\"\\(zz)\"", "\"\\(41)\"", "\"\\(d800)\"", "\"\\41\"", "\"a\"b\""] {
            assert_eq!(other.parse::<Label>(), Err(()), "{other}");
        }
    }

    #[test]
    fn one_line_has_label_type_and_elements() {
        let print = |label: &str, dtype, shape: &[usize], bytes: &[u8]| {
            let print = Print { label: label.into(), dtype, shape: Shape::new(shape) };
            print.run(&[bytes, &[]], &mut [&mut []]);
        };
        let many: Vec<u8> = (0..400_u32).flat_map(u32::to_le_bytes).collect();
        let floats: Vec<u8> = [1.0_f32, -0.5, f32::NAN, 1e-9].into_iter().flat_map(f32::to_le_bytes).collect();
        let lines = lines_of(|| {
            print("x", DType::F32, &[2, 2], &floats);
            print("mask", DType::Bool, &[2], &[1, 0]);
            print("", DType::I64, &[], &(-7_i64).to_le_bytes());
            print("none", DType::F64, &[0, 3], &[]);
            print("many", DType::U32, &[400], &many);
        });
        let expected = [
            "x: f32[2, 2] [[1.0, -0.5], [NaN, 1.00000e-9]]",
            "mask: bool[2] [true, false]",
            ": i64[] -7",
            "none: f64[0, 3] []",
            "many: u32[400] [0, 1, 2, .., 397, 398, 399]",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn work_that_is_done_again_prints_nothing() {
        let print =
            || Print { label: "x".into(), dtype: DType::U8, shape: Shape::new(&[]) }.run(&[&[1], &[]], &mut [&mut []]);
        let lines = lines_of(|| {
            without_prints(|| {
                print();
                let failed = std::panic::catch_unwind(|| without_prints(|| panic!("inside")));
                assert!(failed.is_err() && is_muted());
                print();
                std::thread::scope(|scope| scope.spawn(print).join().unwrap());
            });
            print();
        });
        assert_eq!(lines, ["x: u8[] 1"; 2], "that of the other thread, and that after it");
    }

    #[test]
    fn kernels_agree_with_their_twins() {
        let lines = lines_of(|| {
            let mut draw = Draw::new(15);
            for dtype in DType::ALL {
                let print = Print { label: "twin".into(), dtype, shape: Shape::new(&[2, 3]) };
                assert_twins(&print.into(), &mut draw);
            }
        });
        // On one thread, on two, and by the reference.
        assert_eq!(lines.len(), 3 * DType::ALL.len());
    }
}
