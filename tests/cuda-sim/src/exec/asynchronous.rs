//! `cp.async`: bytes are taken at once and land only when the lane waits for their group.

use std::collections::VecDeque;

use super::Env;
use super::access::{check_aligned, in_lane, visitor};
use super::warp::Warp;
use crate::check::Touch;
use crate::fault::{Stop, stop};
use crate::kernel::AsyncCopy;
use crate::lanes::{LANES, lanes};

/// A copy under way.
struct Copy {
    group: u32,
    to: u64,
    len: u8,
    bytes: [u8; 16],
}

/// The copies of each lane, oldest first, and how many groups it has committed.
#[derive(Default)]
pub(super) struct Copies {
    pending: [VecDeque<Copy>; LANES],
    committed: [u32; LANES],
}

impl Copies {
    pub(super) fn clear(&mut self) {
        self.pending.iter_mut().for_each(VecDeque::clear);
        self.committed = [0; LANES];
    }

    pub(super) fn commit(&mut self, active: u32) {
        for lane in lanes(active) {
            self.committed[lane] += 1;
        }
    }

    /// Lands all groups but the last so many.
    pub(super) fn wait(&mut self, env: &mut Env<'_>, active: u32, groups: u32) {
        for lane in lanes(active) {
            self.land(env, lane, self.committed[lane].saturating_sub(groups));
        }
    }

    /// Lands everything, committed or not.
    pub(super) fn wait_all(&mut self, env: &mut Env<'_>, active: u32) {
        for lane in lanes(active) {
            self.land(env, lane, u32::MAX);
        }
    }

    fn land(&mut self, env: &mut Env<'_>, lane: usize, last: u32) {
        while let Some(copy) = self.pending[lane].pop_front_if(|copy| copy.group <= last) {
            env.shared.land(copy.to, &copy.bytes[..usize::from(copy.len)]);
        }
    }
}

impl Warp {
    pub(super) fn async_copy(&mut self, env: &mut Env<'_>, copy: &AsyncCopy, active: u32) -> Result<(), Stop> {
        let size = usize::from(copy.size);
        for lane in lanes(active) {
            let (to, from) = (self.address(copy.to, lane), self.address(copy.from, lane));
            check_aligned(to, size, lane)?;
            check_aligned(from, size, lane)?;
            let is_ignored = copy
                .ignore
                .is_some_and(|(pred, negated)| (self.regs.preds[usize::from(pred)] >> lane & 1 == 1) != negated);
            let len = match copy.source_size {
                _ if is_ignored => 0,
                Some(index) => self.regs.narrow[usize::from(index)][lane] as usize,
                None => size,
            };
            if len > size {
                return stop(format!("cp.async of {size} bytes from {len} (lane {lane})"));
            }
            let mut bytes = [0; 16];
            if len > 0 {
                let found = env
                    .global
                    .access(from, len, Touch::Read, visitor(env.owner, env.shared, self.index))
                    .map_err(|what| in_lane(what, lane))?;
                bytes[..len].copy_from_slice(found);
                env.counts.global_loaded += len as u64;
            }
            env.shared.begin_copy(to, size, self.index, lane).map_err(|what| in_lane(what, lane))?;
            let group = self.copies.committed[lane] + 1;
            self.copies.pending[lane].push_back(Copy { group, to, len: copy.size, bytes });
        }
        Ok(())
    }
}
