//! Pooling: a thread per element of the result, which gathers its window, or the windows that it lies in.
//!
//! The gradient of a maximum comes in two launches: where the maximum of each window lies, then the gather.

use retape_runtime::DType;

use super::{BLOCK, KernelWriter, NumberType, Order, blocks};
use crate::library::{Pool2d, PoolKind, PoolPass};
use crate::ptx::{Argument, Launch, Launches, Reg, Target};

/// Positions of maxima in an image.
const PLACE: NumberType = NumberType(DType::U32);
/// The position of a maximum of nothing.
const NOWHERE: u32 = u32::MAX;

/// The launches of [`Pool2d`].
pub(in crate::ptx) fn pool(kernel: &Pool2d, target: Target) -> Launches {
    let emit = PoolEmitter::new(kernel, target);
    let operands: Vec<Argument> = (0..3).map(Argument::Operand).collect();
    let launches = |launches: Vec<Option<Launch>>, scratch: usize| Launches {
        launches: launches.into_iter().flatten().collect(),
        scratch,
    };
    match (kernel.pass, kernel.kind) {
        (PoolPass::Forward, PoolKind::Sum) => launches(vec![emit.sums(&operands[..2])], 0),
        (PoolPass::Forward, PoolKind::Max) => launches(vec![emit.maxima(Wanted::Value, &operands[..2])], 0),
        (PoolPass::MaxGather, _) => launches(vec![emit.maxima(Wanted::Tangent, &operands)], 0),
        (PoolPass::Gradient, PoolKind::Sum) => launches(vec![emit.gradient(&operands[..2])], 0),
        (PoolPass::Gradient, PoolKind::Max) => {
            let scratch = Argument::Scratch(0);
            let places = emit.maxima(Wanted::Place, &[operands[0], scratch]);
            let gather = emit.gradient(&[operands[1], operands[2], scratch]);
            launches(vec![places, gather], emit.n_pooled * PLACE.size())
        }
    }
}

/// The stored result of the maximum of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Its value; -inf if there is none.
    Value,
    /// Its position in the image.
    Place,
    /// The element of the second input there; 0 if there is none.
    Tangent,
}

struct PoolEmitter<'k> {
    kernel: &'k Pool2d,
    target: Target,
    number: NumberType,
    pooled: [usize; 2],
    n_pooled: usize,
    n_unpooled: usize,
}

/// An element of pooled images: its image, the element of channel `channel` at the image's first position, and the
/// rows and columns that its window covers.
struct WindowRegs {
    origin: Reg,
    rows: [Reg; 2],
    columns: [Reg; 2],
}

impl<'k> PoolEmitter<'k> {
    fn new(kernel: &'k Pool2d, target: Target) -> PoolEmitter<'k> {
        let pooled = kernel.pooled();
        let n_pooled = kernel.batch * pooled[0] * pooled[1] * kernel.channels;
        let n_unpooled = kernel.batch * kernel.height * kernel.width * kernel.channels;
        PoolEmitter { kernel, target, number: NumberType::of(kernel.dtype), pooled, n_pooled, n_unpooled }
    }

    /// A kernel with a thread per item, whose body gets the item.
    fn per_item(
        &self,
        name: &str,
        items: usize,
        arguments: &[Argument],
        body: impl FnOnce(&mut KernelWriter, Reg),
    ) -> Option<Launch> {
        if items == 0 {
            return None;
        }
        let k = self.kernel;
        let along = |axis: usize, extent: usize| {
            extent + k.padding[axis][0] + k.padding[axis][1] + k.window[axis] + k.stride[axis]
        };
        let largest = [self.n_pooled, self.n_unpooled, along(0, k.height), along(1, k.width), k.height * k.width];
        let largest = largest.into_iter().fold(BLOCK as usize, usize::max);
        let mut c = KernelWriter::new(name, self.target, BLOCK, arguments.len(), largest.saturating_mul(2));
        let item = c.global_thread(BLOCK);
        let exists = c.test("lt", item, items);
        c.if_then(exists, |c| body(c, item));
        Some(c.launch(blocks(items), BLOCK, arguments))
    }

    /// The part of the image that the window of a pooled element covers.
    fn window(&self, c: &mut KernelWriter, item: Reg) -> WindowRegs {
        let k = self.kernel;
        let (at, channel) = c.div_rem(item, k.channels);
        let (at, column) = c.div_rem(at, self.pooled[1]);
        let (image, row) = c.div_rem(at, self.pooled[0]);
        let origin = c.mul(image, k.height * k.width * k.channels);
        let origin = c.add(origin, channel);
        let mut covered = |position: Reg, axis: usize| {
            let extent = [k.height, k.width][axis];
            let before = k.padding[axis][0];
            let start = c.mul(position, k.stride[axis]);
            let end = c.add(start, k.window[axis]);
            [start, end].map(|at| {
                let at = c.max(at, before);
                let at = c.sub(at, before);
                c.min(at, extent)
            })
        };
        WindowRegs { rows: covered(row, 0), columns: covered(column, 1), origin }
    }

    /// Runs code for each position (row times width plus column) in a window, in order, with the address of its
    /// element of `x`.
    fn each(&self, c: &mut KernelWriter, window: &WindowRegs, x: Reg, body: impl FnOnce(&mut KernelWriter, Reg, Reg)) {
        let k = self.kernel;
        c.count(window.rows[0], window.rows[1], 1, |c, row| {
            c.count(window.columns[0], window.columns[1], 1, |c, column| {
                let position = c.mad(row, k.width, column);
                let at = c.mad(position, k.channels, window.origin);
                let address = c.at(x, at, self.number.size());
                body(c, position, address);
            });
        });
    }

    fn sums(&self, arguments: &[Argument]) -> Option<Launch> {
        self.per_item("pool_sum", self.n_pooled, arguments, |c, item| {
            let (x, out) = (c.param(0), c.param(1));
            let window = self.window(c, item);
            let sum = c.constant(self.number.small(0));
            self.each(c, &window, x, |c, _, address| {
                let value = c.load(self.number, address, 0);
                let next = c.plus(self.number, sum, value);
                c.set(sum, next);
            });
            let to = c.at(out, item, self.number.size());
            c.store(self.number, to, 0, sum);
        })
    }

    /// The maximum of each window; arguments are `x`, `t` for tangents, and the result.
    fn maxima(&self, wanted: Wanted, arguments: &[Argument]) -> Option<Launch> {
        let name = match wanted {
            Wanted::Value => "pool_max",
            Wanted::Place => "pool_max_place",
            Wanted::Tangent => "pool_max_gather",
        };
        self.per_item(name, self.n_pooled, arguments, |c, item| {
            let (x, out) = (c.param(0), c.param(arguments.len() - 1));
            let window = self.window(c, item);
            let best = c.constant(self.number.lowest());
            let place = c.number(NOWHERE);
            self.each(c, &window, x, |c, position, address| {
                let value = c.load(self.number, address, 0);
                // The first element is taken even if it is -inf.
                let keep = c.compare_or_nan(Order::GreaterEqual, self.number, best, value);
                let seen = c.test("ne", place, NOWHERE);
                let keep = c.and(keep, seen);
                c.select_into(best, keep, best, value);
                c.select_into(place, keep, place, position);
            });
            match wanted {
                Wanted::Value => {
                    let to = c.at(out, item, self.number.size());
                    c.store(self.number, to, 0, best);
                }
                Wanted::Place => {
                    let to = c.at(out, item, PLACE.size());
                    let place = c.low(place);
                    c.store(PLACE, to, 0, place);
                }
                Wanted::Tangent => {
                    let t = c.param(1);
                    let value = c.constant(self.number.small(0));
                    let exists = c.test("ne", place, NOWHERE);
                    c.if_then(exists, |c| {
                        let at = c.mad(place, self.kernel.channels, window.origin);
                        let from = c.at(t, at, self.number.size());
                        let found = c.load(self.number, from, 0);
                        c.set(value, found);
                    });
                    let to = c.at(out, item, self.number.size());
                    c.store(self.number, to, 0, value);
                }
            }
        })
    }

    /// The sum of the cotangents of the windows that an element of an image lies in, in order; arguments are the
    /// cotangents, the result and, for maxima, the places that select windows.
    fn gradient(&self, arguments: &[Argument]) -> Option<Launch> {
        let k = self.kernel;
        self.per_item("pool_gradient", self.n_unpooled, arguments, |c, item| {
            let (ct, out) = (c.param(0), c.param(1));
            let places = (arguments.len() == 3).then(|| c.param(2));
            let (at, channel) = c.div_rem(item, k.channels);
            let (image, position) = c.div_rem(at, k.height * k.width);
            let (row, column) = c.div_rem(position, k.width);
            let rows = self.windows(c, row, 0);
            let columns = self.windows(c, column, 1);
            let sum = c.constant(self.number.small(0));
            let first_row = c.mul(image, self.pooled[0]);
            c.count(rows[0], rows[1], 1, |c, row| {
                let row = c.add(row, first_row);
                let first = c.mul(row, self.pooled[1]);
                c.count(columns[0], columns[1], 1, |c, column| {
                    let at = c.add(first, column);
                    let at = c.mad(at, k.channels, channel);
                    let add = |c: &mut KernelWriter| {
                        let from = c.at(ct, at, self.number.size());
                        let term = c.load(self.number, from, 0);
                        let next = c.plus(self.number, sum, term);
                        c.set(sum, next);
                    };
                    match places {
                        None => add(c),
                        Some(places) => {
                            let from = c.at(places, at, PLACE.size());
                            let place = c.load(PLACE, from, 0);
                            let here = c.low(position);
                            let selected = c.test("eq", place, here);
                            c.if_then(selected, add);
                        }
                    }
                });
            });
            let to = c.at(out, item, self.number.size());
            c.store(self.number, to, 0, sum);
        })
    }

    /// From which to below which window along an axis the windows cover a position.
    fn windows(&self, c: &mut KernelWriter, position: Reg, axis: usize) -> [Reg; 2] {
        let k = self.kernel;
        let (window, stride) = (k.window[axis], k.stride[axis]);
        // Window w covers the padded positions from w * stride to below w * stride + window.
        let padded = c.add(position, k.padding[axis][0]);
        let above = c.max(padded, window - 1);
        let above = c.sub(above, window - 1);
        let above = c.add(above, stride - 1);
        let first = c.div(above, stride);
        let last = c.div(padded, stride);
        let end = c.add(last, 1);
        let end = c.min(end, self.pooled[axis]);
        [first, end]
    }
}
