//! Depthwise convolutions straight from an image, with channels as lanes: sums over taps in which each channel meets weights
//! of its own, and gradients of these weights, sums over pixels.
//!
//! Some outputs at a time share their weights. Where three, five or seven taps of a line meet neighbouring pixels, as
//! outputs do, they share the pixels as well (ADR 104); else outputs at the sides of an image are computed one by one. Taps
//! beside the image find zeros, or are left out beside a filter of finite numbers (`padding.rs`).

use std::array;
use std::ops::Range;

use smallvec::SmallVec;

use super::drive::Engine;
use super::simd::Simd;
use super::tile::Shortest;
use super::unrolled::each_row;
use super::window::WindowAxis;
use super::{Level, Real};

/// Outputs whose sums are computed together: the chains that keep a processor busy.
const OUTPUTS: usize = 8;

/// The place of a tap beside the image.
const BESIDE: usize = usize::MAX;

/// Lines of the image that most lines of outputs meet, or most chains of a gradient.
const LINES: usize = 32;

/// The taps of lines of outputs, and where these find their pixels.
#[derive(Debug)]
pub(crate) struct DepthwiseTaps {
    /// Width.
    x: WindowAxis,
    /// Channels of a pixel, of the weights of a tap and of an output, and elements from a pixel to the next.
    channels: usize,
    pitch: usize,
    /// Where the weights of each tap begin in a filter, and the end of the last ones.
    weights: Vec<usize>,
    weights_end: usize,
    /// Whether taps beside the image are left out.
    leaves_out: bool,
    /// The outputs whose taps are all inside the image.
    inside: Range<usize>,
    /// Where each tap of a line finds its pixel: for the first output inside (of no meaning if there is none), then for
    /// each of the others.
    places: Vec<usize>,
}

impl DepthwiseTaps {
    /// The taps of lines of outputs whose pixels are `pitch` elements apart; `weights` says where those of each tap begin.
    ///
    /// # Panics
    ///
    /// If there are not as many for each line of taps, or pixels overlap.
    pub(crate) fn new(x: WindowAxis, [channels, pitch]: [usize; 2], weights: Vec<usize>) -> DepthwiseTaps {
        assert!(weights.len().is_multiple_of(x.taps) && channels <= pitch, "whole lines of taps");
        let inside = (0..x.taps).map(|tap| x.outputs_inside(tap, &(0..x.outputs)));
        let inside = inside.fold(0..x.outputs, |all, now| all.start.max(now.start)..all.end.min(now.end));
        let inside = if inside.is_empty() { x.outputs..x.outputs } else { inside };
        let leaves_out = false;
        let mut taps =
            DepthwiseTaps { x, channels, pitch, weights_end: 0, weights, leaves_out, inside, places: vec![] };
        taps.weights_end = taps.weights.iter().max().map_or(0, |start| start.saturating_add(channels));
        let place = |output| move |tap| x.inside(output, tap).map_or(BESIDE, |at| at * pitch);
        taps.places =
            [taps.inside.start].into_iter().chain(taps.at_sides()).flat_map(|o| (0..x.taps).map(place(o))).collect();
        taps
    }

    /// The same, where sums leave out taps beside the image if `leaves_out`: beside finite weights only.
    pub(crate) fn leaving_out(self, leaves_out: bool) -> DepthwiseTaps {
        DepthwiseTaps { leaves_out, ..self }
    }

    /// Whether sums leave out taps beside the image.
    pub(crate) fn leaves_out(&self) -> bool {
        self.leaves_out
    }

    /// The first element of a line of the image.
    fn start_of<T>(&self, line: &[T]) -> *const T {
        assert!(line.len() >= self.len_of(self.x.extent), "a whole line of the image");
        line.as_ptr()
    }

    /// Elements from the first one of some pixels to the last one.
    fn len_of(&self, pixels: usize) -> usize {
        pixels.checked_sub(1).map_or(0, |others| others.saturating_mul(self.pitch).saturating_add(self.channels))
    }

    /// The outputs that have taps beside the image.
    fn at_sides(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.inside.start).chain(self.inside.end..self.x.outputs)
    }
}

/// A line of outputs with all channels. Each element is one chain of fused multiply-adds from +0, over the taps in order.
pub(super) struct DepthwiseSums<'a, T> {
    taps: &'a DepthwiseTaps,
    /// For some lines of taps, the line of the image that each meets, or one of zeros.
    lines: &'a [*const T],
    /// Where the weights of their taps begin.
    weights: &'a [usize],
    filter: *const T,
    /// A pixel of zeros.
    zeros: *const T,
    /// The first output, and elements from there to the next one.
    out: *mut T,
    out_step: usize,
}

impl Engine {
    /// Whether sums may leave out taps beside the image, and gain by that: where a filter of finite numbers meets many of
    /// them, in some of these windows of so many images.
    pub(crate) fn leaves_out_taps<'a, T: Real>(
        &self,
        mut windows: impl Iterator<Item = [&'a WindowAxis; 2]>,
        batch: usize,
        filter: &[T],
    ) -> bool {
        let gains = |of: &WindowAxis, other: &WindowAxis| of.leaves_out_pixels(batch.saturating_mul(other.outputs));
        windows.any(|[y, x]| gains(y, x) || gains(x, y)) && self.are_finite(filter)
    }

    /// Computes a line of outputs, which `out` begins with, at a distance of `out_step`; `lines` are those that lines of
    /// taps meet from number `first` on, and `zeros` stands in for pixels beside them.
    ///
    /// # Panics
    ///
    /// If a line, the filter or the result is too short, or there are fewer channels than a vector has.
    pub(crate) fn depthwise_line<'a, T: Real + 'a>(
        &self,
        taps: &DepthwiseTaps,
        [filter, zeros]: [&[T]; 2],
        (first, lines): (usize, impl Iterator<Item = &'a [T]>),
        out: &mut [T],
        out_step: usize,
    ) {
        let (x, channels) = (taps.x, taps.channels);
        let Some(last) = x.outputs.checked_sub(1) else { return };
        let lines: SmallVec<[*const T; LINES]> = lines.map(|line| taps.start_of(line)).collect();
        assert!(has_vectors::<T>(self.level, channels), "a vector of channels");
        let weights = &taps.weights[first * x.taps..][..lines.len() * x.taps];
        assert!(taps.weights_end <= filter.len() && channels <= zeros.len(), "weights and zeros of all channels");
        assert!(out.len() >= channels && (out.len() - channels) / out_step.max(1) >= last, "room for all outputs");
        let (filter, zeros, out) = (filter.as_ptr(), zeros.as_ptr(), out.as_mut_ptr());
        let sums = DepthwiseSums { taps, lines: &lines, weights, filter, zeros, out, out_step };
        // SAFETY: the level is present, and operands and result are as long as was just looked at. Taps are inside the
        // lines, or `BESIDE`, by the construction of `taps`.
        unsafe { (T::kernels(self.level).depthwise_sums)(&sums) };
    }
}

/// A chain of the gradient of a filter: over some lines of outputs, for each tap and channel the sum of pixels times
/// cotangents, in order from +0.
pub(super) struct DepthwiseGradient<'a, T> {
    taps: &'a DepthwiseTaps,
    /// For each line of outputs and each line of taps, the line of the image where they meet, or one of zeros.
    lines: &'a [*const T],
    /// The cotangents of the first line; the others follow.
    cts: *const T,
    /// A pixel of zeros.
    zeros: *const T,
    /// The gradient, and whether it is to be overwritten.
    out: *mut T,
    fresh: bool,
}

impl Engine {
    /// Adds a chain to the gradient of a filter, or overwrites it: of lines of outputs whose cotangents follow each other,
    /// and for each of them the lines of the image that its lines of taps meet; `zeros` stands in for pixels beside these.
    ///
    /// # Panics
    ///
    /// If a line, the cotangents or the gradient are too short, or the shortest vector does not divide the channels.
    pub(crate) fn depthwise_gradient<'a, T: Real + 'a>(
        &self,
        taps: &DepthwiseTaps,
        [cts, zeros]: [&[T]; 2],
        lines: impl Iterator<Item = &'a [T]>,
        out: &mut [T],
        fresh: bool,
    ) {
        let (x, channels) = (taps.x, taps.channels);
        if taps.weights.is_empty() {
            return;
        }
        let lines: SmallVec<[*const T; LINES]> = lines.map(|line| taps.start_of(line)).collect();
        let n_lines = lines.len() * x.taps / taps.weights.len();
        assert!(whole_vectors::<T>(self.level, channels) == channels, "whole vectors of channels");
        assert!(lines.len() * x.taps == n_lines * taps.weights.len(), "lines for all taps");
        assert!(cts.len() >= taps.len_of(n_lines * x.outputs) && zeros.len() >= channels, "cotangents and zeros");
        assert!(taps.weights_end <= out.len(), "a gradient of all weights");
        let (cts, zeros, out) = (cts.as_ptr(), zeros.as_ptr(), out.as_mut_ptr());
        let chain = DepthwiseGradient { taps, lines: &lines, cts, zeros, out, fresh };
        // SAFETY: as for a line of outputs.
        unsafe { (T::kernels(self.level).depthwise_gradient)(&chain) };
    }
}

/// Whether the channels of a pixel fill the shortest vector of a level.
pub(crate) fn has_vectors<T: Real>(level: Level, channels: usize) -> bool {
    channels >= T::kernels(level).least_lanes
}

/// The least number of channels, of so many at least, which the shortest vector of a level divides.
pub(crate) fn whole_vectors<T: Real>(level: Level, channels: usize) -> usize {
    channels.next_multiple_of(T::kernels(level).least_lanes)
}

/// Computes the sums.
///
/// # Safety
///
/// The instruction set of `S`. Places are inside the lines; lines, weights and zeros are readable for the channels, which fill
/// the shortest vector, and so are the outputs writable, which nobody else uses.
#[inline(always)]
pub(super) unsafe fn depthwise_sums<S: Simd>(x: &DepthwiseSums<'_, S::Elem>) {
    let WindowAxis { taps, stride, dilation, .. } = x.taps.x;
    // SAFETY: handed on; taps that follow each other do so by a pixel, in one of the two directions.
    unsafe {
        match taps {
            3 if stride == 1 && dilation.abs() == 1 => neighbours::<S, 3, { OUTPUTS + 2 }>(x),
            5 if stride == 1 && dilation.abs() == 1 => neighbours::<S, 5, { OUTPUTS + 4 }>(x),
            7 if stride == 1 && dilation.abs() == 1 => neighbours::<S, 7, { OUTPUTS + 6 }>(x),
            3 => line::<S, 3>(x),
            _ => line::<S, 0>(x),
        }
    }
}

/// The `P` pixels that some neighbouring outputs meet with neighbouring taps, and these outputs, in the order of the taps.
struct Neighbours<const P: usize> {
    /// Where the pixels lie in a line, or `BESIDE`.
    places: [usize; P],
    /// The first output, elements from each to the next, and their number.
    output: usize,
    step: isize,
    outputs: usize,
}

/// [`depthwise_sums`] of `T` taps along a line that meet neighbouring pixels, as outputs do: the `P` pixels of some outputs
/// are loaded once for all taps.
#[inline(always)]
unsafe fn neighbours<S: Simd, const T: usize, const P: usize>(x: &DepthwiseSums<'_, S::Elem>) {
    let DepthwiseTaps { x: WindowAxis { outputs: n, offset, extent, dilation, .. }, pitch, .. } = x.taps;
    let outputs = OUTPUTS.min(*n);
    let mut at = 0;
    while at < *n {
        // The last ones may be some of those before, whose sums do not change.
        let first = at.min(n - outputs);
        let output = if *dilation > 0 { first } else { first + outputs - 1 };
        let start = output as isize + offset;
        let place = |pixel: usize| usize::try_from(start + pixel as isize * dilation).ok().filter(|at| at < extent);
        let is_inside = place(0).is_some() && place(P - 1).is_some();
        let places = array::from_fn(|pixel| place(pixel).map_or(BESIDE, |at| at * pitch));
        let group = Neighbours { places, output, step: *dilation * x.out_step as isize, outputs };
        // SAFETY: these outputs are there, and all pixels that are not `BESIDE`.
        unsafe {
            if is_inside {
                group_of_neighbours::<S, T, P, false>(x, &group);
            } else {
                group_of_neighbours::<S, T, P, true>(x, &group);
            }
        }
        at = first + outputs;
    }
}

/// Some outputs with all channels: whole vectors first.
#[inline(always)]
unsafe fn group_of_neighbours<S: Simd, const T: usize, const P: usize, const SIDE: bool>(
    x: &DepthwiseSums<'_, S::Elem>,
    group: &Neighbours<P>,
) {
    // SAFETY: handed on.
    unsafe {
        let (channels, mut channel) = (x.taps.channels, 0);
        while channel + S::LANES <= channels {
            vector_of_neighbours::<S, T, P, SIDE>(x, group, channel);
            channel += S::LANES;
        }
        if channel + S::Half::LANES <= channels {
            vector_of_neighbours::<S::Half, T, P, SIDE>(x, group, channel);
            channel += S::Half::LANES;
        }
        while channel < channels {
            // The last ones may be some of those before, whose sums do not change.
            vector_of_neighbours::<Shortest<S>, T, P, SIDE>(x, group, channel.min(channels - Shortest::<S>::LANES));
            channel += Shortest::<S>::LANES;
        }
    }
}

/// One vector of channels, from `channel` on, of some outputs.
#[inline(always)]
unsafe fn vector_of_neighbours<S: Simd, const T: usize, const P: usize, const SIDE: bool>(
    x: &DepthwiseSums<'_, S::Elem>,
    group: &Neighbours<P>,
    channel: usize,
) {
    // SAFETY: the channels of these outputs exist.
    unsafe {
        let mut sums = [S::zero(); OUTPUTS];
        let (mut starts, zeros) = (x.weights.as_ptr(), x.zeros.add(channel));
        let step = x.taps.x.dilation * x.taps.pitch as isize;
        for line in x.lines {
            let mut weights = [S::zero(); T];
            for weight in &mut weights {
                *weight = S::load(x.filter.add(*starts + channel));
                starts = starts.add(1);
            }
            let line = line.add(channel);
            let mut next = line.wrapping_add(group.places[0]);
            each_row!(number < P {
                let pixel = S::load(match group.places[number] {
                    _ if !SIDE => next,
                    BESIDE => zeros,
                    place => line.add(place),
                });
                next = next.wrapping_offset(step);
                if !(SIDE && x.taps.leaves_out && group.places[number] == BESIDE) {
                    for (tap, weight) in weights.into_iter().enumerate() {
                        if tap <= number && number - tap < OUTPUTS {
                            sums[number - tap] = S::mul_add(pixel, weight, sums[number - tap]);
                        }
                    }
                }
            });
        }
        let mut out = x.out.add(group.output * x.out_step + channel);
        for (number, sum) in sums.into_iter().enumerate() {
            if number < group.outputs {
                S::store(out, sum);
                out = out.wrapping_offset(group.step);
            }
        }
    }
}

/// [`depthwise_sums`] of `T` taps along a line, or of any number if that is 0.
#[inline(always)]
unsafe fn line<S: Simd, const T: usize>(x: &DepthwiseSums<'_, S::Elem>) {
    let DepthwiseTaps { x: axis, inside, places, .. } = x.taps;
    // SAFETY: the outputs are there.
    unsafe {
        let (first, sides) = places.split_at(axis.taps.min(places.len()));
        for (number, output) in x.taps.at_sides().enumerate() {
            group::<S, T, 1, true>(x, &sides[number * axis.taps..][..axis.taps], 0, output);
        }
        let mut at = 0;
        while at < inside.len() {
            // The last ones may be some of those before, whose sums do not change.
            at = if inside.len() >= OUTPUTS { at.min(inside.len() - OUTPUTS) } else { at };
            let left = inside.len() - at;
            if left >= OUTPUTS {
                group::<S, T, OUTPUTS, false>(x, first, at, inside.start + at);
                at += OUTPUTS;
            } else if left >= OUTPUTS / 2 {
                group::<S, T, { OUTPUTS / 2 }, false>(x, first, at, inside.start + at);
                at += OUTPUTS / 2;
            } else {
                group::<S, T, 1, false>(x, first, at, inside.start + at);
                at += 1;
            }
        }
    }
}

/// Some outputs from number `output` on, whose pixels lie `at` outputs behind the places: whole vectors of channels first.
#[inline(always)]
unsafe fn group<S: Simd, const T: usize, const N: usize, const SIDE: bool>(
    x: &DepthwiseSums<'_, S::Elem>,
    places: &[usize],
    at: usize,
    output: usize,
) {
    // SAFETY: handed on.
    unsafe {
        let (channels, mut channel) = (x.taps.channels, 0);
        while channel + S::LANES <= channels {
            vector::<S, T, N, SIDE>(x, places, [at, output], channel);
            channel += S::LANES;
        }
        if channel + S::Half::LANES <= channels {
            vector::<S::Half, T, N, SIDE>(x, places, [at, output], channel);
            channel += S::Half::LANES;
        }
        while channel < channels {
            // The last ones may be some of those before, whose sums do not change.
            let last = channel.min(channels - Shortest::<S>::LANES);
            vector::<Shortest<S>, T, N, SIDE>(x, places, [at, output], last);
            channel += Shortest::<S>::LANES;
        }
    }
}

/// One vector of channels, from `channel` on, of some outputs.
#[inline(always)]
unsafe fn vector<S: Simd, const T: usize, const N: usize, const SIDE: bool>(
    x: &DepthwiseSums<'_, S::Elem>,
    places: &[usize],
    [at, output]: [usize; 2],
    channel: usize,
) {
    // SAFETY: the channels of these outputs exist.
    unsafe {
        // Not used for a single output, whose stride can be any number.
        let step = (x.taps.x.stride as usize).wrapping_mul(x.taps.pitch);
        let first = at.wrapping_mul(step).wrapping_add(channel);
        let places = if T == 0 { places } else { places.get_unchecked(..T) };
        let mut sums = [S::zero(); N];
        let mut weights = x.weights.as_ptr();
        for line in x.lines {
            for place in places {
                let weight = x.filter.add(*weights + channel);
                weights = weights.add(1);
                if SIDE && *place == BESIDE && x.taps.leaves_out {
                    continue;
                }
                let weight = S::load(weight);
                let pixel = if SIDE && *place == BESIDE { x.zeros.add(channel) } else { line.add(place + first) };
                for (number, sum) in sums.iter_mut().enumerate() {
                    *sum = S::mul_add(S::load(pixel.wrapping_add(number.wrapping_mul(step))), weight, *sum);
                }
            }
        }
        let out = x.out.add(output * x.out_step + channel);
        for (number, sum) in sums.into_iter().enumerate() {
            S::store(out.add(number * x.out_step), sum);
        }
    }
}

/// Computes a chain.
///
/// # Safety
///
/// As for [`depthwise_sums`].
#[inline(always)]
pub(super) unsafe fn depthwise_gradient<S: Simd>(x: &DepthwiseGradient<'_, S::Elem>) {
    // SAFETY: handed on.
    unsafe {
        let (channels, mut channel) = (x.taps.channels, 0);
        while channel + S::LANES <= channels {
            vector_of_gradient::<S>(x, channel);
            channel += S::LANES;
        }
        if channel + S::Half::LANES <= channels {
            vector_of_gradient::<S::Half>(x, channel);
            channel += S::Half::LANES;
        }
        while channel < channels {
            vector_of_gradient::<Shortest<S>>(x, channel);
            channel += Shortest::<S>::LANES;
        }
    }
}

/// All taps of a vector of channels, some at a time.
#[inline(always)]
unsafe fn vector_of_gradient<S: Simd>(x: &DepthwiseGradient<'_, S::Elem>, channel: usize) {
    let (mut tap, n_taps) = (0, x.taps.weights.len());
    while tap < n_taps {
        // SAFETY: these taps are there.
        unsafe {
            tap += match n_taps - tap {
                9.. => sums_of_taps::<S, 9>(x, channel, tap),
                5.. => sums_of_taps::<S, 5>(x, channel, tap),
                3.. => sums_of_taps::<S, 3>(x, channel, tap),
                _ => sums_of_taps::<S, 1>(x, channel, tap),
            }
        }
    }
}

/// `N` taps of a vector of channels, from `tap` on; returns `N`.
#[inline(always)]
unsafe fn sums_of_taps<S: Simd, const N: usize>(
    x: &DepthwiseGradient<'_, S::Elem>,
    channel: usize,
    tap: usize,
) -> usize {
    let DepthwiseTaps { x: axis, pitch, inside, places, weights, .. } = x.taps;
    let (pitch, lines_of_taps) = (*pitch, weights.len() / axis.taps);
    let step = (axis.stride as usize).wrapping_mul(pitch);
    let (first, sides) = places.split_at(axis.taps);
    // SAFETY: lines, pixels and weights of these taps are there.
    unsafe {
        let mut sums = [S::zero(); N];
        // After the last output it points behind the cotangents.
        let mut ct = x.cts.wrapping_add(channel);
        for lines in x.lines.chunks_exact(lines_of_taps) {
            let mut at = [(x.zeros, 0); N];
            for (number, at) in at.iter_mut().enumerate() {
                *at = (*lines.get_unchecked((tap + number) / axis.taps), (tap + number) % axis.taps);
            }
            for output in 0..inside.start {
                side::<S, N>(x, &mut sums, &sides[output * axis.taps..], &at, ct, channel);
                ct = ct.wrapping_add(pitch);
            }
            let mut pixels = [x.zeros; N];
            for (pixel, (line, column)) in pixels.iter_mut().zip(at) {
                // Only used if there are outputs inside.
                *pixel = line.wrapping_add(first[column].wrapping_add(channel));
            }
            for _ in inside.clone() {
                let part = S::load(ct);
                for (sum, pixel) in sums.iter_mut().zip(&mut pixels) {
                    *sum = S::mul_add(S::load(*pixel), part, *sum);
                    *pixel = pixel.wrapping_add(step);
                }
                ct = ct.wrapping_add(pitch);
            }
            for output in inside.end..axis.outputs {
                let place = inside.start + output - inside.end;
                side::<S, N>(x, &mut sums, &sides[place * axis.taps..], &at, ct, channel);
                ct = ct.wrapping_add(pitch);
            }
        }
        for (sum, weight) in sums.into_iter().zip(weights.get_unchecked(tap..)) {
            let out = x.out.add(weight + channel);
            S::store(out, if x.fresh { sum } else { S::add(S::load(out), sum) });
        }
    }
    N
}

/// Adds the products of an output at the sides, whose taps find their pixels at `places`.
#[inline(always)]
unsafe fn side<S: Simd, const N: usize>(
    x: &DepthwiseGradient<'_, S::Elem>,
    sums: &mut [S::Vector; N],
    places: &[usize],
    at: &[(*const S::Elem, usize); N],
    ct: *const S::Elem,
    channel: usize,
) {
    // SAFETY: these pixels are there, or zeros.
    unsafe {
        let part = S::load(ct);
        for (sum, (line, column)) in sums.iter_mut().zip(at) {
            let place = places[*column];
            let pixel = if place == BESIDE { x.zeros } else { line.add(place) };
            *sum = S::mul_add(S::load(pixel.add(channel)), part, *sum);
        }
    }
}
