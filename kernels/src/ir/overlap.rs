//! Whether affine maps can reach the same element twice.
//!
//! Both tests are sufficient ones: they may call an exotic harmless map harmful, never the other way round.

/// One axis that an access runs over.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessAxis {
    /// The distance between neighbours.
    pub(super) stride: i64,
    /// The number of points.
    pub(super) extent: usize,
}

/// Whether all points have different positions: with axes sorted by stride, each steps over all the smaller ones.
pub(super) fn injective(terms: &[AccessAxis]) -> bool {
    if terms.iter().any(|t| t.extent == 0) {
        return true;
    }
    let mut steps: Vec<(u128, u128)> = terms
        .iter()
        .filter(|t| t.extent > 1)
        .map(|t| (u128::from(t.stride.unsigned_abs()), t.extent as u128 - 1))
        .collect();
    steps.sort_unstable();
    let mut span = 1_u128;
    for (stride, last) in steps {
        if stride < span {
            return false;
        }
        // Below 2^64 * 2^63 each, and far fewer than 2 of that size pass the bounds check before.
        span = span.saturating_add(stride * last);
    }
    true
}

/// Values of `stride * delta` for a `delta` in a range.
struct Multiples {
    stride: i128,
    low: i128,
    high: i128,
}

/// Whether a point of `x` and a point of `y` may have the same position, where the offset of `x` is `distance` more
/// than that of `y`.
///
/// Seeks a zero of `distance + sum(x.stride * i) - sum(y.stride * j)`. Equal strides merge into one range of `i - j`,
/// after which interleaved and adjacent blocks, as of concatenations, leave one or two candidates per stride.
pub(super) fn may_meet(x: &[AccessAxis], y: &[AccessAxis], distance: i64) -> bool {
    if x.iter().chain(y).any(|t| t.extent == 0) {
        return false;
    }
    let mut steps: Vec<Multiples> = Vec::new();
    for (term, sign) in x.iter().map(|t| (t, 1)).chain(y.iter().map(|t| (t, -1))) {
        let stride = i128::from(term.stride) * sign;
        let last = term.extent as i128 - 1;
        if stride == 0 || last == 0 {
            continue;
        }
        let (low, high) = if stride > 0 { (0, last) } else { (-last, 0) };
        match steps.iter_mut().find(|s| s.stride == stride.abs()) {
            Some(s) => {
                s.low += low;
                s.high += high;
            }
            None => steps.push(Multiples { stride: stride.abs(), low, high }),
        }
    }
    steps.sort_unstable_by_key(|s| std::cmp::Reverse(s.stride));
    let mut budget = 10_000;
    reaches(&steps, -i128::from(distance), &mut budget)
}

/// Whether some choice of deltas sums to `goal`; says yes when the budget of visited choices is spent.
fn reaches(steps: &[Multiples], goal: i128, budget: &mut u32) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return goal == 0;
    };
    let low: i128 = rest.iter().map(|s| s.stride * s.low).sum();
    let high: i128 = rest.iter().map(|s| s.stride * s.high).sum();
    // The rest reaches low..=high, so that stride * delta must lie in goal - high ..= goal - low.
    let first = step.low.max(-(high - goal).div_euclid(step.stride));
    let last = step.high.min((goal - low).div_euclid(step.stride));
    let mut delta = first;
    while delta <= last {
        if *budget == 0 {
            return true;
        }
        *budget -= 1;
        if reaches(rest, goal - step.stride * delta, budget) {
            return true;
        }
        delta += 1;
    }
    false
}
