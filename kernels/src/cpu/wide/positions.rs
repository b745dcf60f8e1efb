//! Loads at computed positions that read neighbours: rows that start at a computed position, and rows with padding around
//! them.

use retape_runtime::DType;

use crate::ir::{Binary, Compare, Inst, KernelBuilder, ParamId, ValueId};
use crate::schedule::LoopForm;
use crate::simplify::{AffineValue, bounds_of_clamped, built};

/// Conditions within conditions that are looked at: a condition may have itself for both operands.
const MAX_CONDITIONS: usize = 8;

/// Elements from the start of a row to coordinate 0, at most: any instruction has room for them.
const MAX_OFFSET: u32 = 1 << 24;

/// The row that a select reads along the vector axis where its condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PaddedRow {
    /// Where the row begins, the same along the vector axis and not negative; `None` if that is the parameter's first element.
    pub(super) start: Option<ValueId>,
    /// The place in the row of coordinate 0, which may be negative.
    pub(super) offset: i32,
}

/// The loads at computed positions of a loop form that read neighbours.
#[derive(Debug)]
pub(super) struct Positions {
    /// Of each load that reads them within its parameter, where the first of them lies.
    pub(super) row_starts: Vec<Option<ValueId>>,
    /// Of each select between a row's elements and another value, the row. Nothing else uses its load.
    pub(super) padded_rows: Vec<Option<PaddedRow>>,
}

/// Finds positions of one loop form.
struct PositionFinder<'f> {
    form: &'f LoopForm<'f>,
    builder: KernelBuilder,
    /// The values of the form's kernel in the builder.
    ids: Vec<ValueId>,
}

impl Positions {
    /// Short elements have padded rows if masks `are_registers` of their own.
    pub(super) fn of(form: &LoopForm<'_>, are_registers: bool) -> Positions {
        let insts = &form.kernel.insts;
        let mut positions = Positions { row_starts: vec![None; insts.len()], padded_rows: vec![None; insts.len()] };
        if !insts.iter().any(|inst| matches!(inst, Inst::LoadAt(..))) {
            return positions;
        }
        let (builder, ids) = built(form.kernel);
        let finder = PositionFinder { form, builder, ids };
        for (id, inst) in insts.iter().enumerate() {
            if let Inst::LoadAt(_, x) = *inst
                && finder.is_row(id)
            {
                positions.row_starts[id] = finder.row_start(x);
            }
            // A branch takes the operands of its selects as they are.
            let is_cold = || form.cold.all.iter().any(|region| region.selects.contains(&id));
            if let Inst::Select(condition, x, _) = *inst
                && (are_registers || form.dtypes[x.index()].size() >= 4)
                && !is_cold()
            {
                positions.padded_rows[id] = finder.padded_row(condition, x);
            }
        }
        positions
    }
}

impl PositionFinder<'_> {
    /// Whether a value is a load at a position that differs along the vector axis and lies within its parameter.
    fn is_row(&self, id: usize) -> bool {
        let Inst::LoadAt(param, x) = self.form.kernel.insts[id] else { return false };
        let len = self.form.kernel.params[param.index()].len;
        let is_inside = |(low, high)| low >= 0 && usize::try_from(high).is_ok_and(|high| high < len);
        self.form.is_grouped(id) && bounds_of_clamped(&self.builder, self.ids[x.index()]).is_some_and(is_inside)
    }

    /// The other operand of a position that is a sum with the coordinate along the vector axis, if it does not depend on that.
    fn row_start(&self, x: ValueId) -> Option<ValueId> {
        let (start, along) = self.start_and_rest(x)?;
        let Inst::Index(axis) = self.form.kernel.insts[self.uncast(along).index()] else { return None };
        (Some(axis.index()) == self.form.axis).then_some(start)
    }

    /// The row of a select of `load` where a condition holds: its position follows the coordinate along the vector axis
    /// between two bounds, and the condition holds only between them.
    fn padded_row(&self, condition: ValueId, load: ValueId) -> Option<PaddedRow> {
        let form = self.form;
        let Inst::LoadAt(_, x) = form.kernel.insts[load.index()] else { return None };
        let n_uses = form.kernel.insts.iter().flat_map(Inst::operands).filter(|&v| v == load).count();
        let is_stored = form.kernel.stores.iter().any(|store| store.value == load);
        let is_of_elsewhere = form.loops.iter().any(|l| l.leaves.contains(&load.index()));
        (self.is_row(load.index()) && n_uses == 1 && !is_stored && !is_of_elsewhere).then_some(())?;
        let (start, mut along) = match self.start_and_rest(x) {
            Some((start, along)) => (Some(start), along),
            None => (None, x),
        };
        // The row begins within the parameter, also where no lane holds.
        let is_known =
            |start| bounds_of_clamped(&self.builder, self.ids[ValueId::index(start)]).is_some_and(|b| b.0 >= 0);
        start.is_none_or(is_known).then_some(())?;
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        while let Some((op, of, bound)) = self.clamped(along) {
            if op == Binary::Max {
                low = low.max(bound);
            } else {
                high = high.min(bound);
            }
            if form.dtypes[along.index()] == DType::I32 {
                // A conversion on the way to it must not wrap.
                (low, high) = (low.max(i32::MIN.into()), high.min(i32::MAX.into()));
            }
            along = of;
        }
        let along = self.affine(along)?;
        let &[(axis, 1)] = &along.terms[..] else { return None };
        (Some(axis.index()) == form.axis).then_some(())?;
        let ([least, most], all) = (self.implied(condition, &along, MAX_CONDITIONS), along.bounds(&self.builder)?);
        let is_inside =
            least.map_or(all.0, |least| least.max(all.0)) >= low && most.map_or(all.1, |most| most.min(all.1)) <= high;
        let offset = i32::try_from(along.offset).ok().filter(|offset| offset.unsigned_abs() < MAX_OFFSET)?;
        is_inside.then_some(PaddedRow { start, offset })
    }

    /// The operands of a sum of integers: one that is the same along the vector axis, then one that is not.
    fn start_and_rest(&self, x: ValueId) -> Option<(ValueId, ValueId)> {
        let form = self.form;
        let Inst::Binary(Binary::Add, x, y) = form.kernel.insts[self.uncast(x).index()] else { return None };
        matches!(form.dtypes[x.index()], DType::I32 | DType::I64).then_some(())?;
        match [x, y].map(|v| form.is_grouped(v.index())) {
            [false, true] => Some((x, y)),
            [true, false] => Some((y, x)),
            [true, true] | [false, false] => None,
        }
    }

    /// A signed integer before it became wider or narrower.
    fn uncast(&self, x: ValueId) -> ValueId {
        let Inst::Cast(DType::I64 | DType::I32, from) = self.form.kernel.insts[x.index()] else { return x };
        if self.form.dtypes[from.index()] == DType::U32 { x } else { from }
    }

    /// A minimum or a maximum with a constant: the operation, the other operand, and the constant.
    fn clamped(&self, x: ValueId) -> Option<(Binary, ValueId, i64)> {
        let insts = &self.form.kernel.insts;
        let Inst::Binary(op @ (Binary::Min | Binary::Max), x, y) = insts[self.uncast(x).index()] else { return None };
        let bound = |v: ValueId| if let Inst::Const(c) = insts[v.index()] { c.to_i64() } else { None };
        bound(y).map(|c| (op, x, c)).or_else(|| bound(x).map(|c| (op, y, c)))
    }

    fn affine(&self, x: ValueId) -> Option<AffineValue> {
        AffineValue::of(&self.builder, self.ids[x.index()])
    }

    /// The least and the largest value that an integer has where a condition holds, as far as the condition says.
    fn implied(&self, condition: ValueId, x: &AffineValue, depth: usize) -> [Option<i64>; 2] {
        let Some(depth) = depth.checked_sub(1) else { return [None; 2] };
        let one_of =
            |p: Option<i64>, q: Option<i64>, f: fn(i64, i64) -> i64| p.zip(q).map(|(p, q)| f(p, q)).or(p).or(q);
        let inst = &self.form.kernel.insts[condition.index()];
        if let Inst::Compare(op @ (Compare::Lt | Compare::Le), p, q) = *inst {
            return self.compared([p, q], i64::from(op == Compare::Lt), x).unwrap_or_default();
        }
        // Of truth values, since that is what a condition is.
        let Inst::Binary(Binary::And, p, q) = *inst else { return [None; 2] };
        let [[p_least, p_most], [q_least, q_most]] = [p, q].map(|v| self.implied(v, x, depth));
        [one_of(p_least, q_least, i64::max), one_of(p_most, q_most, i64::min)]
    }

    /// The same of the condition that `p` is at least `distance` less than `q`.
    fn compared(&self, [p, q]: [ValueId; 2], distance: i64, x: &AffineValue) -> Option<[Option<i64>; 2]> {
        let difference = self.affine(p)?.plus(-1, &self.affine(q)?)?;
        let constant = |v: AffineValue| v.terms.is_empty().then_some(v.offset);
        if let Some(c) = constant(difference.clone().plus(-1, x)?) {
            return Some([None, c.checked_add(distance)?.checked_neg()]);
        }
        let c = constant(difference.plus(1, x)?)?;
        Some([c.checked_add(distance), None])
    }
}

/// The 32 bits that a position in a parameter comes from, if it is made in the loop that uses it.
pub(super) fn short_position(form: &LoopForm<'_>, param: ParamId, x: ValueId) -> Option<ValueId> {
    let Inst::Cast(DType::I64, short) = form.kernel.insts[x.index()] else { return None };
    let is_of_elsewhere = form.loops.iter().any(|l| l.leaves.contains(&x.index()));
    let is_short = match form.dtypes[short.index()] {
        DType::I32 => true,
        // All positions within the parameter have no sign.
        DType::U32 => form.kernel.params[param.index()].len <= 1 << 31,
        DType::Bool | DType::U8 | DType::I64 | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => false,
    };
    (is_short && !is_of_elsewhere).then_some(short)
}
