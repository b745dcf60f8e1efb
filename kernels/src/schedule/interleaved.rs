//! Accesses that together have neighbours: the words of short rows, each of which is an access of its own.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::ir::{Affine, Inst, Kernel, operation};

/// The longest rows.
pub(crate) const MOST_WAYS: usize = 16;

/// An access's part in several that have neighbours together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interleaved {
    /// The one with the first element: its instruction, or its number among the stores.
    pub(crate) first: usize,
    /// The number of accesses.
    pub(crate) ways: usize,
    /// Which of them it is.
    pub(crate) way: usize,
}

/// Of each instruction, its part if it loads with others the words of rows along the axis, `least` of them or more.
pub(crate) fn interleaved_loads(kernel: &Kernel, axis: Option<usize>, least: usize) -> Vec<Option<Interleaved>> {
    let loads = kernel.insts.iter().map(|inst| match inst {
        Inst::Load(param, at) => Some((param.index(), at)),
        Inst::Const(_) | Inst::Index(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!() => None,
    });
    interleaved(kernel, axis, loads, least)
}

/// As [`interleaved_loads`], of each store.
pub(crate) fn interleaved_stores(kernel: &Kernel, axis: Option<usize>, least: usize) -> Vec<Option<Interleaved>> {
    let stores = kernel.stores.iter().map(|store| Some((store.param.index(), &store.at)));
    interleaved(kernel, axis, stores, least)
}

/// Words at a distance of as many as there are accesses, each beside the next.
fn interleaved<'k>(
    kernel: &'k Kernel,
    axis: Option<usize>,
    accesses: impl Iterator<Item = Option<(usize, &'k Affine)>> + Clone,
    least: usize,
) -> Vec<Option<Interleaved>> {
    // The accesses of a parameter that have the same strides, by their first elements.
    let mut sets: FxHashMap<(usize, &[i64]), BTreeMap<i64, usize>> = FxHashMap::default();
    let ways_of = |param: usize, at: &Affine| {
        let ways = usize::try_from(at.stride(axis?)).ok()?;
        let is_word = kernel.params[param].dtype.size() == 4;
        (is_word && (least..=MOST_WAYS).contains(&ways)).then_some(ways)
    };
    for (n, access) in accesses.clone().enumerate() {
        if let Some((param, at)) = access.filter(|&(param, at)| ways_of(param, at).is_some()) {
            sets.entry((param, &at.strides)).or_default().entry(at.offset).or_insert(n);
        }
    }
    let way_of = |access: Option<(usize, &'k Affine)>| {
        let (param, at) = access?;
        let ways = ways_of(param, at)?;
        let set = sets.get(&(param, &at.strides[..]))?;
        // The accesses from a multiple of the distance on, so that no two rows share one.
        let (&least, _) = set.first_key_value()?;
        let begin = at.offset - (at.offset - least) % ways as i64;
        let has_all = set.range(begin..begin + ways as i64).count() == ways;
        has_all.then(|| Interleaved { first: set[&begin], ways, way: (at.offset - begin) as usize })
    };
    accesses.map(way_of).collect()
}
