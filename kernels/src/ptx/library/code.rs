//! The needs of hand-written kernels beyond instructions: counting, branches, loops and addresses.
//!
//! Positions are counted in registers of 32 bits where all of them fit, and of 64 bits otherwise. Integers are
//! unsigned unless a name says otherwise. Operands may be registers or numbers.

use std::fmt::Display;
use std::ops::{Deref, DerefMut};

use crate::ptx::nest::index::magic;
use crate::ptx::{Argument, Class, Launch, PtxFunction, Reg, Target, grid, ptx};

/// A kernel that is being written.
pub(super) struct KernelWriter {
    function: PtxFunction,
    /// The class of positions.
    pub(super) position: Class,
}

impl Deref for KernelWriter {
    type Target = PtxFunction;

    fn deref(&self) -> &PtxFunction {
        &self.function
    }
}

impl DerefMut for KernelWriter {
    fn deref_mut(&mut self) -> &mut PtxFunction {
        &mut self.function
    }
}

/// The type of integers in a register.
fn unsigned(class: Class) -> &'static str {
    if class == Class::B64 { "u64" } else { "u32" }
}

impl KernelWriter {
    /// An empty kernel of blocks of `block` threads whose positions, with all that is computed from them, are at most
    /// `largest`.
    pub(super) fn new(name: &str, target: Target, block: u32, n_params: usize, largest: usize) -> KernelWriter {
        let position = if largest < 1 << 31 { Class::B32 } else { Class::B64 };
        KernelWriter { function: PtxFunction::new(name, target, block, n_params), position }
    }

    /// A launch of the kernel.
    pub(super) fn launch(self, blocks: usize, block: u32, arguments: &[Argument]) -> Launch {
        let grid = grid([blocks, 1, 1]);
        Launch { module: self.function.finish(), grid, block, shared: 0, arguments: arguments.into() }
    }

    /// A new register with a position.
    pub(super) fn number(&mut self, value: impl Display) -> Reg {
        let class = self.position;
        let d = self.reg(class);
        ptx!(self, "mov.{} {d}, {value}", unsigned(class));
        d
    }

    /// A copy in a new register.
    pub(super) fn copy(&mut self, x: Reg) -> Reg {
        let d = self.reg(x.class);
        self.set(d, x);
        d
    }

    /// Overwrites a register.
    pub(super) fn set(&mut self, d: Reg, value: impl Display) {
        let ty = match d.class {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::B64 => "b64",
            Class::F32 => "f32",
            Class::F64 => "f64",
        };
        ptx!(self, "mov.{ty} {d}, {value}");
    }

    /// An instruction on unsigned integers with the result in a new register of the class of `a`.
    fn integer(&mut self, op: &str, a: Reg, b: impl Display) -> Reg {
        let d = self.reg(a.class);
        ptx!(self, "{op}.{} {d}, {a}, {b}", unsigned(a.class));
        d
    }

    pub(super) fn add(&mut self, a: Reg, b: impl Display) -> Reg {
        self.integer("add", a, b)
    }

    pub(super) fn sub(&mut self, a: Reg, b: impl Display) -> Reg {
        self.integer("sub", a, b)
    }

    pub(super) fn mul(&mut self, a: Reg, b: impl Display) -> Reg {
        self.integer("mul.lo", a, b)
    }

    pub(super) fn min(&mut self, a: Reg, b: impl Display) -> Reg {
        self.integer("min", a, b)
    }

    pub(super) fn max(&mut self, a: Reg, b: impl Display) -> Reg {
        self.integer("max", a, b)
    }

    /// `a * b + c`.
    pub(super) fn mad(&mut self, a: Reg, b: impl Display, c: impl Display) -> Reg {
        let d = self.reg(a.class);
        ptx!(self, "mad.lo.{} {d}, {a}, {b}, {c}", unsigned(a.class));
        d
    }

    /// Quotient by a number that is not 0. The dividend has 64 bits or is below 2^31.
    pub(super) fn div(&mut self, a: Reg, by: usize) -> Reg {
        match by {
            0 | 1 => a,
            by if by.is_power_of_two() => self.shr(a, by.ilog2()),
            by if a.class == Class::B64 => self.integer("div", a, by),
            by => {
                let (factor, shift) = magic(by);
                let high = self.integer("mul.hi", a, factor);
                self.shr(high, shift)
            }
        }
    }

    /// Quotient and remainder by a number that is not 0; see [`KernelWriter::div`].
    pub(super) fn div_rem(&mut self, a: Reg, by: usize) -> (Reg, Reg) {
        let quotient = self.div(a, by);
        if by.is_power_of_two() {
            return (quotient, self.and(a, by - 1));
        }
        let product = self.mul(quotient, by);
        (quotient, self.sub(a, product))
    }

    pub(super) fn and(&mut self, a: Reg, b: impl Display) -> Reg {
        self.bits("and", a, b)
    }

    pub(super) fn or(&mut self, a: Reg, b: impl Display) -> Reg {
        self.bits("or", a, b)
    }

    pub(super) fn xor(&mut self, a: Reg, b: impl Display) -> Reg {
        self.bits("xor", a, b)
    }

    pub(super) fn shl(&mut self, a: Reg, b: impl Display) -> Reg {
        self.bits("shl", a, b)
    }

    pub(super) fn shr(&mut self, a: Reg, b: impl Display) -> Reg {
        self.integer("shr", a, b)
    }

    /// An instruction on bits of any class but floats.
    fn bits(&mut self, op: &str, a: Reg, b: impl Display) -> Reg {
        let ty = match a.class {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B64 => "b64",
            Class::B32 | Class::F32 | Class::F64 => "b32",
        };
        let d = self.reg(a.class);
        ptx!(self, "{op}.{ty} {d}, {a}, {b}");
        d
    }

    /// Adds in place.
    pub(super) fn increase(&mut self, a: Reg, by: impl Display) {
        ptx!(self, "add.{} {a}, {a}, {by}", unsigned(a.class));
    }

    /// A comparison of unsigned integers: `lt`, `le`, `eq`, `ne`, `gt` or `ge`.
    pub(super) fn test(&mut self, op: &str, a: Reg, b: impl Display) -> Reg {
        let d = self.reg(Class::Pred);
        ptx!(self, "setp.{op}.{} {d}, {a}, {b}", unsigned(a.class));
        d
    }

    pub(super) fn not(&mut self, p: Reg) -> Reg {
        self.op(Class::Pred, "not.pred", format_args!("{p}"))
    }

    /// One of two registers of a class.
    pub(super) fn select(&mut self, p: Reg, x: Reg, y: Reg) -> Reg {
        let d = self.reg(x.class);
        self.select_into(d, p, x, y);
        d
    }

    /// Overwrites a register with one of two of its class.
    pub(super) fn select_into(&mut self, d: Reg, p: Reg, x: Reg, y: Reg) {
        match d.class {
            Class::Pred => {
                let neither = self.not(p);
                let (x, y) = (self.and(p, x), self.and(neither, y));
                ptx!(self, "or.pred {d}, {x}, {y}");
            }
            Class::B16 => ptx!(self, "selp.b16 {d}, {x}, {y}, {p}"),
            Class::B32 => ptx!(self, "selp.b32 {d}, {x}, {y}, {p}"),
            Class::B64 => ptx!(self, "selp.b64 {d}, {x}, {y}, {p}"),
            Class::F32 => ptx!(self, "selp.f32 {d}, {x}, {y}, {p}"),
            Class::F64 => ptx!(self, "selp.f64 {d}, {x}, {y}, {p}"),
        }
    }

    /// Code for threads where `p` holds.
    pub(super) fn if_then(&mut self, p: Reg, body: impl FnOnce(&mut KernelWriter)) {
        let end = self.label();
        ptx!(self, "@!{p} bra {end}");
        body(self);
        self.place(end);
    }

    /// Code for threads where `p` holds, and other code for the rest.
    pub(super) fn if_else(&mut self, p: Reg, yes: impl FnOnce(&mut KernelWriter), no: impl FnOnce(&mut KernelWriter)) {
        let (otherwise, end) = (self.label(), self.label());
        ptx!(self, "@!{p} bra {otherwise}");
        yes(self);
        ptx!(self, "bra {end}");
        self.place(otherwise);
        no(self);
        self.place(end);
    }

    /// A loop that goes on while what `condition` computes holds.
    pub(super) fn while_loop(
        &mut self,
        condition: impl FnOnce(&mut KernelWriter) -> Reg,
        body: impl FnOnce(&mut KernelWriter),
    ) {
        let (start, end) = (self.label(), self.label());
        self.place(start);
        let p = condition(self);
        ptx!(self, "@!{p} bra {end}");
        body(self);
        ptx!(self, "bra {start}");
        self.place(end);
    }

    /// A loop over `from`, `from + step`, ... below `to`; the body gets the number. All are of one class.
    pub(super) fn count(
        &mut self,
        from: Reg,
        to: impl Display,
        step: impl Display,
        body: impl FnOnce(&mut KernelWriter, Reg),
    ) {
        let i = self.copy(from);
        self.while_loop(
            |c| c.test("lt", i, to),
            |c| {
                body(c, i);
                c.increase(i, step);
            },
        );
    }

    /// A special register of 32 bits.
    fn special(&mut self, name: &str) -> Reg {
        self.op(Class::B32, "mov.u32", format_args!("%{name}"))
    }

    /// The number of the thread in its block, of 32 bits.
    pub(super) fn thread(&mut self) -> Reg {
        self.special("tid.x")
    }

    /// The number of the block, of 32 bits.
    pub(super) fn block(&mut self) -> Reg {
        self.function.block_index()
    }

    /// The number of blocks, of 32 bits.
    pub(super) fn n_blocks(&mut self) -> Reg {
        self.function.n_blocks()
    }

    /// A register of 32 bits as a position.
    pub(super) fn widen(&mut self, x: Reg) -> Reg {
        if self.position == x.class { x } else { self.op(Class::B64, "cvt.u64.u32", format_args!("{x}")) }
    }

    /// A position as `u64`.
    pub(super) fn long(&mut self, x: Reg) -> Reg {
        if x.class == Class::B64 { x } else { self.op(Class::B64, "cvt.u64.u32", format_args!("{x}")) }
    }

    /// The low 32 bits.
    pub(super) fn low(&mut self, x: Reg) -> Reg {
        if x.class == Class::B32 { x } else { self.op(Class::B32, "cvt.u32.u64", format_args!("{x}")) }
    }

    /// The number of the thread among those of all blocks of `block` threads, as a position.
    pub(super) fn global_thread(&mut self, block: u32) -> Reg {
        let (b, t) = (self.block(), self.thread());
        let (b, t) = (self.widen(b), self.widen(t));
        self.mad(b, block, t)
    }

    /// The address of element `i` of `size` bytes.
    pub(super) fn at(&mut self, start: Reg, i: Reg, size: usize) -> Reg {
        let op = if i.class == Class::B32 { "mad.wide.u32" } else { "mad.lo.u64" };
        self.op(Class::B64, op, format_args!("{i}, {size}, {start}"))
    }

    /// The address of element `i` (of 32 bits) of `size` bytes of shared memory.
    pub(super) fn shared_at(&mut self, start: Reg, i: Reg, size: usize) -> Reg {
        self.op(Class::B32, "mad.lo.u32", format_args!("{i}, {size}, {start}"))
    }

    /// Static shared memory and its address, of 32 bits.
    pub(super) fn shared_memory(&mut self, name: &str, bytes: usize) -> Reg {
        let name = self.shared(name, 16, bytes);
        self.op(Class::B32, "mov.u32", format_args!("{name}"))
    }

    /// Waits for all threads of the block.
    pub(super) fn barrier(&mut self) {
        ptx!(self, "bar.sync 0");
    }
}
