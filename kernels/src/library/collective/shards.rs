//! Sums along the binary tree over shards, whose nodes are ranges of shards.

use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Range;

use half::{bf16, f16};

/// Elements that are added at a time, so that partial sums stay in the cache.
const BLOCK: usize = 8 << 10;

/// Shards, all below one node of the tree, and the bytes of their sum. Sources are in the order of their shards.
pub(super) type ShardSum<'a> = (Range<usize>, &'a [u8]);

/// The bytes of the sum of a node, if it is a source.
fn source<'a>(sources: &[ShardSum<'a>], node: &Range<usize>) -> Option<&'a [u8]> {
    let at = sources.binary_search_by_key(&node.start, |(shards, _)| shards.start).ok()?;
    (sources[at].0 == *node).then_some(sources[at].1)
}

/// Where a node of the tree splits, if it is not a leaf.
pub(crate) fn middle(node: &Range<usize>) -> Option<usize> {
    (node.len() > 1).then(|| node.start + node.len().next_power_of_two() / 2)
}

/// The largest nodes below `node` all of whose shards are among those `held`.
pub(crate) fn nodes(node: Range<usize>, held: &Range<usize>) -> Vec<Range<usize>> {
    if held.start <= node.start && node.end <= held.end {
        return vec![node];
    }
    match middle(&node) {
        Some(middle) if node.start < held.end && held.start < node.end => {
            let mut found = nodes(node.start..middle, held);
            found.append(&mut nodes(middle..node.end, held));
            found
        }
        _ => vec![],
    }
}

/// Adds up what lies below a node. `positive` sums have no negative zero, whatever the number of shards.
pub(super) fn add_up<T: Addend>(node: &Range<usize>, sources: &[ShardSum<'_>], out: &mut [u8], positive: bool) {
    let mut scratch = vec![0; scratch_len::<T>(node, sources, out.len())];
    for (at, out) in blocks::<T>(0..out.len()).zip(out.chunks_mut(block::<T>())) {
        add_block::<T>(node, sources, at, out, &mut scratch);
        if positive {
            for x in out.chunks_exact_mut(size_of::<T>()) {
                T::store(T::load(x).plus(T::ZERO), x);
            }
        }
    }
}

/// The bytes that are added at a time.
fn block<T: Addend>() -> usize {
    BLOCK * size_of::<T>()
}

/// The blocks of a range of bytes.
pub(super) fn blocks<T: Addend>(of: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    of.clone().step_by(block::<T>()).map(move |start| start..(start + block::<T>()).min(of.end))
}

/// The bytes that [`add_block`] needs beside the result, whose length is given: as many blocks as sums wait for others.
pub(super) fn scratch_len<T: Addend>(node: &Range<usize>, sources: &[ShardSum<'_>], len: usize) -> usize {
    n_waiting(node, sources) * block::<T>().min(len)
}

fn n_waiting(node: &Range<usize>, sources: &[ShardSum<'_>]) -> usize {
    match middle(node).filter(|_| source(sources, node).is_none()) {
        None => 0,
        Some(middle) => {
            let (left, right) = (node.start..middle, middle..node.end);
            let below = if source(sources, &right).is_some() { 0 } else { 1 + n_waiting(&right, sources) };
            below.max(n_waiting(&left, sources))
        }
    }
}

/// Adds up a block of what lies below a node: the bytes `at` of each source.
pub(super) fn add_block<T: Addend>(
    node: &Range<usize>,
    sources: &[ShardSum<'_>],
    at: Range<usize>,
    out: &mut [u8],
    scratch: &mut [u8],
) {
    if let Some(bytes) = source(sources, node) {
        out.copy_from_slice(&bytes[at]);
        return;
    }
    let middle = middle(node).expect("each leaf of the tree is a source, or below one");
    add_block::<T>(&(node.start..middle), sources, at.clone(), out, scratch);
    let right = middle..node.end;
    match source(sources, &right) {
        Some(bytes) => add::<T>(out, &bytes[at]),
        None => {
            let (other, scratch) = scratch.split_at_mut(out.len());
            add_block::<T>(&right, sources, at, other, scratch);
            add::<T>(out, other);
        }
    }
}

fn add<T: Addend>(sum: &mut [u8], other: &[u8]) {
    for (x, y) in sum.chunks_exact_mut(size_of::<T>()).zip(other.chunks_exact(size_of::<T>())) {
        T::store(T::load(x).plus(T::load(y)), x);
    }
}

/// The arrays of the shards that a worker holds, those of each shard in a row.
pub(super) struct Rows<'a, T> {
    /// The arrays, shard by shard.
    arrays: &'a [&'a [u8]],
    held: Range<usize>,
    /// Where each array of a shard ends in its row, in bytes.
    ends: Vec<usize>,
    /// Whether sums have no negative zero.
    positive: bool,
    element: PhantomData<T>,
}

impl<'a, T: Addend> Rows<'a, T> {
    /// The arrays, of `lens` elements, of the shards that are `held`.
    pub(super) fn new(arrays: &'a [&'a [u8]], held: Range<usize>, lens: &[usize], positive: bool) -> Rows<'a, T> {
        let mut end = 0;
        let end_of = |len: &usize| {
            end += len * size_of::<T>();
            end
        };
        Rows { arrays, held, ends: lens.iter().map(end_of).collect(), positive, element: PhantomData }
    }

    /// The row, if it lies in memory as it is and nothing is to be added.
    pub(super) fn as_it_is(&self) -> Option<&'a [u8]> {
        match self.arrays {
            [array] if !self.positive => Some(array),
            _ => None,
        }
    }

    /// The bytes `at` of the sum of all rows below a node, all of whose shards are held.
    pub(super) fn add_up(&self, node: &Range<usize>, at: Range<usize>, out: &mut [u8]) {
        let mut rest = out;
        let mut start = at.start;
        let first = self.ends.partition_point(|&end| end <= start);
        for (n, &array_end) in self.ends.iter().enumerate().skip(first) {
            if start == at.end {
                break;
            }
            let array_start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
            let end = array_end.min(at.end);
            let (here, others) = rest.split_at_mut(end - start);
            let of_shard = |(shard, arrays): (usize, &[&'a [u8]])| {
                (shard..shard + 1, &arrays[n][start - array_start..end - array_start])
            };
            let shards = self.held.clone().zip(self.arrays.chunks_exact(self.ends.len()));
            let sources: Vec<ShardSum<'_>> = shards.map(of_shard).collect();
            add_up::<T>(node, &sources, here, self.positive);
            (start, rest) = (end, others);
        }
    }
}

/// An element type that is added up. Integers wrap, and those of one size are added by the same bits.
pub(super) trait Addend: Copy {
    const ZERO: Self;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn plus(self, other: Self) -> Self;
}

macro_rules! addends {
    ($($t:ty: $zero:expr, $plus:expr;)*) => {$(
        impl Addend for $t {
            const ZERO: $t = $zero;
            #[inline(always)]
            fn load(bytes: &[u8]) -> $t {
                <$t>::from_ne_bytes(bytes.try_into().expect("as many bytes as an element has"))
            }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                let plus: fn($t, $t) -> $t = $plus;
                plus(self, other)
            }
        }
    )*};
}

addends! {
    f32: 0.0, |x, y| x + y;
    f64: 0.0, |x, y| x + y;
    f16: f16::ZERO, |x, y| x + y;
    bf16: bf16::ZERO, |x, y| x + y;
    u8: 0, u8::wrapping_add;
    u32: 0, u32::wrapping_add;
    u64: 0, u64::wrapping_add;
}
