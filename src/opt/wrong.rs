//! A pass that is wrong on purpose, for tests of what finds wrong passes.

use std::cell::Cell;

use retape_runtime::Scalar;

use super::rewrite::{RewriteSite, Rule, rules};
use crate::ops::{Mul, Op};
use crate::types::ValueId;

thread_local! {
    pub(super) static RULES: Cell<Option<&'static [Rule]>> = const { Cell::new(None) };
}

/// Runs `body` with rules of which the second is wrong.
pub(crate) fn with_wrong_rule<T>(body: impl FnOnce() -> T) -> T {
    const WRONG: &[Rule] = rules![nothing, triple_is_double,];
    RULES.set(Some(WRONG));
    let result = body();
    RULES.set(None);
    result
}

fn nothing(_: &mut RewriteSite<'_>) -> Option<ValueId> {
    None
}

/// `x * 3` is `x * 2`, which it is not.
fn triple_is_double(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Mul(_) = at.op else { return None };
    if !at.is_number(1, 3.0) {
        return None;
    }
    let two = at.constant(Scalar::from_f64(2.0, at.ty.dtype), &at.ty.shape)?;
    at.apply(Mul, &[at.args[0], two])
}
