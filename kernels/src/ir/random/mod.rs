//! Seeded random kernels and inputs, for tests that compare a compiler with the evaluator.
//!
//! Guarantees verified kernels, the same for the same seed. Values that another order of additions or another
//! approximation changes in their last bits (float sums and products, transcendental functions) only go on through
//! instructions that keep such a change small: no comparisons, roundings, remainders or casts to integers. Bits of
//! floats are looked at only as loaded, since those of a computed NaN are nobody's.

mod positions;
mod selects;

use retape_runtime::{DType, Scalar};

use super::{
    Affine, AxisId, Binary, Compare, Func1, Inst, Kernel, KernelBuilder, ParamId, ReductionOp, Stage, Unary, Value,
    evaluate,
};

pub use positions::random_kernel_of_positions;
pub use selects::random_kernel_of_selects;

/// A random number generator; SplitMix64.
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }

    /// Whether an event of probability `1 / n` happens.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of some things.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A verified kernel without transcendental functions.
pub fn random_kernel(seed: u64) -> Kernel {
    generate(seed, false)
}

/// A verified kernel with some transcendental functions.
pub fn random_kernel_with_calls(seed: u64) -> Kernel {
    generate(seed, true)
}

/// Bytes for the read parameters of a kernel: mostly small numbers, now and then a special one.
pub fn random_inputs(kernel: &Kernel, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    let read = kernel.params.iter().filter(|p| !p.written);
    read.map(|p| {
        let elements = (0..p.len).map(|_| random_scalar(&mut rng, p.dtype).bits.to_le_bytes());
        elements.flat_map(|bytes| bytes.into_iter().take(p.dtype.size())).collect()
    })
    .collect()
}

/// The outputs of some kernels over the same parameters, run one after the other.
pub fn evaluated(kernels: &[Kernel], inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let written = kernels.iter().take(1).flat_map(|kernel| &kernel.params).filter(|param| param.written);
    let mut outputs: Vec<Vec<u8>> = written.map(|param| vec![0xa5; param.len * param.dtype.size()]).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    for kernel in kernels {
        evaluate(kernel, &inputs, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    }
    outputs
}

/// Whether every right way to compute a value gives the same bits, for all values of a kernel; NaN payloads aside.
pub fn exact_values(kernel: &Kernel) -> Vec<bool> {
    let dtypes = kernel.dtypes();
    let mut exact: Vec<bool> = Vec::with_capacity(kernel.insts.len());
    for (inst, dtype) in kernel.insts.iter().zip(&dtypes) {
        let itself = match inst {
            Inst::Call1(..) | Inst::Call2(..) => false,
            Inst::Reduce(ReductionOp::Sum | ReductionOp::Prod, _) => !dtype.is_float(),
            Inst::Reduce(ReductionOp::Max | ReductionOp::Min | ReductionOp::All | ReductionOp::Any, _)
            | Inst::Const(_)
            | Inst::Index(_)
            | Inst::Load(..)
            | Inst::LoadAt(..)
            | Inst::Unary(..)
            | Inst::Binary(..)
            | Inst::Compare(..)
            | Inst::Select(..)
            | Inst::Fma(..)
            | Inst::Cast(..)
            | Inst::Bitcast(..) => true,
        };
        exact.push(itself && inst.operands().into_iter().all(|v| exact[v.index()]));
    }
    exact
}

fn random_scalar(rng: &mut Rng, dtype: DType) -> Scalar {
    const SPECIAL: [f64; 8] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, 1e9, -3e9];
    let small = (rng.below(8001) as f64 - 4000.0) / 1000.0;
    let x = match rng.below(12) {
        0 => rng.pick(&SPECIAL),
        1..4 => small.round(),
        _ => small,
    };
    match dtype {
        DType::U32 if rng.one_in(4) => Scalar { dtype, bits: rng.next_u64() >> 32 },
        DType::U8 => Scalar { dtype, bits: rng.next_u64() >> 56 },
        DType::Bool => Scalar { dtype, bits: rng.next_u64() & 1 },
        DType::I32 | DType::I64 | DType::U32 => Scalar::from_f64(x * 3.0, dtype),
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => Scalar::from_f64(x, dtype),
    }
}

/// A value that later instructions may use.
#[derive(Clone, Copy)]
struct Known<'k> {
    value: Value<'k>,
    stage: Stage,
    /// Whether every right way to compute it gives the same bits.
    exact: bool,
}

const COMPUTED: [DType; 7] = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U8, DType::Bool];

struct Generator<'k> {
    rng: Rng,
    builder: &'k KernelBuilder,
    extents: Vec<usize>,
    reduced: Vec<bool>,
    calls: bool,
    pool: Vec<Known<'k>>,
}

fn generate(seed: u64, calls: bool) -> Kernel {
    let builder = KernelBuilder::new();
    let mut rng = Rng::new(seed);
    let n_axes = rng.below(5);
    let extents = random_extents(&mut rng, n_axes);
    let reduced: Vec<bool> = (0..n_axes).map(|_| rng.one_in(3)).collect();
    for (&extent, &reduced) in extents.iter().zip(&reduced) {
        builder.axis(extent, reduced);
    }
    let mut generator = Generator { rng, builder: &builder, extents, reduced, calls, pool: Vec::new() };
    generator.leaves();
    for _ in 0..2 + generator.rng.below(16) {
        generator.step(Stage::Element);
    }
    if generator.reduced.contains(&true) || generator.rng.one_in(8) {
        for _ in 0..1 + generator.rng.below(2) {
            generator.reduce();
        }
        for _ in 0..generator.rng.below(8) {
            generator.step(Stage::Tail);
        }
    }
    generator.stores();
    builder.finish()
}

/// Extents of few points in all; some long enough for the vector loops of a compiler, now and then none at all.
fn random_extents(rng: &mut Rng, n_axes: usize) -> Vec<usize> {
    let mut room = 1500;
    let extents = (0..n_axes).map(|_| {
        let most = if rng.one_in(3) { 70 } else { 7 };
        let extent = if rng.one_in(40) { 0 } else { 1 + rng.below(most.min(room)) };
        room /= extent.max(1);
        extent
    });
    extents.collect()
}

impl<'k> Generator<'k> {
    fn add(&mut self, value: Value<'k>, stage: Stage, exact: bool) {
        self.pool.push(Known { value, stage, exact });
    }

    /// A layout over some axes in some order: the map and the number of elements that it spans.
    fn layout(&mut self, axes: &[usize], offset: i64) -> (Affine, usize) {
        let mut order = axes.to_vec();
        for i in (1..order.len()).rev() {
            order.swap(i, self.rng.below(i + 1));
        }
        let mut at = Affine::new(offset, &vec![0; self.extents.len()]);
        let mut span = 1_usize;
        for axis in order {
            let (extent, step) = (self.extents[axis], span as i64);
            if self.rng.one_in(8) && extent > 0 {
                at.strides[axis] = -step;
                at.offset += step * (extent as i64 - 1);
            } else {
                at.strides[axis] = step;
            }
            span *= extent;
        }
        (at, offset as usize + span)
    }

    /// Loads, coordinates and constants.
    fn leaves(&mut self) {
        let n_axes = self.extents.len();
        for _ in 0..1 + self.rng.below(4) {
            let dtype = if self.rng.one_in(3) { self.rng.pick(&DType::ALL) } else { DType::F32 };
            let axes: Vec<usize> = (0..n_axes).filter(|_| !self.rng.one_in(4)).collect();
            let offset = self.rng.below(3) as i64;
            let (at, len) = self.layout(&axes, offset);
            let param = self.builder.param(dtype, len + self.rng.below(3), false);
            let stage = self.stage(&axes);
            let value = self.builder.load(param, at);
            self.add_computed(value, stage);
        }
        for axis in 0..n_axes {
            let stage = self.stage(&[axis]);
            self.add(self.builder.index(AxisId(axis as u32)), stage, true);
        }
        for _ in 0..2 {
            let dtype = self.rng.pick(&COMPUTED);
            let scalar = random_scalar(&mut self.rng, dtype);
            self.add(self.builder.constant(scalar), Stage::Kept, true);
        }
        for _ in 0..self.rng.below(2) {
            self.guarded_load();
        }
    }

    /// A load at a computed position, replaced by 0 where that is out of range.
    fn guarded_load(&mut self) {
        let len = 1 + self.rng.below(9);
        let dtype = self.rng.pick(&[DType::F32, DType::F64, DType::I32, DType::Bf16]);
        let param = self.builder.param(dtype, len, false);
        let from = self.choose(Stage::Element, true);
        let at = self.as_dtype(from, DType::I64).value - self.rng.below(3) as i64;
        let zero = self.builder.constant(Scalar::from_f64(0.0, dtype));
        let inside = at.ge(0).and(at.lt(len as i64));
        let value = inside.select(self.builder.load_at(param, at), zero);
        self.add_computed(value, from.stage);
    }

    /// Adds a value, 16-bit floats as `f32`.
    fn add_computed(&mut self, value: Value<'k>, stage: Stage) {
        let value = if value.dtype().is_half() { value.cast(DType::F32) } else { value };
        self.add(value, stage, true);
    }

    fn stage(&self, axes: &[usize]) -> Stage {
        if axes.iter().any(|&a| self.reduced[a]) { Stage::Element } else { Stage::Kept }
    }

    /// A value that an instruction of a stage may use, the latest ones more often.
    fn choose(&mut self, stage: Stage, exact: bool) -> Known<'k> {
        let usable: Vec<Known<'k>> =
            self.pool.iter().filter(|k| k.stage.join(stage).is_some() && (k.exact || !exact)).copied().collect();
        let recent = usable.len().saturating_sub(5);
        if self.rng.one_in(2) { usable[recent + self.rng.below(usable.len() - recent)] } else { self.rng.pick(&usable) }
    }

    /// A value as another dtype, if it may be cast to it, else a constant.
    fn as_dtype(&mut self, from: Known<'k>, dtype: DType) -> Known<'k> {
        if from.value.dtype() == dtype {
            from
        } else if from.exact || dtype.is_float() {
            Known { value: from.value.cast(dtype), ..from }
        } else {
            let scalar = random_scalar(&mut self.rng, dtype);
            Known { value: self.builder.constant(scalar), stage: Stage::Kept, exact: true }
        }
    }

    /// Adds one instruction at most of a stage.
    fn step(&mut self, stage: Stage) {
        let x = self.choose(stage, false);
        let dtype = x.value.dtype();
        let other = self.choose(stage, false);
        let y = self.as_dtype(other, dtype);
        let both = x.stage.join(y.stage).unwrap_or(stage);
        let exact = x.exact && y.exact;
        match self.rng.below(12) {
            0..6 => {
                let op = self.rng.pick(Binary::ALL);
                if exact || !matches!(op, Binary::Rem | Binary::Div) {
                    self.try_add(Inst::Binary(op, x.value.id(), y.value.id()), both, exact);
                }
            }
            6 | 7 => {
                let op = self.rng.pick(Unary::ALL);
                if x.exact || matches!(op, Unary::Neg | Unary::Abs) {
                    self.try_add(Inst::Unary(op, x.value.id()), x.stage, x.exact);
                }
            }
            8 if exact => {
                let c = self.rng.pick(Compare::ALL);
                let condition = x.value.compare(c, y.value);
                self.add(condition, both, true);
                let (p, q) = if self.rng.one_in(2) { (x, y) } else { (y, x) };
                self.add(condition.select(p.value, q.value), both, true);
            }
            9 => {
                let dtype = self.rng.pick(&COMPUTED);
                let z = self.as_dtype(x, dtype);
                self.add(z.value, z.stage, z.exact);
            }
            10 => {
                let loaded = matches!(self.builder.inst(x.value.id()), Inst::Load(..));
                let to = self.rng.pick(&COMPUTED);
                if loaded || !dtype.is_float() {
                    self.try_add(Inst::Bitcast(to, x.value.id()), x.stage, x.exact);
                }
            }
            _ if self.calls && dtype.is_float() => {
                const FUNCS: [Func1; 6] =
                    [Func1::Exp, Func1::Log1p, Func1::Sin, Func1::Tanh, Func1::Erf, Func1::Sigmoid];
                let func = self.rng.pick(&FUNCS);
                self.add(x.value.call1(func), x.stage, false);
            }
            _ => self.try_add(Inst::Fma(x.value.id(), y.value.id(), x.value.id()), both, exact),
        }
    }

    /// Adds an instruction if it is defined for the dtypes of its operands.
    fn try_add(&mut self, inst: Inst<super::ValueId>, stage: Stage, exact: bool) {
        // An instruction is defined for a dtype exactly if it has a value for numbers of it.
        let sample = |v| Scalar::from_f64(1.0, self.builder.value(v).dtype());
        if super::eval_inst(&inst.map(sample)).is_some() {
            self.add(self.builder.push(inst), stage, exact);
        }
    }

    fn reduce(&mut self) {
        let x = self.choose(Stage::Element, false);
        let op = self.rng.pick(ReductionOp::ALL);
        let x = match op {
            ReductionOp::All | ReductionOp::Any => self.as_dtype(x, DType::Bool),
            ReductionOp::Sum | ReductionOp::Prod | ReductionOp::Max | ReductionOp::Min => {
                match x.value.dtype() == DType::Bool {
                    true => self.as_dtype(x, DType::F32),
                    false => x,
                }
            }
        };
        let reordered = x.value.dtype().is_float() && matches!(op, ReductionOp::Sum | ReductionOp::Prod);
        self.add(x.value.reduce(op), Stage::Tail, x.exact && !reordered);
    }

    /// Stores the latest values, so that most instructions are needed.
    fn stores(&mut self) {
        let n = self.pool.len();
        let first = n - (1 + self.rng.below(3)).min(n);
        for i in first..n {
            let known = self.pool[i];
            let everywhere = known.stage == Stage::Element;
            let axes: Vec<usize> = (0..self.extents.len()).filter(|&a| everywhere || !self.reduced[a]).collect();
            let (at, len) = self.layout(&axes, 0);
            let half = known.value.dtype() == DType::F32 && known.exact && self.rng.one_in(8);
            let value = if half { known.value.cast(DType::F16) } else { known.value };
            let param: ParamId = self.builder.param(value.dtype(), len, true);
            self.builder.store(param, at, value);
        }
    }
}
