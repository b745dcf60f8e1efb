//! The body of a kernel: registers, arrays, labels, and instructions handed to the decoder.

use std::collections::HashMap;
use std::sync::Arc;

use super::declare::Declaration;
use super::{Cursor, ModuleSymbol, Operand, Result, Scope, dotted_type, operand};
use crate::decode;
use crate::fault::ParseError;
use crate::kernel::{Files, Fill, Guard, Inst, Kernel, Op, Param};
use crate::lanes::SCRATCH;
use crate::types::Ty;

/// How deep scopes may lie in each other.
const MAX_DEPTH: usize = 64;

/// Bytes of all arrays of a kernel in one space.
const MAX_BYTES: usize = 1 << 30;

/// A declared register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reg {
    /// Its number among all registers.
    pub(crate) id: u16,
    /// Its place in the file of its width.
    pub(crate) index: u16,
    pub(crate) ty: Ty,
}

/// Where an array of the kernel lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Shared(i64),
    DynamicShared,
    Local(i64),
    Constant(i64),
    Global(usize),
}

/// A kernel under construction.
pub(crate) struct Body<'s, 't> {
    name: &'t str,
    scope: &'s Scope<'t>,
    pub(crate) params: Vec<Param>,
    param_bytes: usize,
    pub(super) required_block: Option<[u32; 3]>,
    pub(super) max_block: Option<[u32; 3]>,
    registers: Vec<HashMap<String, Reg>>,
    places: Vec<HashMap<&'t str, Place>>,
    names: Vec<String>,
    files: Files,
    narrow_fill: Vec<(u16, Fill)>,
    wide_fill: Vec<(u16, Fill)>,
    filled: HashMap<(bool, Fill), u16>,
    shared_bytes: usize,
    local_bytes: usize,
    /// Bytes of the smallest access to shared memory.
    pub(crate) shared_grain: u32,
    insts: Vec<Inst>,
    uses: Vec<u16>,
    /// Registers of the instruction that is being decoded.
    pub(crate) reads: Vec<u16>,
    pub(crate) writes: Vec<u16>,
    /// Labels by the braces that they stand in.
    labels: HashMap<(usize, &'t str), u32>,
    /// For each pair of braces, the one around it; the outermost names itself.
    around: Vec<usize>,
    /// The innermost pair of braces.
    braces: usize,
    tables: HashMap<&'t str, Vec<&'t str>>,
    /// Branches whose labels may come later.
    pending: Vec<Pending<'t>>,
}

/// A branch whose label may come later.
struct Pending<'t> {
    inst: usize,
    label: &'t str,
    /// The braces that it stands in.
    braces: usize,
    line: u32,
}

impl<'s, 't> Body<'s, 't> {
    pub(super) fn new(name: &'t str, scope: &'s Scope<'t>, params: Vec<Param>, param_bytes: usize) -> Self {
        Body {
            name,
            scope,
            params,
            param_bytes,
            required_block: None,
            max_block: None,
            registers: vec![],
            places: vec![],
            names: vec![],
            files: Files { narrow: 1 + SCRATCH.len() as u16, wide: 1, preds: 1, declared: 0 },
            narrow_fill: vec![],
            wide_fill: vec![],
            filled: HashMap::new(),
            shared_bytes: 0,
            local_bytes: 0,
            shared_grain: 4,
            insts: vec![],
            uses: vec![],
            reads: vec![],
            writes: vec![],
            labels: HashMap::new(),
            around: vec![],
            braces: 0,
            tables: HashMap::new(),
            pending: vec![],
        }
    }

    /// The number of the instruction that comes next.
    pub(crate) fn here(&self) -> usize {
        self.insts.len()
    }

    pub(super) fn register(&self, name: &str) -> Option<Reg> {
        self.registers.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    /// The array of this name; one of the module is laid out when it is first named.
    pub(crate) fn place(&mut self, name: &'t str) -> Option<Place> {
        if let Some(found) = self.places.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(*found);
        }
        let place = match *self.scope.symbols.get(name)? {
            ModuleSymbol::Constant(start) => Place::Constant(start as i64),
            ModuleSymbol::Global(index) => Place::Global(index),
            ModuleSymbol::DynamicShared => Place::DynamicShared,
            ModuleSymbol::Shared(bytes, align) => Place::Shared(self.add_shared(bytes, align)),
        };
        self.places[0].insert(name, place);
        Some(place)
    }

    fn add_shared(&mut self, bytes: usize, align: usize) -> i64 {
        let start = self.shared_bytes.next_multiple_of(align);
        // Too many bytes are refused when the kernel is done.
        self.shared_bytes = (start + bytes).min(MAX_BYTES);
        start as i64
    }

    /// A register of this width that is filled before the kernel begins.
    pub(crate) fn filled(&mut self, wide: bool, fill: Fill) -> u16 {
        if let Some(found) = self.filled.get(&(wide, fill)) {
            return *found;
        }
        let (count, list) = if wide {
            (&mut self.files.wide, &mut self.wide_fill)
        } else {
            (&mut self.files.narrow, &mut self.narrow_fill)
        };
        let index = *count;
        *count += 1;
        list.push((index, fill));
        self.filled.insert((wide, fill), index);
        index
    }

    /// Reads what stands between the braces, and both of them.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'t>) -> Result<()> {
        cursor.expect("{")?;
        if self.registers.len() > MAX_DEPTH {
            return cursor.error("too many braces");
        }
        self.registers.push(HashMap::new());
        self.places.push(HashMap::new());
        let around = self.braces;
        self.braces = self.around.len();
        self.around.push(around);
        loop {
            match cursor.peek() {
                "}" => break,
                "{" => self.read(cursor)?,
                ".reg" => self.read_registers(cursor)?,
                ".shared" | ".local" => self.read_array(cursor)?,
                ".pragma" => cursor.skip_statement()?,
                ";" => return cursor.error("a semicolon with nothing before it"),
                _ if cursor.peek_second() == ":" => self.read_label(cursor)?,
                _ => self.read_instruction(cursor)?,
            }
        }
        cursor.expect("}")?;
        self.braces = around;
        // The outermost scope stays, so that arrays of the module keep their places.
        if self.registers.len() > 1 {
            self.registers.pop();
            self.places.pop();
        }
        Ok(())
    }

    /// `.reg .b32 %a, %r<8>;`
    fn read_registers(&mut self, cursor: &mut Cursor<'t>) -> Result<()> {
        cursor.take()?;
        let Some(ty) = dotted_type(cursor.take()?.text) else { return cursor.error("registers without a type") };
        loop {
            let name = cursor.name()?;
            if cursor.accept("<") {
                let count = cursor.count()?;
                cursor.expect(">")?;
                for n in 0..count {
                    self.declare(format!("{name}{n}"), ty, cursor)?;
                }
            } else {
                self.declare(name.to_owned(), ty, cursor)?;
            }
            if cursor.accept(";") {
                return Ok(());
            }
            cursor.expect(",")?;
        }
    }

    fn declare(&mut self, name: String, ty: Ty, cursor: &Cursor<'_>) -> Result<()> {
        let file = match ty.size() {
            _ if ty == Ty::Pred => &mut self.files.preds,
            8 => &mut self.files.wide,
            _ => &mut self.files.narrow,
        };
        if *file > 30_000 || self.files.declared > 60_000 {
            return cursor.error("too many registers");
        }
        let reg = Reg { id: self.files.declared, index: *file, ty };
        *file += 1;
        self.files.declared += 1;
        self.names.push(name.clone());
        let scope = self.registers.last_mut().expect("a body has a scope");
        if scope.insert(name.clone(), reg).is_some() {
            return cursor.error(format!("{name} is declared twice"));
        }
        Ok(())
    }

    fn read_array(&mut self, cursor: &mut Cursor<'t>) -> Result<()> {
        let found = Declaration::read(cursor)?;
        let place = match found.space {
            ".shared" => Place::Shared(self.add_shared(found.bytes, found.align)),
            _ => {
                let start = self.local_bytes.next_multiple_of(found.align);
                self.local_bytes = (start + found.bytes).min(MAX_BYTES);
                Place::Local(start as i64)
            }
        };
        self.places.last_mut().expect("a body has a scope").insert(found.name, place);
        Ok(())
    }

    fn read_label(&mut self, cursor: &mut Cursor<'t>) -> Result<()> {
        let label = cursor.name()?;
        cursor.expect(":")?;
        if cursor.accept(".branchtargets") {
            let mut targets = vec![];
            while !cursor.accept(";") {
                targets.push(cursor.take()?.text);
                cursor.accept(",");
            }
            self.tables.insert(label, targets);
            return Ok(());
        }
        if self.labels.insert((self.braces, label), self.insts.len() as u32).is_some() {
            return cursor.error(format!("label {label} stands twice"));
        }
        Ok(())
    }

    fn read_instruction(&mut self, cursor: &mut Cursor<'t>) -> Result<()> {
        let first = cursor.take()?;
        cursor.next -= 1;
        self.reads.clear();
        self.writes.clear();
        let guard = if cursor.accept("@") {
            let negated = cursor.accept("!");
            let name = cursor.take()?.text;
            match self.register(name) {
                Some(reg) if reg.ty == Ty::Pred => Some(Guard { pred: reg.index, id: reg.id, negated }),
                _ => return cursor.error(format!("{name} is not a predicate")),
            }
        } else {
            None
        };
        let opcode = cursor.take()?;
        let operands: Vec<Operand<'t>> = operand::read_all(cursor, self)?;
        let end = cursor.tokens[cursor.next - 1].end();
        let at_line = |what: String| ParseError::new(first.line, what);
        let op = decode::decode(self, opcode.text, &operands, opcode.line).map_err(|what| {
            at_line(format!(
                "{what} in `{}`",
                cursor.text[first.at..end].split_whitespace().collect::<Vec<_>>().join(" ")
            ))
        })?;
        let uses = (self.uses.len() as u32, self.reads.len() as u8, self.writes.len() as u8);
        self.uses.extend_from_slice(&self.reads);
        self.uses.extend_from_slice(&self.writes);
        self.insts.push(Inst { guard, op, uses, line: first.line, span: (first.at as u32, end as u32) });
        Ok(())
    }

    /// Notes that the next instruction branches to a label.
    pub(crate) fn branch_to(&mut self, label: &'t str, line: u32) {
        self.pending.push(Pending { inst: self.here(), label, braces: self.braces, line });
    }

    /// The number of the instruction behind a label, which stands in these braces or some around them.
    fn label(&self, label: &str, mut braces: usize, line: u32) -> Result<u32> {
        loop {
            if let Some(found) = self.labels.get(&(braces, label)) {
                return Ok(*found);
            }
            match self.around[braces] {
                around if around == braces => return Err(ParseError::new(line, format!("no label {label}"))),
                around => braces = around,
            }
        }
    }

    /// Resolves the branches and closes the kernel.
    pub(super) fn finish(mut self, text: Arc<str>) -> Result<Kernel> {
        for Pending { inst, label, braces, line } in std::mem::take(&mut self.pending) {
            let op = match &self.insts[inst].op {
                Op::BranchTable { index, .. } => {
                    let names = self.tables.get(label).cloned().unwrap_or_default();
                    let targets: Result<Vec<u32>> = names.iter().map(|name| self.label(name, braces, line)).collect();
                    Op::BranchTable { index: *index, targets: targets?.into() }
                }
                Op::Branch { uniform, .. } => Op::Branch { to: self.label(label, braces, line)?, uniform: *uniform },
                _ => continue,
            };
            self.insts[inst].op = op;
        }
        Ok(Kernel {
            name: self.name.to_owned(),
            params: self.params,
            param_bytes: self.param_bytes,
            insts: self.insts,
            uses: self.uses,
            names: self.names,
            files: self.files,
            narrow_fill: self.narrow_fill,
            wide_fill: self.wide_fill,
            shared_bytes: self.shared_bytes as u32,
            shared_grain: self.shared_grain,
            local_bytes: self.local_bytes as u32,
            required_block: self.required_block,
            max_block: self.max_block,
            data: Arc::default(),
            text,
        })
    }
}
