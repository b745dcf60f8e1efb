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

/// Where an input is read last, or an output written first.
struct Uses {
    /// The step, if there is one.
    step: Option<usize>,
    /// The operands of that step that it is.
    operands: Vec<usize>,
}

/// The pairs for a plan, the preferred ones first.
pub(super) fn donations(graph: &Graph, plan: &Plan) -> Vec<Donation> {
    let (reads, writes) = (last_reads(plan), first_writes(plan));
    let bytes = |input: usize| plan.inputs[input].bytes();
    let mut inputs: Vec<usize> = (0..plan.inputs.len()).filter(|&input| bytes(input) >= MIN_BYTES).collect();
    inputs.sort_by_key(|&input| (reads[input].step, input));
    let mut outputs: Vec<usize> = (0..plan.outputs.len()).collect();
    outputs.retain(|&output| plan.outputs[output].bytes() >= MIN_BYTES && writes[output].step.is_some());
    outputs.sort_by_key(|&output| (writes[output].step, output));

    let mut is_taken = vec![false; plan.inputs.len()];
    let mut dead: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut n_dead = 0;
    let (mut first, mut more) = (vec![], vec![]);
    for output in outputs {
        let (write, size) = (&writes[output], plan.outputs[output].bytes());
        while let Some(&input) = inputs.get(n_dead).filter(|&&input| reads[input].step < write.step) {
            dead.entry(bytes(input)).or_default().push(input);
            n_dead += 1;
        }
        let of_type = |input: &usize| graph.ty(graph.params()[*input]) == graph.ty(graph.outputs()[output]);
        let read_here = inputs[n_dead..].iter().copied().take_while(|&input| reads[input].step == write.step);
        let fits = |&input: &usize| bytes(input) == size && is_in_place(plan, input, &reads[input], output, write);
        let in_step: Vec<usize> = read_here.filter(fits).collect();
        let dead = dead.get(&size).map_or(&[][..], Vec::as_slice);
        let choose = |from: &[usize]| {
            let mut free = from.iter().copied().filter(|&input| !is_taken[input]);
            let any = free.next()?;
            Some(if of_type(&any) { any } else { free.find(of_type).unwrap_or(any) })
        };
        let chosen = choose(&in_step).or_else(|| choose(dead));
        let pair = |input: usize| Donation { output: output as u32, input: input as u32 };
        first.extend(chosen.map(pair));
        let others = in_step.iter().chain(dead.iter().take(MAX_SPARE)).copied();
        more.extend(others.filter(|&input| Some(input) != chosen).map(pair));
        if let Some(input) = chosen {
            is_taken[input] = true;
        }
    }
    first.extend(more);
    first
}

/// Whether the step that begins the output reads the input at no other elements than it writes.
fn is_in_place(plan: &Plan, input: usize, read: &Uses, output: usize, write: &Uses) -> bool {
    let (from, to) = (plan.inputs[input], plan.outputs[output]);
    let Some(step) = write.step.map(|step| &plan.steps[step]) else { return false };
    let is_whole = |&read: &usize| step.operands[read].len == from.len;
    let is_here = |&read: &usize| write.operands.iter().all(|&written| step.work.works_in_place(read, written));
    from.dtype.size() == to.dtype.size() && read.operands.iter().all(|read| is_whole(read) && is_here(read))
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
