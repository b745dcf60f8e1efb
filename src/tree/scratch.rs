//! Lists that a call collects and throws away, without asking the allocator each time.
//!
//! Short lists lie in themselves. Long ones take memory that an earlier list of the same thread has left: what a
//! general allocator does for blocks of kilobytes, it does under a lock that threads may share, and it tidies up small
//! blocks first, which for calls with many leaves costs more than the rest of the call.

use std::fmt;
use std::ops::Deref;

use retape_runtime::IdleLists;
use smallvec::SmallVec;

use crate::tensor::Tensor;

const N_WORDS: usize = 64;
const N_TENSORS: usize = 16;

thread_local! {
    static IDLE: IdleLists<u64> = const { IdleLists::new() };
}

/// An empty list with memory of at least some elements.
#[cold]
fn take() -> Vec<u64> {
    IdleLists::take(&IDLE, 4 * N_WORDS)
}

/// Keeps the memory of a list.
#[cold]
fn leave(list: Vec<u64>) {
    IdleLists::leave(&IDLE, list);
}

/// The memory of one list for another whose elements have the same size: the standard library collects in place.
fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Words of structure and static values.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Words(SmallVec<[u64; N_WORDS]>);

impl Words {
    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        self.make_room(1);
        self.0.push(word);
    }

    #[inline]
    pub(crate) fn extend(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        self.make_room(words.len());
        self.0.extend(words);
    }

    /// The words, for good.
    pub(crate) fn into_kept(mut self) -> SmallVec<[u64; N_WORDS]> {
        match self.0.spilled() {
            // Kept words take no more memory than they need.
            true => SmallVec::from_vec(self.to_vec()),
            false => std::mem::take(&mut self.0),
        }
    }

    #[inline]
    fn make_room(&mut self, n: usize) {
        if self.0.len() + n > N_WORDS && !self.0.spilled() {
            let mut list = take();
            list.extend_from_slice(&self.0);
            self.0 = SmallVec::from_vec(list);
        }
    }
}

impl FromIterator<u64> for Words {
    fn from_iter<I: IntoIterator<Item = u64>>(words: I) -> Words {
        let mut all = Words::default();
        words.into_iter().for_each(|word| all.push(word));
        all
    }
}

impl Drop for Words {
    #[inline]
    fn drop(&mut self) {
        if self.0.spilled() {
            leave(std::mem::take(&mut self.0).into_vec());
        }
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The tensors of a tree, which keeps them.
#[derive(Default)]
pub(crate) struct TensorList<'t>(SmallVec<[&'t Tensor; N_TENSORS]>);

impl<'t> TensorList<'t> {
    #[inline]
    pub(crate) fn push(&mut self, tensor: &'t Tensor) {
        if self.0.len() == N_TENSORS && !self.0.spilled() {
            self.spill();
        }
        self.0.push(tensor);
    }

    #[cold]
    fn spill(&mut self) {
        let mut list: Vec<&'t Tensor> = emptied(take());
        list.extend_from_slice(&self.0);
        self.0 = SmallVec::from_vec(list);
    }
}

impl Drop for TensorList<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.spilled() {
            leave(emptied(std::mem::take(&mut self.0).into_vec()));
        }
    }
}

impl<'t> Deref for TensorList<'t> {
    type Target = [&'t Tensor];

    #[inline]
    fn deref(&self) -> &[&'t Tensor] {
        &self.0
    }
}

impl fmt::Debug for TensorList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_hold_what_was_pushed_and_leave_their_memory() {
        let tensors: Vec<Tensor> = (0..100).map(|n| Tensor::from(n as f32)).collect();
        let mut memory = vec![];
        for _ in 0..3 {
            let (mut words, mut list) = (Words::default(), TensorList::default());
            for (n, tensor) in tensors.iter().enumerate() {
                words.push(n as u64);
                words.extend([7; 3].into_iter());
                list.push(tensor);
            }
            assert!(words.chunks(4).enumerate().all(|(n, chunk)| *chunk == [n as u64, 7, 7, 7]));
            assert!(list.iter().zip(&tensors).all(|(a, b)| std::ptr::eq(*a, b)));
            assert_eq!(words.clone().into_kept().to_vec(), words.to_vec());
            let mut addresses = [words.as_ptr() as usize, list.as_ptr() as usize];
            addresses.sort();
            memory.push(addresses);
        }
        assert_eq!(memory[1], memory[2], "the second round and the third use the same memory");
    }
}
