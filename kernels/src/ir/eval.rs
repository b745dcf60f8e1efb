//! The reference interpreter: the slow twin of everything that compiles kernels.
//!
//! Visits the points in row-major order, one at a time. Sums and products of `f32` accumulate in `f64`, so that
//! results are at least as good as those of any reduction tree.

use retape_runtime::{DType, Element, Scalar};

use super::arith::eval_inst;
use super::{Affine, Binary, Inst, Kernel, ReductionOp, Stage, ValueId, operation};

/// Runs a kernel on little-endian bytes: `inputs` are those of the read parameters, `outputs` those of the written
/// ones. Elements that no store writes keep what they hold.
///
/// # Panics
///
/// Panics if the kernel does not verify or a buffer has another length than its parameter.
pub fn evaluate(kernel: &Kernel, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    if let Err(error) = kernel.verify() {
        panic!("only verified kernels are evaluated: {error}");
    }
    let n_read = kernel.params.iter().filter(|p| !p.written).count();
    let lens = inputs.iter().map(|b| b.len()).chain(outputs.iter().map(|b| b.len()));
    assert!(
        inputs.len() == n_read && lens.eq(kernel.params.iter().map(|p| p.len * p.dtype.size())),
        "one buffer of the right length per parameter"
    );
    let axes = |reduced| (0..kernel.axes.len()).filter(|&a| kernel.axes[a].reduced == reduced).collect::<Vec<_>>();
    let (kept, reduced) = (axes(false), axes(true));
    if kernel.kept_len() == 0 {
        return;
    }
    let mut run = Run {
        kernel,
        stages: kernel.stages(),
        inputs,
        outputs,
        n_read,
        coordinates: vec![0; kernel.axes.len()],
        values: vec![false.to_scalar(); kernel.insts.len()],
    };
    loop {
        run.kept_point(&reduced);
        if !run.advance(&kept) {
            return;
        }
    }
}

/// The state of a run: where it is and what it knows there.
struct Run<'a, 'b> {
    kernel: &'a Kernel,
    stages: Vec<Stage>,
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'b mut [u8]],
    n_read: usize,
    coordinates: Vec<usize>,
    values: Vec<Scalar>,
}

impl Run<'_, '_> {
    /// Does all the work of one point of the kept axes.
    fn kept_point(&mut self, reduced: &[usize]) {
        self.stage(Stage::Kept);
        let kernel = self.kernel;
        let reductions = kernel.insts.iter().enumerate().filter_map(|(i, inst)| {
            let Inst::Reduce(op, x) = *inst else { return None };
            Some((i, op, x))
        });
        let mut sums: Vec<_> = reductions.map(|(i, m, x)| (i, Accumulator::new(m, kernel.dtype_of(x)), x)).collect();
        if reduced.iter().all(|&a| kernel.axes[a].extent > 0) {
            loop {
                self.stage(Stage::Element);
                for (_, sum, x) in &mut sums {
                    sum.add(self.values[x.index()]);
                }
                self.stores(true);
                if !self.advance(reduced) {
                    break;
                }
            }
        }
        for (i, sum, _) in sums {
            self.values[i] = sum.finish();
        }
        self.stage(Stage::Tail);
        self.stores(false);
    }

    /// Moves to the next point along some axes, the last of them fastest; back to the first after the last one.
    fn advance(&mut self, axes: &[usize]) -> bool {
        for &axis in axes.iter().rev() {
            self.coordinates[axis] += 1;
            if self.coordinates[axis] < self.kernel.axes[axis].extent {
                return true;
            }
            self.coordinates[axis] = 0;
        }
        false
    }

    /// Computes the values of a stage except for reductions.
    fn stage(&mut self, stage: Stage) {
        for (i, inst) in self.kernel.insts.iter().enumerate() {
            if self.stages[i] == stage && !matches!(inst, Inst::Reduce(..)) {
                self.values[i] = self.value(inst);
            }
        }
    }

    fn value(&self, inst: &Inst<ValueId>) -> Scalar {
        match inst {
            Inst::Index(axis) => (self.coordinates[axis.index()] as i64).to_scalar(),
            Inst::Load(p, at) => self.read(p.index(), self.position(at)),
            Inst::LoadAt(p, at) => {
                let last = self.kernel.params[p.index()].len as i64 - 1;
                let at = self.values[at.index()].bits as i64;
                self.read(p.index(), at.min(last).max(0) as usize)
            }
            Inst::Const(_) | Inst::Reduce(..) | operation!() => {
                eval_inst(&inst.map(|v| self.values[v.index()])).expect("verified instructions have a value")
            }
        }
    }

    /// Writes the stores that run at every point, or those that run once per kept point.
    fn stores(&mut self, every_point: bool) {
        for store in &self.kernel.stores {
            if self.kernel.uses_reduced(&store.at) == every_point {
                let value = self.values[store.value.index()];
                let size = value.dtype.size();
                let start = self.position(&store.at) * size;
                let bytes = &mut self.outputs[store.param.index() - self.n_read][start..start + size];
                bytes.copy_from_slice(&value.bits.to_le_bytes()[..size]);
            }
        }
    }

    fn position(&self, at: &Affine) -> usize {
        let terms = at.strides.iter().zip(&self.coordinates).map(|(stride, &c)| stride * c as i64);
        (at.offset + terms.sum::<i64>()) as usize
    }

    fn read(&self, param: usize, position: usize) -> Scalar {
        let dtype = self.kernel.params[param].dtype;
        let mut bits = [0; 8];
        let bytes = &self.inputs[param][position * dtype.size()..][..dtype.size()];
        bits[..bytes.len()].copy_from_slice(bytes);
        Scalar { dtype, bits: u64::from_le_bytes(bits) }
    }
}

/// A reduction on its way.
struct Accumulator {
    op: Binary,
    dtype: DType,
    value: Scalar,
}

impl Accumulator {
    fn new(op: ReductionOp, dtype: DType) -> Accumulator {
        let wide = match (op, dtype) {
            (ReductionOp::Sum | ReductionOp::Prod, DType::F32) => DType::F64,
            _ => dtype,
        };
        Accumulator { op: op.binary(), dtype, value: op.neutral(wide) }
    }

    fn add(&mut self, x: Scalar) {
        let x = eval_inst(&Inst::Cast(self.value.dtype, x));
        let sum = x.and_then(|x| eval_inst(&Inst::Binary(self.op, self.value, x)));
        self.value = sum.expect("verified reductions have a value");
    }

    fn finish(self) -> Scalar {
        eval_inst(&Inst::Cast(self.dtype, self.value)).expect("every value can be cast")
    }
}
