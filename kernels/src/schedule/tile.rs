//! The nest of an epilogue: one function for any part of the rows and columns of a library kernel's result.

use smallvec::SmallVec;

use super::canonical::{merged, select_axes, without_dead};
use super::{Form, Nest, Source, cost_of_point, groups, prepared};
use crate::epilogue::{Epilogue, first_column_axis};
use crate::ir::{Affine, Inst, Kernel};

/// The nest of an epilogue over a matrix with rows of `width` elements. `None` if the columns are not one axis along
/// which every access stays or moves by one element: then there is no code for a part of them.
pub(crate) fn tile_nest(epilogue: &Epilogue, width: usize) -> Option<Nest> {
    let kernel = without_dead(&prepared(epilogue.kernel()));
    let first = first_column_axis(&kernel, width).filter(|_| width > 1)?;
    let order: Vec<usize> = (0..kernel.axes.len()).filter(|&axis| kernel.axes[axis].extent != 1).collect();
    let border = order.iter().filter(|&&axis| axis < first).count();
    let (kernel, border) = merged(select_axes(&kernel, &order), border);
    let is_fit = border + 1 == kernel.axes.len() && accesses(&kernel).all(|at| matches!(at.stride(border), 0 | 1));
    is_fit.then(|| {
        let items: u64 = kernel.axes[..border].iter().map(|axis| axis.extent as u64).product();
        let work = items.saturating_mul(width as u64).saturating_mul(cost_of_point(&kernel));
        let sources: SmallVec<[Source; 6]> = (0..kernel.params.len()).map(Source::Param).collect();
        let groups = groups(&kernel, Form::Tile);
        Nest { kernel, form: Form::Tile, groups, sources, items, task: 1, work }
    })
}

fn accesses(kernel: &Kernel) -> impl Iterator<Item = &Affine> {
    let loads = kernel.insts.iter().filter_map(|inst| if let Inst::Load(_, at) = inst { Some(at) } else { None });
    loads.chain(kernel.stores.iter().map(|store| &store.at))
}
