//! Memory for intermediate values: one arena, whose bytes are reused when a value dies.
//!
//! Values are placed in the order of the steps. A value takes the smallest free gap that holds it, and its bytes
//! become free after the last step that reads it. A step's result may take the very bytes of a value that it reads
//! for the last time, if it reads each element just where it writes it.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::Graph;
use crate::types::{ValueId, ValueTable};

/// Slots begin at multiples of this many bytes: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// A span of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    offset: usize,
    len: usize,
}

impl Span {
    fn end(&self) -> usize {
        self.offset.saturating_add(self.len)
    }
}

/// Hands out and takes back spans of an arena that grows as needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// The lengths of free spans below the end by their offsets, never adjacent. There may be as many as values.
    by_offset: BTreeMap<usize, usize>,
    /// The same spans, each as its length and its offset.
    by_len: BTreeSet<(usize, usize)>,
    end: usize,
    /// The bytes of all values that were ever placed.
    placed: usize,
    held: ValueTable<Span>,
}

impl Slots {
    /// The bytes of the arena so far.
    pub(super) fn n_bytes(&self) -> usize {
        self.end
    }

    /// The bytes of an arena in which no two values share any.
    pub(super) fn n_unshared_bytes(&self) -> usize {
        self.placed
    }

    /// Counts a value that lies in the bytes of another one.
    pub(super) fn count_shared(&mut self, n_bytes: usize) {
        self.placed = self.placed.saturating_add(n_bytes.next_multiple_of(ALIGNMENT));
    }

    /// Where a value lies.
    pub(super) fn offset(&self, value: ValueId) -> Option<usize> {
        self.held.get(value).map(|span| span.offset)
    }

    /// Places a value.
    pub(super) fn take(&mut self, value: ValueId, n_bytes: usize) {
        let len = n_bytes.next_multiple_of(ALIGNMENT);
        self.placed = self.placed.saturating_add(len);
        let span = match self.by_len.range((len, 0)..).next().copied() {
            Some((gap, offset)) => {
                self.close(Span { offset, len: gap });
                self.open(Span { offset: offset.saturating_add(len), len: gap - len });
                Span { offset, len }
            }
            None => self.extend(len),
        };
        self.held.insert(value, span);
    }

    /// Adds to the end, beginning in the free span that lies there, if one does.
    fn extend(&mut self, len: usize) -> Span {
        let last = self.by_offset.last_key_value().map(|(&offset, &len)| Span { offset, len });
        let offset = match last.filter(|last| last.end() == self.end) {
            Some(last) => {
                self.close(last);
                last.offset
            }
            None => self.end,
        };
        // An arena that cannot be counted is as large as can be, and is refused.
        self.end = offset.saturating_add(len);
        Span { offset, len }
    }

    /// Gives the bytes of a dead value to a new one of no more bytes. Returns whether it could.
    pub(super) fn hand_over(&mut self, from: ValueId, to: ValueId, n_bytes: usize) -> bool {
        let len = n_bytes.next_multiple_of(ALIGNMENT);
        match self.held.get(from).copied() {
            Some(span) if span.len == len => {
                self.held.remove(from);
                self.held.insert(to, span);
                self.placed = self.placed.saturating_add(len);
                true
            }
            _ => false,
        }
    }

    /// Frees the bytes of a value, if it has any.
    pub(super) fn free(&mut self, value: ValueId) {
        let Some(span) = self.held.remove(value) else { return };
        if span.len == 0 {
            return;
        }
        let span_of = |(&offset, &len): (&usize, &usize)| Span { offset, len };
        let before =
            self.by_offset.range(..span.offset).next_back().map(span_of).filter(|before| before.end() == span.offset);
        let after = self.by_offset.range(span.offset..).next().map(span_of).filter(|after| span.end() == after.offset);
        let mut gap = span;
        if let Some(before) = before {
            self.close(before);
            gap = Span { offset: before.offset, len: before.len.saturating_add(gap.len) };
        }
        if let Some(after) = after {
            self.close(after);
            gap.len = gap.len.saturating_add(after.len);
        }
        self.open(gap);
    }

    /// Adds a free span, if it is one.
    fn open(&mut self, gap: Span) {
        if gap.len > 0 {
            self.by_offset.insert(gap.offset, gap.len);
            self.by_len.insert((gap.len, gap.offset));
        }
    }

    /// Takes a free span.
    fn close(&mut self, gap: Span) {
        self.by_offset.remove(&gap.offset);
        self.by_len.remove(&(gap.len, gap.offset));
    }
}

/// The bytes of a value.
pub(super) fn n_bytes(graph: &Graph, value: ValueId) -> usize {
    graph.ty(value).n_elements() * graph.ty(value).dtype.size()
}

/// Whether each of some values but the first begins at a cache line where the one before ends.
pub(super) fn begin_lines(graph: &Graph, values: &[ValueId]) -> bool {
    let is_aligned = |&value: &ValueId| n_bytes(graph, value).is_multiple_of(ALIGNMENT);
    values.split_last().is_none_or(|(_, before)| before.iter().all(is_aligned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_bytes_are_used_again_and_joined() {
        let mut slots = Slots::default();
        let [a, b, c, d] = [0, 1, 2, 3].map(ValueId);
        slots.take(a, 64);
        slots.take(b, 100);
        slots.free(a);
        slots.free(b);
        slots.take(c, 192);
        assert_eq!((slots.offset(c), slots.n_bytes()), (Some(0), 192));
        assert!(slots.hand_over(c, d, 180));
        assert_eq!((slots.offset(c), slots.offset(d)), (None, Some(0)));
        assert_eq!(slots.n_unshared_bytes(), 64 + 128 + 192 + 192);
    }

    #[test]
    fn the_smallest_gap_is_taken() {
        let mut slots = Slots::default();
        let ids = [0, 1, 2, 3, 4].map(ValueId);
        for (id, bytes) in ids.iter().zip([256, 64, 64, 64, 64]) {
            slots.take(*id, bytes);
        }
        slots.free(ids[0]);
        slots.free(ids[2]);
        slots.take(ValueId(9), 10);
        assert_eq!(slots.offset(ValueId(9)), Some(320));
    }

    /// The free spans as a list that is searched, one after the other.
    #[derive(Default)]
    struct Listed {
        free: Vec<Span>,
        end: usize,
    }

    impl Listed {
        fn take(&mut self, len: usize) -> Span {
            let gaps = self.free.iter().enumerate().filter(|(_, gap)| gap.len >= len);
            let found = gaps.min_by_key(|(_, gap)| (gap.len, gap.offset)).map(|(index, _)| index);
            let offset = match found {
                Some(index) => {
                    let gap = &mut self.free[index];
                    gap.offset += len;
                    gap.len -= len;
                    gap.offset - len
                }
                None => {
                    let last = self.free.pop_if(|last| last.end() == self.end);
                    let offset = last.map_or(self.end, |last| last.offset);
                    self.end = offset + len;
                    offset
                }
            };
            self.free.retain(|gap| gap.len > 0);
            Span { offset, len }
        }

        fn give(&mut self, span: Span) {
            self.free.push(span);
            self.free.retain(|gap| gap.len > 0);
            self.free.sort_by_key(|gap| gap.offset);
            let mut joined: Vec<Span> = vec![];
            for gap in self.free.drain(..) {
                match joined.last_mut().filter(|last| last.end() == gap.offset) {
                    Some(last) => last.len += gap.len,
                    None => joined.push(gap),
                }
            }
            self.free = joined;
        }
    }

    #[test]
    fn spans_are_those_that_a_list_gives() {
        let mut state = 5_u64;
        let mut draw = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..40 {
            let (mut slots, mut listed) = (Slots::default(), Listed::default());
            let mut held: Vec<(ValueId, Span)> = vec![];
            for n in 0..300 {
                if draw(5) < 3 {
                    let (id, bytes) = (ValueId(n), [0, 1, 64, 65, 300, 1000, 5000][draw(7)]);
                    slots.take(id, bytes);
                    let span = listed.take(bytes.next_multiple_of(ALIGNMENT));
                    assert_eq!(slots.offset(id), Some(span.offset));
                    held.push((id, span));
                } else if !held.is_empty() {
                    let (id, span) = held.swap_remove(draw(held.len()));
                    slots.free(id);
                    listed.give(span);
                }
                let free = slots.by_offset.iter().map(|(&offset, &len)| Span { offset, len });
                assert!(free.eq(listed.free.iter().copied()) && slots.n_bytes() == listed.end);
                assert!(slots.by_len.iter().all(|(len, offset)| slots.by_offset.get(offset) == Some(len)));
                assert_eq!(slots.by_len.len(), slots.by_offset.len());
            }
        }
    }

    #[test]
    fn empty_values_take_no_room() {
        let mut slots = Slots::default();
        slots.take(ValueId(0), 0);
        slots.take(ValueId(1), 8);
        slots.free(ValueId(0));
        assert_eq!(slots.n_bytes(), 64);
    }
}
