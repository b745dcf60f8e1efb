//! Which results may be written over arguments that the caller gives away.
//!
//! An output may take the memory of an input of the same size if nothing reads the input once the output is begun,
//! unless at the very element that is written. The first pairs are a matching for the case that all arguments are
//! given: each output takes an input that its own step reads there (a parameter for the next parameter, a moment for
//! the next moment), else one that is dead by then. More pairs follow for calls that give only some of them.

use std::collections::HashMap;

use retape_kernels::{Donation, Place, Plan};

use crate::graph::Graph;

/// Smaller results come from the pool as quickly as they would from an argument.
pub(super) const MIN_BYTES: usize = 1024;

/// How many dead inputs are listed for an output beyond the first choice.
const MAX_SPARE: usize = 4;

/// An output, or an input, and the steps between which its memory is in use.
struct Uses {
    /// Of an output the step that begins it; of an input the last step that reads it.
    step: Option<usize>,
    /// The operands of that step that it is.
    operands: Vec<usize>,
}

/// The pairs for a plan, the preferred ones first.
pub(super) fn donations(graph: &Graph, plan: &Plan) -> Vec<Donation> {
    let inputs = last_reads(plan);
    let mut by_size: HashMap<usize, Vec<usize>> = HashMap::new();
    for (input, ty) in plan.inputs.iter().enumerate().filter(|(_, ty)| ty.bytes() >= MIN_BYTES) {
        by_size.entry(ty.bytes()).or_default().push(input);
    }
    let writes = first_writes(plan);
    let mut outputs: Vec<usize> =
        (0..plan.outputs.len()).filter(|&output| by_size.contains_key(&plan.outputs[output].bytes())).collect();
    outputs.sort_by_key(|&output| (writes[output].step, output));
    let mut is_taken = vec![false; plan.inputs.len()];
    let (mut first, mut more) = (vec![], vec![]);
    for output in outputs {
        let same_size = &by_size[&plan.outputs[output].bytes()];
        let candidates = candidates(graph, plan, &writes[output], output, &inputs, same_size);
        let chosen = candidates.iter().copied().find(|&input| !is_taken[input]);
        let pair = |input: usize| Donation { output: output as u32, input: input as u32 };
        if let Some(input) = chosen {
            is_taken[input] = true;
            first.push(pair(input));
        }
        let is_dead = |&input: &usize| inputs[input].step < writes[output].step;
        let (spare, in_step): (Vec<usize>, Vec<usize>) =
            candidates.into_iter().filter(|&input| Some(input) != chosen).partition(is_dead);
        more.extend(in_step.into_iter().chain(spare.into_iter().take(MAX_SPARE)).map(pair));
    }
    first.extend(more);
    first
}

/// The inputs whose memory an output may take: those that its step reads in place, then the dead ones; of both those
/// of its own type first.
fn candidates(
    graph: &Graph,
    plan: &Plan,
    write: &Uses,
    output: usize,
    inputs: &[Uses],
    same_size: &[usize],
) -> Vec<usize> {
    let Some(step) = write.step else { return vec![] };
    let wanted = graph.ty(graph.outputs()[output]);
    let in_place = |input: usize| {
        let (from, to) = (plan.inputs[input], plan.outputs[output]);
        let step = &plan.steps[step];
        let whole = |&read: &usize| step.operands[read].len == from.len;
        let here = |&read: &usize| write.operands.iter().all(|&written| step.work.works_in_place(read, written));
        let reads = &inputs[input].operands;
        from.dtype.size() == to.dtype.size() && reads.iter().all(whole) && reads.iter().all(here)
    };
    // In place and of the same type, in place, dead and of the same type, dead.
    let mut found: [Vec<usize>; 4] = Default::default();
    for &input in same_size {
        let in_step = inputs[input].step == Some(step);
        if if in_step { in_place(input) } else { inputs[input].step < Some(step) } {
            let other_type = graph.ty(graph.params()[input]) != wanted;
            found[2 * usize::from(!in_step) + usize::from(other_type)].push(input);
        }
    }
    found.concat()
}

fn last_reads(plan: &Plan) -> Vec<Uses> {
    let mut uses: Vec<Uses> = plan.inputs.iter().map(|_| Uses { step: None, operands: vec![] }).collect();
    for (n, step) in plan.steps.iter().enumerate() {
        for (o, operand) in step.operands.iter().enumerate() {
            if let Place::Input(input) = operand.place {
                let input = &mut uses[input as usize];
                if input.step != Some(n) {
                    *input = Uses { step: Some(n), operands: vec![] };
                }
                input.operands.push(o);
            }
        }
    }
    uses
}

fn first_writes(plan: &Plan) -> Vec<Uses> {
    let mut uses: Vec<Uses> = plan.outputs.iter().map(|_| Uses { step: None, operands: vec![] }).collect();
    for (n, step) in plan.steps.iter().enumerate() {
        let (_, n_read) = step.work.signature();
        for (o, operand) in step.operands.iter().enumerate().skip(n_read) {
            if let Place::Output(output) = operand.place {
                let output = &mut uses[output as usize];
                if *output.step.get_or_insert(n) == n {
                    output.operands.push(o);
                }
            }
        }
    }
    uses
}
