//! Instructions of the text to [`Op`]s: modifiers are understood or refused, operands become indices of registers.

mod arithmetic;
mod control;
mod convert;
mod memory;
mod moves;
mod warp;

use crate::kernel::{Fill, Op};
use crate::parse::{Body, Operand, Reg};
use crate::types::Ty;

/// An error is the message; its place is added by the caller.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The parts of an opcode behind its name; a part that is not taken is unknown.
pub(crate) struct Mods<'t>(Vec<&'t str>);

impl<'t> Mods<'t> {
    /// Whether the modifier is there; takes it.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        let found = self.0.iter().position(|own| *own == name);
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// The first of these that is there; takes it.
    pub(crate) fn take_any(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().find(|name| self.take(name)).copied()
    }

    /// The first type, which must be there.
    pub(crate) fn ty(&mut self) -> Result<Ty> {
        let at = self.0.iter().position(|own| Ty::parse(own).is_some()).ok_or("no type")?;
        Ty::parse(self.0.remove(at)).ok_or_else(|| "no type".to_owned())
    }

    /// Takes the first modifier, whatever it is.
    pub(crate) fn first(&mut self) -> Option<&'t str> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Takes the modifiers that this accepts.
    pub(crate) fn drop_where(&mut self, is_known: impl Fn(&str) -> bool) {
        self.0.retain(|own| !is_known(own));
    }

    /// Refuses what is left.
    pub(crate) fn finish(self) -> Result<()> {
        match self.0.first() {
            Some(name) => Err(format!("unknown modifier .{name}")),
            None => Ok(()),
        }
    }
}

/// An instruction under construction.
pub(crate) struct Decoder<'b, 's, 't> {
    pub(crate) body: &'b mut Body<'s, 't>,
    pub(crate) mods: Mods<'t>,
    pub(crate) operands: &'b [Operand<'t>],
    pub(crate) line: u32,
    /// Operands may be special registers.
    pub(crate) takes_special: bool,
    /// `bar` is `barrier` that all lanes of a warp reach together.
    pub(crate) is_bar: bool,
}

/// Decodes one instruction.
pub(crate) fn decode<'t>(body: &mut Body<'_, 't>, opcode: &'t str, operands: &[Operand<'t>], line: u32) -> Result<Op> {
    let mut parts = opcode.split('.');
    let name = parts.next().unwrap_or("");
    let mods = Mods(parts.collect());
    let mut decoder =
        Decoder { body, mods, operands, line, takes_special: matches!(name, "mov" | "cvt"), is_bar: name == "bar" };
    let op = match name {
        "mov" => moves::mov(&mut decoder)?,
        "cvta" => moves::cvta(&mut decoder)?,
        "isspacep" => return Err("isspacep is not known".to_owned()),
        "selp" => moves::selp(&mut decoder)?,
        "setp" => moves::setp(&mut decoder)?,
        "set" => moves::set(&mut decoder)?,
        "cvt" => convert::cvt(&mut decoder)?,
        "ld" | "ldu" => memory::load(&mut decoder)?,
        "st" => memory::store(&mut decoder)?,
        "atom" => memory::atomic(&mut decoder, true)?,
        "red" => memory::atomic(&mut decoder, false)?,
        "cp" => memory::async_copy(&mut decoder)?,
        "prefetch" | "prefetchu" | "applypriority" | "discard" => memory::prefetch(&mut decoder)?,
        "ldmatrix" => memory::matrix(&mut decoder, false)?,
        "stmatrix" => memory::matrix(&mut decoder, true)?,
        "mma" => warp::mma(&mut decoder)?,
        "shfl" => warp::shuffle(&mut decoder)?,
        "vote" => warp::vote(&mut decoder)?,
        "match" => warp::matching(&mut decoder)?,
        "redux" => warp::redux(&mut decoder)?,
        "activemask" => warp::active_mask(&mut decoder)?,
        "elect" => warp::elect(&mut decoder)?,
        "bar" | "barrier" => control::barrier(&mut decoder)?,
        "bra" => control::branch(&mut decoder)?,
        "brx" => control::branch_table(&mut decoder)?,
        "membar" | "fence" => control::fence(&mut decoder)?,
        "nanosleep" => control::nothing(&mut decoder, 1)?,
        "pmevent" => control::nothing(&mut decoder, 1)?,
        "ret" | "exit" => control::exit(&mut decoder)?,
        "trap" => control::trap(&mut decoder)?,
        _ => arithmetic::arithmetic(&mut decoder, name)?,
    };
    decoder.mods.finish()?;
    Ok(op)
}

impl<'t> Decoder<'_, '_, 't> {
    /// Requires so many operands.
    pub(crate) fn count(&self, wanted: std::ops::RangeInclusive<usize>) -> Result<()> {
        if wanted.contains(&self.operands.len()) {
            return Ok(());
        }
        Err(format!("{} operands", self.operands.len()))
    }

    pub(crate) fn operand(&self, index: usize) -> Result<&Operand<'t>> {
        self.operands.get(index).ok_or_else(|| "too few operands".to_owned())
    }

    /// The register that operand `index` writes.
    pub(crate) fn dest(&mut self, index: usize, ty: Ty) -> Result<u16> {
        let operand = self.operand(index)?.clone();
        if matches!(operand, Operand::Sink) {
            return Err("the result must go somewhere".to_owned());
        }
        self.dest_of(&operand, ty)
    }

    /// The register that an operand of exactly this type writes; the sink, in vectors and pairs, is register 0 of each
    /// file.
    pub(crate) fn dest_of(&mut self, operand: &Operand<'t>, ty: Ty) -> Result<u16> {
        match operand {
            Operand::Sink => Ok(0),
            Operand::Reg(reg) => {
                self.check(*reg, ty)?;
                self.body.writes.push(reg.id);
                Ok(reg.index)
            }
            _ => Err("the destination is not a register".to_owned()),
        }
    }

    fn check(&self, reg: Reg, ty: Ty) -> Result<()> {
        if reg.ty.agrees(ty) {
            return Ok(());
        }
        Err(format!("a register of type .{} where .{} is needed", reg.ty.name(), ty.name()))
    }

    /// The register that operand `index` reads; constants have one, too.
    pub(crate) fn source(&mut self, index: usize, ty: Ty) -> Result<u16> {
        let operand = self.operand(index)?.clone();
        self.source_of(&operand, ty)
    }

    pub(crate) fn source_of(&mut self, operand: &Operand<'t>, ty: Ty) -> Result<u16> {
        if let Operand::Reg(reg) = operand {
            self.check(*reg, ty)?;
            self.body.reads.push(reg.id);
            return Ok(reg.index);
        }
        if ty == Ty::Pred {
            return self.predicate_of(operand).map(|(index, _)| index);
        }
        let fill = match operand {
            Operand::Special(special) if self.takes_special && !ty.is_float() && ty.size() == 4 => {
                Fill::Special(*special)
            }
            Operand::Special(_) => return Err("a special register, which only mov and cvt read".to_owned()),
            _ => Fill::Bits(literal(operand, ty)?),
        };
        Ok(self.body.filled(ty.size() == 8, fill))
    }

    /// A predicate operand, which may be negated.
    pub(crate) fn predicate(&mut self, index: usize) -> Result<(u16, bool)> {
        let operand = self.operand(index)?.clone();
        self.predicate_of(&operand)
    }

    fn predicate_of(&mut self, operand: &Operand<'t>) -> Result<(u16, bool)> {
        let (reg, negated) = match operand {
            Operand::Reg(reg) => (*reg, false),
            Operand::Not(reg) => (*reg, true),
            _ => return Err("a predicate is needed".to_owned()),
        };
        self.check(reg, Ty::Pred)?;
        self.body.reads.push(reg.id);
        Ok((reg.index, negated))
    }

    /// A whole number that the text gives.
    pub(crate) fn immediate(&self, index: usize) -> Result<u64> {
        match self.operand(index)? {
            Operand::Int(value) => Ok(*value),
            _ => Err(format!("operand {index} is not a number")),
        }
    }

    /// The parts of a vector; a single operand is a vector of one.
    pub(crate) fn vector(&self, index: usize) -> Result<Vec<Operand<'t>>> {
        Ok(match self.operand(index)? {
            Operand::Vector(parts) => parts.clone(),
            single => vec![single.clone()],
        })
    }

    /// A pair `d|p`, or `d` alone.
    pub(crate) fn pair(&self, index: usize) -> Result<(Operand<'t>, Option<Operand<'t>>)> {
        Ok(match self.operand(index)? {
            Operand::Pair(pair) => (pair.0.clone(), Some(pair.1.clone())),
            single => (single.clone(), None),
        })
    }
}

/// The bits of a number as a value of this type.
pub(crate) fn literal(operand: &Operand<'_>, ty: Ty) -> Result<u64> {
    let bits = match (operand, ty) {
        (Operand::Int(value), ty) if !ty.is_float() || matches!(ty, Ty::F16x2 | Ty::Bf16x2) => *value,
        (Operand::Single(bits), Ty::F32 | Ty::B32) => u64::from(*bits),
        (Operand::Single(bits), Ty::F64) => f64::from(f32::from_bits(*bits)).to_bits(),
        (Operand::Float(value), Ty::F32) => u64::from((*value as f32).to_bits()),
        (Operand::Float(value), Ty::F64 | Ty::B64) => value.to_bits(),
        _ => return Err(format!("a number that is not of type .{}, or an operand that is none", ty.name())),
    };
    Ok(match ty.size() {
        8 => bits,
        size => bits & ((1 << (8 * size)) - 1),
    })
}
