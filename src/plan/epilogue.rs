//! Which pointwise groups are epilogues: they run on the result of a matrix product, of a convolution, or of a transposition
//! that was made for them, while it is in cache.
//!
//! Groups are complete by then, so that an epilogue takes nothing away from another fusion. A group becomes the epilogue
//! of the first product whose result it reads element by element, in the order of its elements, unless something that the
//! group waits for needs the product itself. The product then runs where the group did. Its result is stored for others if
//! they need it, and is on the way otherwise.

use retape_kernels::ir::{Kernel, ParamId};
use retape_kernels::library::Library;
use retape_kernels::{Epilogue, Work};

use super::UnplacedStep;
use super::fuse::Groups;
use super::values::Values;
use crate::types::ValueTable;

/// Makes groups epilogues of others: their steps are gone then.
pub(super) fn attach(values: &Values<'_>, groups: &mut Groups, steps: &mut [Option<UnplacedStep>]) {
    let readers = groups.readers();
    for product in 0..steps.len() {
        if let Some((reader, epilogue)) = follower(groups, steps, &readers, product) {
            let has_others = readers[groups.groups[product].roots[0]].len() > 1;
            groups.absorb(product, reader, has_others);
            join(steps, product, reader, epilogue);
        }
    }
    let outside = groups.read_from_outside(values);
    for step in steps.iter_mut().flatten() {
        let keeps = step.writes.last().is_some_and(|result| outside.contains(*result));
        if let Work::Library { epilogue, .. } = &mut step.work {
            *epilogue = epilogue.take().map(|epilogue| epilogue.keeping_accumulator(keeps));
        }
    }
}

/// The group that can be the epilogue of another one, if that is a product.
fn follower(
    groups: &Groups,
    steps: &[Option<UnplacedStep>],
    readers: &ValueTable<Vec<usize>>,
    product: usize,
) -> Option<(usize, Epilogue)> {
    let step = steps[product].as_ref()?;
    let Work::Library { kernel: Library::MatMul(_) | Library::Conv2d(_) | Library::Transpose(_), epilogue: None } =
        &step.work
    else {
        return None;
    };
    let &[result] = &step.writes[..] else { return None };
    readers.get(result)?.iter().find_map(|&reader| {
        let after = steps[reader].as_ref()?;
        let accumulator = after.reads.iter().position(|&read| read == result)?;
        let epilogue = Epilogue::new(&pointwise(&after.work)?, ParamId(accumulator as u32))?;
        groups.can_absorb(product, reader).then_some((reader, epilogue))
    })
}

/// The work as a kernel that may be pointwise. Casts of 16-bit floats are.
fn pointwise(work: &Work) -> Option<Kernel> {
    match work {
        Work::Kernel(kernel) => Some(kernel.clone()),
        Work::Library { kernel: Library::CastHalf(cast), epilogue: None } => Some(cast.kernel()),
        Work::Library { .. } => None,
    }
}

/// Makes one step of two.
fn join(steps: &mut [Option<UnplacedStep>], product: usize, reader: usize, epilogue: Epilogue) {
    let (Some(after), Some(step)) = (steps[reader].take(), &mut steps[product]) else { return };
    if let Work::Library { epilogue: place, .. } = &mut step.work {
        *place = Some(epilogue);
    }
    let result = std::mem::replace(&mut step.writes, after.writes);
    step.reads.extend(after.reads.into_iter().filter(|read| !result.contains(read)));
    step.writes.extend(result);
    step.roots.extend(after.roots);
    step.label = format!("{}+{}", step.label, after.label);
}
