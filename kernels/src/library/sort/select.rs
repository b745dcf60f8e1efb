//! The first elements of a line, by a bound that groups of its elements give.
//!
//! Each group's least element is one of the line, so that as many elements as there are groups are no greater than the
//! greatest of these. Elements that are looked at again are few where groups have similar elements; where they have not,
//! they are all of the line at most.

use super::Sortable;

/// Elements of a group at least. In random lines of many, twice as many groups as elements are kept leave half as many
/// again to look at.
const GROUP: usize = 4;

/// The shortest lines whose elements are compared with a bound.
const LONG: usize = if cfg!(test) { 100 } else { 192 };

/// Elements that are compared with the bound before any is taken.
const COMPARED: usize = 16;

/// Memory for the lines of a task.
pub(super) struct FirstOfLine<T: Sortable> {
    keys: Vec<T::Key>,
    /// The least key of each group.
    least: Vec<T::Key>,
    entries: Vec<T::Entry>,
}

/// The groups of a line of which so many elements are kept.
fn n_groups(kept: usize) -> usize {
    kept.saturating_mul(2).max(COMPARED)
}

/// Whether lines of so many elements have groups.
pub(super) fn has_groups(len: usize, kept: usize) -> bool {
    kept > 0 && len / GROUP >= n_groups(kept)
}

/// Whether groups of such lines, one after the other, take less time than networks over many of them.
pub(super) fn has_bound(len: usize, kept: usize) -> bool {
    has_groups(len, kept) && len >= LONG
}

impl<T: Sortable> FirstOfLine<T> {
    /// For lines of which so many elements are kept.
    pub(super) fn new(kept: usize) -> FirstOfLine<T> {
        FirstOfLine { keys: vec![], least: vec![T::LAST; n_groups(kept)], entries: vec![] }
    }

    /// The entries of the `kept` first elements of a line, or of all if there are fewer, in order. Its positions begin with
    /// `start`.
    #[inline(always)]
    pub(super) fn of(&mut self, line: &[T], start: u32, kept: usize, descending: bool) -> &[T::Entry] {
        self.keys.clear();
        self.keys.extend(line.iter().map(
            #[inline(always)]
            |x| x.key(descending),
        ));
        let bound = if has_groups(line.len(), kept) {
            self.least.fill(T::LAST);
            for keys in self.keys.chunks(self.least.len()) {
                for (least, &key) in self.least.iter_mut().zip(keys) {
                    *least = key.min(*least);
                }
            }
            *self.least.select_nth_unstable(kept - 1).1
        } else {
            T::LAST
        };
        let n = self.take(bound, start);
        let (entries, kept) = (&mut self.entries[..n], kept.min(n));
        if kept < n {
            entries.select_nth_unstable(kept);
        }
        entries[..kept].sort_unstable();
        &entries[..kept]
    }

    /// Makes entries of all keys up to `bound`; returns their number.
    #[inline(always)]
    fn take(&mut self, bound: T::Key, start: u32) -> usize {
        // One more than are taken is written.
        if self.entries.len() <= self.keys.len() {
            self.entries.resize(self.keys.len() + 1, T::join(T::LAST, 0));
        }
        let mut n = 0;
        let mut start = start;
        for run in self.keys.chunks(COMPARED) {
            let mut is_any = false;
            for key in run {
                is_any |= *key <= bound;
            }
            if is_any {
                for (&key, position) in run.iter().zip(start..) {
                    self.entries[n] = T::join(key, position);
                    n += usize::from(key <= bound);
                }
            }
            start = start.wrapping_add(COMPARED as u32);
        }
        n
    }
}
