//! Reads the text form of kernels.
//!
//! Guarantees that `parse(&kernel.to_string())` is the same kernel for every verified kernel, and an error with its
//! line for any other text; never panics. Reading checks the form only, [`Kernel::verify`] checks the meaning.
//!
//! ```text
//! kernel = "kernel (" [param {", " param}] ") {" [axes] {inst} {store} "}"       one line each
//! param  = "p" n ": " dtype "[" len "]" [" out"]                                 "out": written
//! axes   = "axes " axis {", " axis}       axis = "a" n " = " extent [" reduced"]
//! inst   = "%" n " = " ( "const " number ": " dtype | "index a" n | "load " place | "load_at p" n ", " value
//!        | "cast " value ": " dtype | "bitcast " value ": " dtype | "reduce " reduction " " value
//!        | name " " value {", " value} )                                         "select", "fma", or of a table
//! store  = "store " place ", " value
//! place  = "p" n "[" term {" + " term} "]"       term = "a" n [" * " stride] | offset
//! ```
//!
//! Ids are numbered from 0 in the order of their definitions. Text from `;` to the end of a line is a comment.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::{
    Affine, Axis, AxisId, Binary, Compare, Func1, Func2, Inst, Kernel, Param, ParamId, ReductionOp, Store, Unary,
    ValueId,
};

/// The place and the kind of a mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// The expected text.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl Error for ParseError {}

/// Reads a kernel.
///
/// # Errors
///
/// Fails with the first line that does not have the form of a kernel's text.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let mut line_count = 0;
    let mut lines = text.lines().enumerate().filter_map(|(i, line)| {
        line_count = i + 1;
        let code = line.split(';').next().unwrap_or("").trim();
        (!code.is_empty()).then_some((i + 1, code))
    });
    let mut kernel = Kernel::default();
    let mut section = Section::Head;
    for (line, code) in &mut lines {
        let mut reader = Reader { rest: code, kernel: &mut kernel };
        section = reader.line(section).map_err(|message| ParseError { line, message })?;
    }
    if section == Section::End {
        Ok(kernel)
    } else {
        Err(ParseError { line: line_count.max(1), message: "the text ends before the kernel does".into() })
    }
}

impl FromStr for Kernel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Kernel, ParseError> {
        parse(text)
    }
}

/// How far the text has been read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Head,
    Axes,
    Insts,
    Stores,
    End,
}

type Result1<T> = Result<T, String>;

/// The unread rest of a line, and the kernel that it adds to.
struct Reader<'a> {
    rest: &'a str,
    kernel: &'a mut Kernel,
}

impl<'a> Reader<'a> {
    fn line(&mut self, section: Section) -> Result1<Section> {
        let next = match section {
            Section::Head => {
                self.head()?;
                Section::Axes
            }
            Section::End => return Err("text after the end of the kernel".into()),
            Section::Axes | Section::Insts | Section::Stores if self.eat("}") => Section::End,
            Section::Axes if self.eat_word("axes") => {
                self.axes()?;
                Section::Insts
            }
            Section::Axes | Section::Insts if self.rest.starts_with('%') => {
                self.inst()?;
                Section::Insts
            }
            Section::Axes | Section::Insts | Section::Stores => {
                if !self.eat_word("store") {
                    return Err(format!("expected an instruction, a store or '}}', found '{}'", self.rest));
                }
                self.store()?;
                Section::Stores
            }
        };
        if self.rest.is_empty() { Ok(next) } else { Err(format!("unexpected '{}'", self.rest)) }
    }

    fn head(&mut self) -> Result1<()> {
        self.expect("kernel")?;
        self.expect("(")?;
        while !self.eat(")") {
            if !self.kernel.params.is_empty() {
                self.expect(",")?;
            }
            self.expect_next('p', self.kernel.params.len())?;
            self.expect(":")?;
            let dtype = self.dtype()?;
            self.expect("[")?;
            let len = self.number()?;
            self.expect("]")?;
            let written = self.eat_word("out");
            self.kernel.params.push(Param { dtype, len, written });
        }
        self.expect("{")
    }

    fn axes(&mut self) -> Result1<()> {
        loop {
            self.expect_next('a', self.kernel.axes.len())?;
            self.expect("=")?;
            let extent = self.number()?;
            let reduced = self.eat_word("reduced");
            self.kernel.axes.push(Axis { extent, reduced });
            if !self.eat(",") {
                return Ok(());
            }
        }
    }

    fn inst(&mut self) -> Result1<()> {
        self.expect_next('%', self.kernel.insts.len())?;
        self.expect("=")?;
        let name = self.word();
        let inst = match name {
            "const" => {
                let (text, dtype) = self.rest.rsplit_once(':').ok_or("expected ': dtype' after the constant")?;
                self.rest = dtype.trim_start();
                let dtype = self.dtype()?;
                Inst::Const(constant(text.trim(), dtype)?)
            }
            "index" => Inst::Index(AxisId(self.id('a')?)),
            "load" => {
                let (param, at) = self.place()?;
                Inst::Load(param, at)
            }
            "load_at" => {
                let param = ParamId(self.id('p')?);
                Inst::LoadAt(param, self.next_value()?)
            }
            "select" => Inst::Select(self.value()?, self.next_value()?, self.next_value()?),
            "fma" => Inst::Fma(self.value()?, self.next_value()?, self.next_value()?),
            "cast" => {
                let (dtype, x) = self.conversion()?;
                Inst::Cast(dtype, x)
            }
            "bitcast" => {
                let (dtype, x) = self.conversion()?;
                Inst::Bitcast(dtype, x)
            }
            "reduce" => {
                let name = self.word();
                let op = ReductionOp::from_name(name).ok_or_else(|| format!("no reduction is called '{name}'"))?;
                Inst::Reduce(op, self.value()?)
            }
            _ => self.named(name)?,
        };
        self.kernel.insts.push(inst);
        Ok(())
    }

    /// An instruction with a name from one of the tables.
    fn named(&mut self, name: &str) -> Result1<Inst<ValueId>> {
        Ok(if let Some(op) = Unary::from_name(name) {
            Inst::Unary(op, self.value()?)
        } else if let Some(op) = Binary::from_name(name) {
            Inst::Binary(op, self.value()?, self.next_value()?)
        } else if let Some(op) = Compare::from_name(name) {
            Inst::Compare(op, self.value()?, self.next_value()?)
        } else if let Some(func) = Func1::from_name(name) {
            Inst::Call1(func, self.value()?)
        } else if let Some(func) = Func2::from_name(name) {
            Inst::Call2(func, self.value()?, self.next_value()?)
        } else {
            return Err(format!("no instruction is called '{name}'"));
        })
    }

    fn store(&mut self) -> Result1<()> {
        let (param, at) = self.place()?;
        let value = self.next_value()?;
        self.kernel.stores.push(Store { param, at, value });
        Ok(())
    }

    fn conversion(&mut self) -> Result1<(DType, ValueId)> {
        let x = self.value()?;
        self.expect(":")?;
        Ok((self.dtype()?, x))
    }

    fn place(&mut self) -> Result1<(ParamId, Affine)> {
        let param = ParamId(self.id('p')?);
        self.expect("[")?;
        let mut at = Affine { offset: 0, strides: SmallVec::from_elem(0, self.kernel.axes.len()) };
        loop {
            if self.rest.starts_with('a') {
                let axis = AxisId(self.id('a')?);
                let stride = if self.eat("*") { self.number()? } else { 1 };
                match at.strides.get_mut(axis.index()) {
                    None => return Err(format!("there is no axis {axis}")),
                    Some(s) if *s != 0 => return Err(format!("axis {axis} appears twice")),
                    Some(s) => *s = stride,
                }
            } else {
                let offset: i64 = self.number()?;
                at.offset = at.offset.checked_add(offset).ok_or("the offset is too large")?;
            }
            if self.eat("]") {
                return Ok((param, at));
            }
            self.expect("+")?;
        }
    }

    fn value(&mut self) -> Result1<ValueId> {
        self.id('%').map(ValueId)
    }

    fn next_value(&mut self) -> Result1<ValueId> {
        self.expect(",")?;
        self.value()
    }

    fn dtype(&mut self) -> Result1<DType> {
        let name = self.word();
        DType::from_name(name).ok_or_else(|| format!("no dtype is called '{name}'"))
    }

    fn id(&mut self, prefix: char) -> Result1<u32> {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => self.rest = rest,
            None => return Err(format!("expected '{prefix}' and a number, found '{}'", self.rest)),
        }
        self.number()
    }

    /// Reads the definition of the id that is next in order.
    fn expect_next(&mut self, prefix: char, expected: usize) -> Result1<()> {
        let id = self.id(prefix)?;
        if id as usize == expected { Ok(()) } else { Err(format!("expected {prefix}{expected}, found {prefix}{id}")) }
    }

    fn number<T: FromStr>(&mut self) -> Result1<T> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(self.rest.len());
        let text = self.take(end);
        text.parse().map_err(|_| format!("expected a number, found '{text}{}'", self.rest))
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        self.take(end)
    }

    fn expect(&mut self, text: &str) -> Result1<()> {
        if self.eat(text) { Ok(()) } else { Err(format!("expected '{text}', found '{}'", self.rest)) }
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let before = self.rest;
        if self.word() == word {
            return true;
        }
        self.rest = before;
        false
    }

    /// Takes `end` bytes, and the spaces after them away.
    fn take(&mut self, end: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        text
    }
}

/// Reads a constant, whose bits must fit its dtype.
fn constant(text: &str, dtype: DType) -> Result1<Scalar> {
    let scalar = Scalar::parse(text, dtype).ok_or_else(|| format!("'{text}' is no {dtype}"))?;
    if super::verify::fits(scalar) { Ok(scalar) } else { Err(format!("'{text}' is too large for {dtype}")) }
}
