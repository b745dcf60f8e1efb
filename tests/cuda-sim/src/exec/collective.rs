//! Instructions in which the lanes of a warp exchange values. All lanes named must be there, and no others.

use super::warp::Warp;
use crate::fault::{Stop, stop};
use crate::kernel::{Packing, Redux, Shuffle, ShuffleMode, Vote};
use crate::lanes::{LANES, lanes, put};

impl Warp {
    /// Checks that the mask of members is what runs the instruction; returns it.
    pub(super) fn check_members(&self, members: u16, active: u32, name: &str) -> Result<u32, Stop> {
        let masks = &self.regs.narrow[usize::from(members)];
        for lane in lanes(active) {
            if masks[lane] >> lane & 1 == 0 {
                return stop(format!("{name}: lane {lane} runs it but is not in its mask {:#010x}", masks[lane]));
            }
        }
        let mask = self.uniform(members, active, "mask of lanes")?;
        let absent = mask & !active & self.all_lanes();
        if absent != 0 {
            let lane = absent.trailing_zeros();
            let why = if self.alive >> lane & 1 == 0 { "has left" } else { "is elsewhere" };
            return stop(format!("{name}: lane {lane} is in the mask {mask:#010x} but {why}"));
        }
        Ok(mask)
    }

    pub(super) fn shuffle(&mut self, shuffle: &Shuffle, active: u32) -> Result<(), Stop> {
        self.check_members(shuffle.members, active, "shfl.sync")?;
        let from = self.regs.narrow[usize::from(shuffle.a)];
        let (by, control) = (&self.regs.narrow[usize::from(shuffle.b)], &self.regs.narrow[usize::from(shuffle.c)]);
        let (mut out, mut in_range) = ([0; LANES], 0);
        for lane in lanes(active) {
            let (own, by) = (lane as u32, by[lane] & 31);
            let (segment, clamp) = (control[lane] >> 8 & 31, control[lane] & 31);
            let (last, first) = (own & segment | clamp & !segment, own & segment);
            let (source, is_in) = match shuffle.mode {
                ShuffleMode::Up => (own.wrapping_sub(by), own as i32 - by as i32 >= last as i32),
                ShuffleMode::Down => (own + by, own + by <= last),
                ShuffleMode::Butterfly => (own ^ by, own ^ by <= last),
                ShuffleMode::Index => (first | by & !segment, first | by & !segment <= last),
            };
            let source = if is_in { source as usize } else { lane };
            if active >> source & 1 == 0 {
                return stop(format!("shfl.sync: lane {lane} reads from lane {source}, which does not take part"));
            }
            out[lane] = from[source];
            in_range |= u32::from(is_in) << lane;
        }
        put(&mut self.regs, shuffle.d, active, &out);
        if let Some(pred) = shuffle.pred {
            self.set_pred(pred, active, in_range);
        }
        Ok(())
    }

    fn set_pred(&mut self, index: u16, active: u32, value: u32) {
        let to = &mut self.regs.preds[usize::from(index)];
        *to = *to & !active | value & active;
    }

    pub(super) fn vote(
        &mut self,
        mode: Vote,
        d: u16,
        pred: u16,
        negated: bool,
        members: u16,
        active: u32,
    ) -> Result<(), Stop> {
        self.check_members(members, active, "vote.sync")?;
        let value = self.regs.preds[usize::from(pred)];
        let holds = active & if negated { !value } else { value };
        let spread = |is: bool| if is { u32::MAX } else { 0 };
        match mode {
            Vote::All => self.set_pred(d, active, spread(holds == active)),
            Vote::Any => self.set_pred(d, active, spread(holds != 0)),
            Vote::Uniform => self.set_pred(d, active, spread(holds == 0 || holds == active)),
            Vote::Ballot => put(&mut self.regs, d, active, &[holds; LANES]),
        }
        Ok(())
    }

    /// `match.any` and `match.all`; the registers are those of the mask, the predicate, the value and the members.
    pub(super) fn matching(&mut self, all: bool, wide: bool, regs: [u16; 4], active: u32) -> Result<(), Stop> {
        let [d, d2, a, members] = regs;
        self.check_members(members, active, "match.sync")?;
        let values: [u64; LANES] = match wide {
            true => self.regs.wide[usize::from(a)],
            false => self.regs.narrow[usize::from(a)].map(u64::from),
        };
        let like =
            |lane: usize| lanes(active).filter(|other| values[*other] == values[lane]).fold(0, |m, n| m | 1 << n);
        if all {
            let is_same = like(active.trailing_zeros() as usize) == active;
            put(&mut self.regs, d, active, &[if is_same { active } else { 0 }; LANES]);
            self.set_pred(d2, active, if is_same { u32::MAX } else { 0 });
        } else {
            let out: [u32; LANES] = std::array::from_fn(like);
            put(&mut self.regs, d, active, &out);
        }
        Ok(())
    }

    pub(super) fn redux(&mut self, op: Redux, d: u16, a: u16, members: u16, active: u32) -> Result<(), Stop> {
        self.check_members(members, active, "redux.sync")?;
        let values = &self.regs.narrow[usize::from(a)];
        let combine = |x: u32, y: u32| match op {
            Redux::Add => x.wrapping_add(y),
            Redux::MinU => x.min(y),
            Redux::MaxU => x.max(y),
            Redux::MinS => (x as i32).min(y as i32) as u32,
            Redux::MaxS => (x as i32).max(y as i32) as u32,
            Redux::And => x & y,
            Redux::Or => x | y,
            Redux::Xor => x ^ y,
        };
        let value = lanes(active).map(|lane| values[lane]).reduce(combine).unwrap_or(0);
        put(&mut self.regs, d, active, &[value; LANES]);
        Ok(())
    }

    pub(super) fn elect(&mut self, d: u16, pred: u16, members: u16, active: u32) -> Result<(), Stop> {
        let mask = self.check_members(members, active, "elect.sync")?;
        let leader = mask.trailing_zeros();
        put(&mut self.regs, d, active, &[leader; LANES]);
        self.set_pred(pred, active, 1_u32.wrapping_shl(leader));
        Ok(())
    }

    pub(super) fn pack(&mut self, packing: &Packing, active: u32) {
        let mut out = [0_u64; LANES];
        for (n, part) in packing.parts.iter().enumerate() {
            let values = &self.regs.narrow[usize::from(*part)];
            for lane in 0..LANES {
                out[lane] |= u64::from(values[lane]) << (n as u32 * packing.bits);
            }
        }
        if packing.wide {
            put(&mut self.regs, packing.whole, active, &out);
        } else {
            put(&mut self.regs, packing.whole, active, &out.map(|bits| bits as u32));
        }
    }

    pub(super) fn unpack(&mut self, packing: &Packing, active: u32) {
        let whole: [u64; LANES] = match packing.wide {
            true => self.regs.wide[usize::from(packing.whole)],
            false => self.regs.narrow[usize::from(packing.whole)].map(u64::from),
        };
        let mask = if packing.bits == 32 { u32::MAX } else { (1 << packing.bits) - 1 };
        for (n, part) in packing.parts.iter().enumerate() {
            let out = whole.map(|bits| (bits >> (n as u32 * packing.bits)) as u32 & mask);
            put(&mut self.regs, *part, active, &out);
        }
    }
}
