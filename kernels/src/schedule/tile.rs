//! The nest of an epilogue: one function for any part of the rows, and perhaps of the columns, of a library kernel's
//! result.

use smallvec::SmallVec;

use super::canonical::{merged, select_axes, without_single_reductions};
use super::{Nest, Source, TASK_WORK, Traversal, cost_of_point, prepared, unroll};
use crate::epilogue::{Epilogue, first_column_axis};
use crate::ir::{Affine, Inst, Kernel};
use crate::library::TileShape;
use crate::simplify::without_dead;

/// Rows of blocks that end anywhere are shorter than these; the ends of so short ones would cost more than is won.
const MIN_WIDTH: usize = 64;

/// The nest of an epilogue over these blocks. `None` if the columns are not one axis along which every access stays or
/// moves by one element, so that there is no code for a part of them, or if one thread would do the work of many.
pub(crate) fn tile_nest(epilogue: &Epilogue, tiles: TileShape) -> Option<Nest> {
    let TileShape { width, has_whole_rows, is_one } = tiles;
    let kernel = without_dead(prepared(epilogue.kernel()));
    let is_long = has_whole_rows || width >= MIN_WIDTH;
    let first = first_column_axis(&kernel, width).filter(|_| is_long && width > 1)?;
    let order: Vec<usize> = (0..kernel.axes.len()).filter(|&axis| kernel.axes[axis].extent != 1).collect();
    let border = order.iter().filter(|&&axis| axis < first).count();
    let (kernel, border) = merged(without_single_reductions(select_axes(&kernel, &order)), border);
    let is_fit = border + 1 == kernel.axes.len() && accesses(&kernel).all(|at| matches!(at.stride(border), 0 | 1));
    let traversal = if has_whole_rows { Traversal::Columns { block: width } } else { Traversal::Tile };
    let items: u64 = kernel.axes.get(..border)?.iter().map(|axis| axis.extent as u64).product();
    let work = items.saturating_mul(width as u64).saturating_mul(cost_of_point(&kernel));
    let is_one_task = work <= TASK_WORK;
    (is_fit && (is_one_task || !is_one)).then(|| {
        let sources: SmallVec<[Source; 6]> = (0..kernel.params.len()).map(Source::Param).collect();
        let unroll = unroll(&kernel, traversal);
        Nest { kernel, traversal, unroll, sources, items, task: 1, work, is_read_at_once: false }
    })
}

fn accesses(kernel: &Kernel) -> impl Iterator<Item = &Affine> {
    let loads = kernel.insts.iter().filter_map(|inst| if let Inst::Load(_, at) = inst { Some(at) } else { None });
    loads.chain(kernel.stores.iter().map(|store| &store.at))
}
