//! Accesses that together have neighbours: the words of short rows, each of which is an access of its own.

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
    interleaved(kernel, axis, &loads.collect::<Vec<_>>(), least)
}

/// As [`interleaved_loads`], of each store.
pub(crate) fn interleaved_stores(kernel: &Kernel, axis: Option<usize>, least: usize) -> Vec<Option<Interleaved>> {
    let stores = kernel.stores.iter().map(|store| Some((store.param.index(), &store.at)));
    interleaved(kernel, axis, &stores.collect::<Vec<_>>(), least)
}

/// Words at a distance of as many as there are accesses, each beside the next.
fn interleaved(
    kernel: &Kernel,
    axis: Option<usize>,
    accesses: &[Option<(usize, &Affine)>],
    least: usize,
) -> Vec<Option<Interleaved>> {
    let way_of = |&access: &Option<(usize, &Affine)>| {
        let (param, at) = access?;
        let ways = axis.map(|axis| at.stride(axis)).and_then(|stride| usize::try_from(stride).ok())?;
        let is_word = kernel.params[param].dtype.size() == 4;
        (is_word && (least..=MOST_WAYS).contains(&ways)).then_some(())?;
        let place_of = |&other: &Option<(usize, &Affine)>| {
            other.filter(|(of, other)| *of == param && other.strides == at.strides).map(|(_, other)| other.offset)
        };
        let places = accesses.iter().map(place_of);
        // The accesses from a multiple of the distance on, so that no two sets share one.
        let begin = places.clone().flatten().min()?;
        let begin = at.offset - (at.offset - begin) % ways as i64;
        let of_way = |way: usize| places.clone().position(|place| place == Some(begin + way as i64));
        let all: Vec<usize> = (0..ways).map(of_way).collect::<Option<_>>()?;
        Some(Interleaved { first: all[0], ways, way: (at.offset - begin) as usize })
    };
    accesses.iter().map(way_of).collect()
}
