//! Text of a module to [`Module`]: directives, declarations, scopes, labels.
//!
//! Instructions themselves are decoded by `crate::decode`. Unknown text is an error with its line.

mod body;
mod declare;
mod lex;
mod operand;

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

pub(crate) use body::{Body, Place, Reg};
pub(crate) use lex::Token;
pub(crate) use operand::{MemoryBase, Operand};

use crate::fault::ParseError;
use crate::kernel::{GlobalArray, Kernel, Module, ModuleData, Param};
use crate::types::Ty;
use declare::Declaration;

/// Bytes of a kernel's parameters at most.
const MAX_PARAMETERS: usize = 32_764;

pub(crate) type Result<T> = std::result::Result<T, ParseError>;

/// A reader of tokens.
pub(crate) struct Cursor<'t> {
    tokens: Vec<Token<'t>>,
    next: usize,
    pub(crate) text: &'t str,
}

impl<'t> Cursor<'t> {
    /// The line of the next token.
    pub(crate) fn line(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(crate) fn error<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.line(), what))
    }

    pub(crate) fn peek(&self) -> &'t str {
        self.tokens.get(self.next).map_or("", |token| token.text)
    }

    /// The token behind the next.
    pub(crate) fn peek_second(&self) -> &'t str {
        self.tokens.get(self.next + 1).map_or("", |token| token.text)
    }

    pub(crate) fn take(&mut self) -> Result<Token<'t>> {
        let Some(token) = self.tokens.get(self.next).copied() else { return self.error("the text ends too early") };
        self.next += 1;
        Ok(token)
    }

    /// Takes the next token if it is this one.
    pub(crate) fn accept(&mut self, text: &str) -> bool {
        let is_it = self.peek() == text;
        self.next += usize::from(is_it);
        is_it
    }

    pub(crate) fn expect(&mut self, text: &str) -> Result<()> {
        if self.accept(text) {
            return Ok(());
        }
        self.error(format!("`{text}` expected, found `{}`", self.peek()))
    }

    /// A number without sign.
    pub(crate) fn count(&mut self) -> Result<usize> {
        let token = self.take()?;
        match operand::integer(token.text) {
            Some(value) => Ok(value as usize),
            None => Err(ParseError::new(token.line, format!("number expected, found `{}`", token.text))),
        }
    }

    /// A name of something that is declared.
    pub(crate) fn name(&mut self) -> Result<&'t str> {
        let token = self.take()?;
        let is_name = token.text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%'));
        if is_name && token.text != "_" && !token.text.contains('.') {
            return Ok(token.text);
        }
        Err(ParseError::new(token.line, format!("`{}` is no name", token.text)))
    }

    /// Skips up to and including the next semicolon.
    pub(crate) fn skip_statement(&mut self) -> Result<()> {
        while self.take()?.text != ";" {}
        Ok(())
    }
}

/// Names that belong to the whole module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ModuleSymbol {
    /// Offset among all constants.
    Constant(usize),
    /// Index among the global arrays.
    Global(usize),
    /// Bytes and alignment of a shared array.
    Shared(usize, usize),
    DynamicShared,
}

/// Bytes of parameters in text before version 8.1. The assembler allows 4352, drivers of that time 4096.
const MAX_OLD_PARAMETERS: usize = 4096;

/// The declarations of the module around its kernels.
#[derive(Default)]
pub(crate) struct Scope<'t> {
    pub(crate) symbols: HashMap<&'t str, ModuleSymbol>,
    constants: Vec<u8>,
    globals: Vec<GlobalArray>,
}

impl Module {
    /// Parses the text of a module.
    ///
    /// # Errors
    ///
    /// Fails with the line of the first thing that is not PTX, or that this interpreter does not know.
    pub fn parse(text: &str) -> Result<Module> {
        let mut cursor = Cursor { tokens: lex::tokens(text)?, next: 0, text };
        let source: Arc<str> = Arc::from(text);
        let (mut scope, mut kernels, mut target) = (Scope::default(), vec![], None);
        let mut version = None;
        while !cursor.peek().is_empty() {
            match cursor.peek() {
                ".version" => {
                    cursor.take()?;
                    version = Some(read_version(&mut cursor)?);
                }
                ".target" => target = Some(read_target(&mut cursor)?),
                ".address_size" => {
                    cursor.take()?;
                    if cursor.count()? != 64 {
                        return cursor.error("only addresses of 64 bits are known");
                    }
                }
                ".pragma" => cursor.skip_statement()?,
                ".visible" | ".weak" => drop(cursor.take()?),
                ".extern" if cursor.peek_second() != ".shared" => {
                    return cursor.error("only dynamic shared memory can be extern");
                }
                ".entry" => {
                    cursor.take()?;
                    kernels.push(read_entry(&mut cursor, &scope, &source)?);
                }
                ".func" => return cursor.error("functions are not known, only entries"),
                _ => read_declaration(&mut cursor, &mut scope)?,
            }
        }
        let Some(target) = target else { return cursor.error("no .target") };
        let Some(version) = version else { return cursor.error("no .version") };
        if version < (8, 1) && kernels.iter().any(|kernel| kernel.param_bytes > MAX_OLD_PARAMETERS) {
            return cursor.error(format!("more than {MAX_OLD_PARAMETERS} bytes of parameters"));
        }
        if let Some(kernel) = kernels.iter().find(|kernel| kernel.shared_bytes > crate::PLAIN_SHARED) {
            return cursor.error(format!("{} bytes of static shared memory are too many", kernel.shared_bytes));
        }
        written_down(text, &kernels);
        let data = Arc::new(ModuleData { constants: scope.constants, globals: scope.globals });
        let kernels = kernels
            .into_iter()
            .map(|mut kernel| {
                kernel.data = Arc::clone(&data);
                Arc::new(kernel)
            })
            .collect();
        Ok(Module { kernels, data, target, version })
    }
}

/// With `RETAPE_PTX_DUMP` naming a folder, every text that is read is left there for an assembler, under the name of its
/// first kernel and a hash.
fn written_down(text: &str, kernels: &[Kernel]) {
    let (Some(folder), Some(kernel)) = (std::env::var_os("RETAPE_PTX_DUMP"), kernels.first()) else { return };
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let path = Path::new(&folder).join(format!("{}_{:016x}.ptx", kernel.name(), hasher.finish()));
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// `7.0`.
fn read_version(cursor: &mut Cursor<'_>) -> Result<(u32, u32)> {
    let word = cursor.take()?.text;
    let parts = word.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.map_or_else(|| cursor.error(format!("bad version {word}")), Ok)
}

/// `.target sm_80`: the number, without a letter behind it.
fn read_target(cursor: &mut Cursor<'_>) -> Result<u32> {
    cursor.take()?;
    let name = cursor.take()?.text;
    while cursor.accept(",") {
        cursor.take()?;
    }
    let digits = name.strip_prefix("sm_").map(|number| number.trim_end_matches(|c: char| c.is_ascii_lowercase()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(number) => Ok(number),
        None => cursor.error(format!("unknown target {name}")),
    }
}

/// An array outside of all kernels.
fn read_declaration<'t>(cursor: &mut Cursor<'t>, scope: &mut Scope<'t>) -> Result<()> {
    let found = Declaration::read(cursor)?;
    let symbol = match found.space {
        ".shared" if found.is_extern => ModuleSymbol::DynamicShared,
        ".shared" => ModuleSymbol::Shared(found.bytes, found.align),
        ".const" => {
            let start = scope.constants.len().next_multiple_of(found.align);
            scope.constants.resize(start, 0);
            scope.constants.extend(found.initial.unwrap_or_else(|| vec![0; found.bytes]));
            ModuleSymbol::Constant(start)
        }
        ".global" => {
            scope.globals.push(GlobalArray { name: found.name.to_owned(), bytes: found.bytes, initial: found.initial });
            ModuleSymbol::Global(scope.globals.len() - 1)
        }
        other => return cursor.error(format!("{other} cannot stand outside of a kernel")),
    };
    scope.symbols.insert(found.name, symbol);
    Ok(())
}

/// The kernel after `.entry`.
fn read_entry<'t>(cursor: &mut Cursor<'t>, scope: &Scope<'t>, source: &Arc<str>) -> Result<crate::kernel::Kernel> {
    let name = cursor.name()?;
    let (mut params, mut end) = (vec![], 0_usize);
    if cursor.accept("(") {
        while !cursor.accept(")") {
            let found = Declaration::read(cursor)?;
            let offset = end.next_multiple_of(found.align);
            end = offset + found.bytes;
            if end > MAX_PARAMETERS {
                return cursor.error(format!("more than {MAX_PARAMETERS} bytes of parameters"));
            }
            params.push(Param { name: found.name.to_owned(), offset, bytes: found.bytes });
            if cursor.peek() != ")" {
                cursor.expect(",")?;
            }
        }
    }
    let mut body = Body::new(name, scope, params, end);
    loop {
        match cursor.peek() {
            ".reqntid" => body.required_block = Some(read_extents(cursor)?),
            ".maxntid" => body.max_block = Some(read_extents(cursor)?),
            ".minnctapersm" | ".maxnreg" => {
                cursor.take()?;
                cursor.count()?;
            }
            ".pragma" => cursor.skip_statement()?,
            "{" => break,
            other => return cursor.error(format!("`{other}` in the head of a kernel")),
        }
    }
    body.read(cursor)?;
    body.finish(Arc::clone(source))
}

fn read_extents(cursor: &mut Cursor<'_>) -> Result<[u32; 3]> {
    cursor.take()?;
    let mut extents = [1; 3];
    for (axis, extent) in extents.iter_mut().enumerate() {
        if axis == 0 || cursor.accept(",") {
            *extent = cursor.count()? as u32;
        }
    }
    Ok(extents)
}

/// The type behind a dot.
pub(crate) fn dotted_type(word: &str) -> Option<Ty> {
    word.strip_prefix('.').and_then(Ty::parse)
}
