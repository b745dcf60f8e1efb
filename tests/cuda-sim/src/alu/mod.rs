//! The table of instructions that compute on registers: one row each, found by opcode and modifiers.

mod bits;
pub(crate) mod compare;
pub(crate) mod convert;
mod float;
pub(crate) mod fused;
mod half;
mod integer;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::lanes::Row;

static TABLE: LazyLock<HashMap<&'static str, &'static Row>> = LazyLock::new(|| {
    let tables: [&'static [Row]; 12] = [
        integer::NARROW,
        integer::WIDE,
        integer::DIVISIONS,
        bits::MAPS,
        bits::OTHERS,
        float::BINARY,
        float::UNARY,
        float::TESTS,
        half::UNARY,
        half::BINARY,
        half::TERNARY,
        fused::TABLE,
    ];
    tables.into_iter().flatten().map(|row| (row.name, row)).collect()
});

/// The instruction of this name.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    TABLE.get(name).copied()
}
