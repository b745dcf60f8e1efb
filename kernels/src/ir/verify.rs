//! The invariants of kernels, each with its own message.
//!
//! Guarantees of a verified kernel: every instruction can be evaluated without a type error, every access lies inside
//! its parameter, no element is written twice, and no position or count overflows `i64`.

use std::error::Error;
use std::fmt;

use retape_runtime::{DType, Scalar};

use super::overlap::{AccessAxis, injective, may_meet};
use super::{Affine, Axis, Binary, Inst, Kernel, Param, ParamId, Stage, Store, Unary, ValueId, operation};
use crate::ensure::ensure;

/// The first broken invariant of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The offending line of the text form.
    pub at: String,
    /// The mistake.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, in '{}'", self.message, self.at)
    }
}

impl Error for VerifyError {}

type Check = Result<(), String>;

/// Whether the bits of a constant are bits of its dtype.
pub(super) fn fits(c: Scalar) -> bool {
    match c.dtype {
        DType::Bool => c.bits <= 1,
        DType::F64 | DType::I64 => true,
        DType::F32 | DType::F16 | DType::Bf16 | DType::I32 | DType::U32 | DType::U8 => {
            c.bits >> (8 * c.dtype.size()) == 0
        }
    }
}

impl Kernel {
    /// Checks all invariants.
    ///
    /// # Errors
    ///
    /// Fails with the first broken one.
    pub fn verify(&self) -> Result<(), VerifyError> {
        verify(self)
    }
}

/// Checks all invariants of a kernel.
///
/// # Errors
///
/// Fails with the first broken one.
pub fn verify(kernel: &Kernel) -> Result<(), VerifyError> {
    check_head(kernel).map_err(|message| {
        let at = kernel.to_string().lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ");
        VerifyError { at, message }
    })?;
    let mut types = Vec::with_capacity(kernel.insts.len());
    let mut stages = Vec::with_capacity(kernel.insts.len());
    for (i, inst) in kernel.insts.iter().enumerate() {
        let at = |message| VerifyError { at: format!("{} = {inst}", ValueId(i as u32)), message };
        check_ids(kernel, inst, i).map_err(at)?;
        types.push(check_types(kernel, inst, &types).map_err(at)?);
        let stage = kernel.stage_of(inst, &stages).ok_or_else(|| at(stage_message(inst)))?;
        stages.push(stage);
        check_reads(kernel, inst, stage).map_err(at)?;
    }
    for (i, store) in kernel.stores.iter().enumerate() {
        let at = |message| VerifyError { at: format!("store {}[{}], {}", store.param, store.at, store.value), message };
        check_store(kernel, store, &types, &stages).map_err(at)?;
        for earlier in &kernel.stores[..i] {
            check_apart(kernel, earlier, store).map_err(at)?;
        }
    }
    Ok(())
}

fn check_head(kernel: &Kernel) -> Check {
    let mut n_points = 1_i64;
    for axis in &kernel.axes {
        // An empty axis counts as one point, so that the product of any choice of axes fits as well.
        let extent = i64::try_from(axis.extent.max(1)).ok();
        n_points =
            extent.and_then(|d| n_points.checked_mul(d)).ok_or("the number of points does not fit i64".to_string())?;
    }
    let mut writes = false;
    for (i, param) in kernel.params.iter().enumerate() {
        let name = ParamId(i as u32);
        let fits = param.len.checked_mul(param.dtype.size()).is_some_and(|n| isize::try_from(n).is_ok());
        ensure!(fits, "the bytes of {name} do not fit isize");
        ensure!(param.written || !writes, "read parameter {name} comes after a written one");
        writes |= param.written;
    }
    Ok(())
}

/// Checks that ids exist, come earlier, and that affine maps have one stride per axis.
fn check_ids(kernel: &Kernel, inst: &Inst<ValueId>, position: usize) -> Check {
    for v in inst.operands() {
        ensure!(v.index() < position, "operand {v} does not come before its use");
    }
    match inst {
        Inst::Index(axis) => ensure!(axis.index() < kernel.axes.len(), "there is no axis {axis}"),
        Inst::Load(p, at) => {
            check_strides(kernel, at)?;
            ensure!(!param(kernel, *p)?.written, "written parameter {p} is read");
        }
        Inst::LoadAt(p, _) => ensure!(!param(kernel, *p)?.written, "written parameter {p} is read"),
        Inst::Const(c) => ensure!(fits(*c), "the constant has bits beyond its dtype {}", c.dtype),
        Inst::Reduce(..) | operation!() => {}
    }
    Ok(())
}

fn param(kernel: &Kernel, p: ParamId) -> Result<Param, String> {
    kernel.params.get(p.index()).copied().ok_or_else(|| format!("there is no parameter {p}"))
}

fn check_strides(kernel: &Kernel, at: &Affine) -> Check {
    let (n, m) = (at.strides.len(), kernel.axes.len());
    ensure!(n == m, "the position has {n} strides for {m} axes");
    Ok(())
}

/// The dtype of the instruction's value, given those of the values before it.
fn check_types(kernel: &Kernel, inst: &Inst<ValueId>, types: &[DType]) -> Result<DType, String> {
    let of = |v: ValueId| types[v.index()];
    let same = |x: ValueId, y: ValueId| match (of(x), of(y)) {
        (a, b) if a == b => Ok(a),
        (a, b) => Err(format!("operands {x}: {a} and {y}: {b} differ in dtype")),
    };
    let float = |x: DType| if x.is_float() { Ok(x) } else { Err(format!("{x} is not a float to compute with")) };
    match *inst {
        Inst::Const(c) => Ok(c.dtype),
        Inst::Index(_) => Ok(DType::I64),
        Inst::Load(p, _) => Ok(param(kernel, p)?.dtype),
        Inst::LoadAt(p, at) => {
            ensure!(of(at) == DType::I64, "position {at} is {}, not i64", of(at));
            Ok(param(kernel, p)?.dtype)
        }
        Inst::Unary(op, x) => check_allowed(unary_allows(op, of(x)), op.name(), of(x)),
        Inst::Binary(op, x, y) => same(x, y).and_then(|d| check_allowed(binary_allows(op, d), op.name(), d)),
        Inst::Compare(op, x, y) => {
            same(x, y).and_then(|d| check_allowed(!d.is_half(), op.name(), d)).map(|_| DType::Bool)
        }
        Inst::Select(c, x, y) => {
            ensure!(of(c) == DType::Bool, "condition {c} is {}, not bool", of(c));
            same(x, y)
        }
        Inst::Fma(x, y, z) => {
            same(x, y)?;
            float(same(x, z)?)
        }
        Inst::Cast(dtype, _) => Ok(dtype),
        Inst::Bitcast(dtype, x) => {
            ensure!(dtype.size() == of(x).size(), "{} and {dtype} differ in size", of(x));
            // Only 0 and 1 are truth values, but any byte is a `u8`.
            ensure!(dtype != DType::Bool || of(x) == DType::Bool, "the bits of {} are not bool", of(x));
            Ok(dtype)
        }
        Inst::Call1(_, x) => float(of(x)),
        Inst::Call2(_, x, y) => float(same(x, y)?),
        Inst::Reduce(op, x) => check_allowed(op.allows(of(x)), op.name(), of(x)),
    }
}

fn check_allowed(allowed: bool, name: &str, dtype: DType) -> Result<DType, String> {
    if allowed { Ok(dtype) } else { Err(format!("{name} is not defined for {dtype}")) }
}

fn unary_allows(op: Unary, dtype: DType) -> bool {
    match op {
        Unary::Neg | Unary::Abs => dtype.is_float() || dtype.is_int(),
        Unary::Sqrt | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => dtype.is_float(),
        Unary::Not => dtype.is_int() || dtype == DType::Bool,
    }
}

fn binary_allows(op: Binary, dtype: DType) -> bool {
    match op {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Rem | Binary::Min | Binary::Max => {
            dtype.is_float() || dtype.is_int()
        }
        Binary::And | Binary::Or | Binary::Xor => dtype.is_int() || dtype == DType::Bool,
        Binary::Shl | Binary::Shr => dtype.is_int(),
        Binary::MulHigh => dtype == DType::U32,
    }
}

fn stage_message(inst: &Inst<ValueId>) -> String {
    let Inst::Reduce(..) = inst else {
        return "a value that depends on a reduction meets one that varies along reduced axes".into();
    };
    "a reduction of a value that depends on a reduction".into()
}

/// Checks that a load stays inside its parameter.
fn check_reads(kernel: &Kernel, inst: &Inst<ValueId>, stage: Stage) -> Check {
    match inst {
        Inst::Load(p, at) => check_bounds(kernel, *p, at),
        Inst::LoadAt(p, _) => {
            let len = param(kernel, *p)?.len;
            let runs = if stage == Stage::Element { kernel.n_points() } else { kernel.kept_len() } > 0;
            ensure!(len > 0 || !runs, "a load from the empty parameter {p}");
            Ok(())
        }
        Inst::Const(_) | Inst::Index(_) | Inst::Reduce(..) | operation!() => Ok(()),
    }
}

/// The axes that an access runs over: all if it uses a reduced one, else those that are kept.
fn terms(kernel: &Kernel, at: &Affine) -> Vec<AccessAxis> {
    let uses_reduced = kernel.uses_reduced(at);
    let runs = |axis: &Axis| uses_reduced || !axis.reduced;
    let axes = kernel.axes.iter().zip(&at.strides).filter(|(axis, _)| runs(axis));
    axes.map(|(axis, &stride)| AccessAxis { stride, extent: axis.extent }).collect()
}

/// Checks that a position stays inside its parameter at every point that the access runs over.
fn check_bounds(kernel: &Kernel, p: ParamId, at: &Affine) -> Check {
    let terms = terms(kernel, at);
    if terms.iter().any(|t| t.extent == 0) {
        return Ok(());
    }
    let (mut low, mut high) = (at.offset, at.offset);
    for term in terms {
        // All partial sums must fit, since generated code adds one term at a time.
        let end = if term.stride < 0 { &mut low } else { &mut high };
        let last = i64::try_from(term.extent - 1).ok();
        *end = last
            .and_then(|last| last.checked_mul(term.stride))
            .and_then(|span| end.checked_add(span))
            .ok_or_else(|| format!("the position in {p} does not fit i64"))?;
    }
    let len = param(kernel, p)?.len;
    let inside = low >= 0 && usize::try_from(high).is_ok_and(|high| high < len);
    ensure!(inside, "positions {low} to {high} leave {p} of length {len}");
    Ok(())
}

fn check_store(kernel: &Kernel, store: &Store, types: &[DType], stages: &[Stage]) -> Check {
    let Store { param: p, at, value } = store;
    let value_type = *types.get(value.index()).ok_or_else(|| format!("there is no value {value}"))?;
    let target = param(kernel, *p)?;
    check_strides(kernel, at)?;
    ensure!(target.written, "read parameter {p} is written");
    ensure!(target.dtype == value_type, "a value of dtype {value_type} is written to {p}: {}", target.dtype);
    let uses_reduced = kernel.uses_reduced(at);
    match stages[value.index()] {
        Stage::Tail => ensure!(!uses_reduced, "a value that depends on a reduction is written along reduced axes"),
        Stage::Element => {
            // Row-major strides of shapes without elements are 0 outside the empty axis, which says nothing.
            let once = !uses_reduced && kernel.kept_len() > 0;
            ensure!(!once, "a value that varies along reduced axes is written once per kept point");
        }
        Stage::Kept => {}
    }
    check_bounds(kernel, *p, at)?;
    ensure!(injective(&terms(kernel, at)), "two points may write the same element of {p}");
    Ok(())
}

/// Checks that two stores write different elements.
fn check_apart(kernel: &Kernel, earlier: &Store, later: &Store) -> Check {
    if earlier.param != later.param {
        return Ok(());
    }
    let distance = earlier.at.offset.checked_sub(later.at.offset);
    let meet = distance.is_none_or(|d| may_meet(&terms(kernel, &earlier.at), &terms(kernel, &later.at), d));
    ensure!(!meet, "two stores may write the same element of {}", later.param);
    Ok(())
}
