//! Loads and stores of a warp, lane by lane in ascending order.

use super::Env;
use super::warp::Warp;
use crate::check::{Owner, Touch, Visitor};
use crate::fault::{Stop, stop};
use crate::kernel::{Access, Address, Base, LOCAL_WINDOW, SHARED_WINDOW, Space};
use crate::lanes::{LANES, lanes, put};
use crate::shared::Shared;

/// Bytes of the greatest access of one lane.
const MAX_ACCESS: usize = 32;

impl Warp {
    /// The address of a lane.
    #[inline(always)]
    pub(super) fn address(&self, address: Address, lane: usize) -> u64 {
        let base = match address.base {
            Base::None => 0,
            Base::Narrow(index) => u64::from(self.regs.narrow[usize::from(index)][lane]),
            Base::Wide(index) => self.regs.wide[usize::from(index)][lane],
        };
        base.wrapping_add_signed(address.offset)
    }

    /// Space and address within it; generic addresses say themselves where they lead.
    #[inline(always)]
    pub(super) fn resolve(&self, space: Space, address: Address, lane: usize) -> (Space, u64) {
        let at = self.address(address, lane);
        match space {
            Space::Generic if at >= LOCAL_WINDOW => (Space::Local, at - LOCAL_WINDOW),
            Space::Generic if at >= SHARED_WINDOW => (Space::Shared, at - SHARED_WINDOW),
            Space::Generic => (Space::Global, at),
            space => (space, at),
        }
    }

    /// Writes an element that was loaded into the register of a lane.
    #[inline(always)]
    fn set_element(&mut self, access: &Access, n: usize, lane: usize, bytes: &[u8]) {
        let bits = from_bytes(bytes);
        let index = usize::from(access.regs[n]);
        if access.reg_size == 8 {
            self.regs.wide[index][lane] = if access.signed { sign_extend(bits, access.size) } else { bits };
        } else {
            let bits = if access.signed { sign_extend(bits, access.size) } else { bits };
            let mask = if access.reg_size == 4 { u32::MAX } else { (1 << (8 * u32::from(access.reg_size))) - 1 };
            self.regs.narrow[index][lane] = bits as u32 & mask;
        }
    }

    /// The addresses of all lanes; those of inactive ones mean nothing.
    #[inline(always)]
    fn addresses(&self, address: Address) -> [u64; LANES] {
        match address.base {
            Base::None => [address.offset as u64; LANES],
            Base::Narrow(index) => {
                self.regs.narrow[usize::from(index)].map(|base| u64::from(base).wrapping_add_signed(address.offset))
            }
            Base::Wide(index) => {
                self.regs.wide[usize::from(index)].map(|base| base.wrapping_add_signed(address.offset))
            }
        }
    }

    pub(super) fn load(&mut self, env: &mut Env<'_>, access: &Access, active: u32) -> Result<(), Stop> {
        let is_plain = access.size == 4 && access.reg_size == 4 && !access.strong;
        match (access.space, access.count) {
            (Space::Global | Space::Shared, 1) if is_plain => self.load_words::<1>(env, access, active),
            (Space::Global | Space::Shared, 2) if is_plain => self.load_words::<2>(env, access, active),
            (Space::Global | Space::Shared, 4) if is_plain => self.load_words::<4>(env, access, active),
            _ => self.load_any(env, access, active),
        }
    }

    /// Loads `N` words into registers of 32 bits, from global or shared memory.
    fn load_words<const N: usize>(&mut self, env: &mut Env<'_>, access: &Access, active: u32) -> Result<(), Stop> {
        let addresses = self.addresses(access.address);
        let is_global = access.space == Space::Global;
        if is_global {
            env.counts.global_loaded += (4 * N) as u64 * u64::from(active.count_ones());
        }
        for lane in lanes(active) {
            let at = addresses[lane];
            check_aligned(at, 4 * N, lane)?;
            let found = match (is_global, access.constant) {
                (true, false) => env
                    .global
                    .access(at, 4 * N, Touch::Read, visitor(env.owner, env.shared, self.index))
                    .map(|bytes| &*bytes),
                (true, true) => env
                    .global
                    .access(at, 4 * N, Touch::ConstantRead, visitor(env.owner, env.shared, self.index))
                    .map(|bytes| &*bytes),
                (false, _) => env.shared.read(at, 4 * N, self.index, lane),
            };
            let bytes = found.map_err(|what| in_lane(what, lane))?;
            for (reg, word) in access.regs[..N].iter().zip(bytes.as_chunks::<4>().0) {
                self.regs.narrow[usize::from(*reg)][lane] = u32::from_le_bytes(*word);
            }
        }
        Ok(())
    }

    /// Loads of all other kinds.
    fn load_any(&mut self, env: &mut Env<'_>, access: &Access, active: u32) -> Result<(), Stop> {
        let len = usize::from(access.size) * usize::from(access.count);
        let touch = match (access.strong, access.constant) {
            (true, _) => Touch::StrongRead,
            (false, true) => Touch::ConstantRead,
            (false, false) => Touch::Read,
        };
        for lane in lanes(active) {
            let (space, at) = self.resolve(access.space, access.address, lane);
            check_aligned(at, len, lane)?;
            let found = match space {
                Space::Global | Space::Generic => {
                    env.counts.global_loaded += len as u64;
                    env.global.access(at, len, touch, visitor(env.owner, env.shared, self.index)).map(|bytes| &*bytes)
                }
                Space::Shared => env.shared.read(at, len, self.index, lane),
                Space::Local => {
                    let bytes = self.local_bytes(env, at, len, lane)?;
                    self.set_elements(access, lane, &bytes);
                    continue;
                }
            };
            match found {
                Ok(bytes) => self.set_elements(access, lane, bytes),
                Err(what) => return Err(in_lane(what, lane)),
            }
        }
        Ok(())
    }

    /// Writes what a lane loaded into its registers.
    #[inline(always)]
    fn set_elements(&mut self, access: &Access, lane: usize, bytes: &[u8]) {
        for (n, bytes) in bytes.chunks_exact(usize::from(access.size)).enumerate() {
            self.set_element(access, n, lane, bytes);
        }
    }

    pub(super) fn store(&mut self, env: &mut Env<'_>, access: &Access, active: u32) -> Result<(), Stop> {
        let is_plain = access.size == 4 && access.reg_size != 8 && !access.strong;
        match (access.space, access.count) {
            (Space::Global | Space::Shared, 1) if is_plain => self.store_words::<1>(env, access, active),
            (Space::Global | Space::Shared, 2) if is_plain => self.store_words::<2>(env, access, active),
            (Space::Global | Space::Shared, 4) if is_plain => self.store_words::<4>(env, access, active),
            _ => self.store_any(env, access, active),
        }
    }

    /// Stores `N` registers of 32 bits to global or shared memory.
    fn store_words<const N: usize>(&mut self, env: &mut Env<'_>, access: &Access, active: u32) -> Result<(), Stop> {
        let addresses = self.addresses(access.address);
        let (mut last_end, mut ascends) = (0, true);
        let is_global = access.space == Space::Global;
        if is_global {
            env.counts.global_stored += (4 * N) as u64 * u64::from(active.count_ones());
        }
        for lane in lanes(active) {
            let at = addresses[lane];
            check_aligned(at, 4 * N, lane)?;
            ascends &= at >= last_end;
            last_end = at.saturating_add((4 * N) as u64);
            let mut words = [[0; 4]; N];
            for (word, reg) in words.iter_mut().zip(&access.regs[..N]) {
                *word = self.regs.narrow[usize::from(*reg)][lane].to_le_bytes();
            }
            let bytes = words.as_flattened();
            if is_global {
                let to = env
                    .global
                    .access(at, 4 * N, Touch::Write, visitor(env.owner, env.shared, self.index))
                    .map_err(|what| in_lane(what, lane))?;
                to.copy_from_slice(bytes);
            } else {
                env.shared.write(at, bytes, self.index, lane).map_err(|what| in_lane(what, lane))?;
            }
        }
        if ascends { Ok(()) } else { self.check_one_value(access, active) }
    }

    /// Stores of all other kinds.
    fn store_any(&mut self, env: &mut Env<'_>, access: &Access, active: u32) -> Result<(), Stop> {
        let len = usize::from(access.size) * usize::from(access.count);
        let touch = if access.strong { Touch::StrongWrite } else { Touch::Write };
        let (mut last_end, mut ascends) = (0, true);
        for lane in lanes(active) {
            let (space, at) = self.resolve(access.space, access.address, lane);
            check_aligned(at, len, lane)?;
            ascends &= at >= last_end;
            last_end = at.saturating_add(len as u64);
            let mut buffer = [0; MAX_ACCESS];
            let bytes = &mut buffer[..len];
            self.elements(access, lane, bytes);
            match space {
                Space::Global | Space::Generic => {
                    env.counts.global_stored += len as u64;
                    let to = env
                        .global
                        .access(at, len, touch, visitor(env.owner, env.shared, self.index))
                        .map_err(|what| in_lane(what, lane))?;
                    to.copy_from_slice(bytes);
                }
                Space::Shared => {
                    env.shared.write(at, bytes, self.index, lane).map_err(|what| in_lane(what, lane))?;
                }
                Space::Local => self.store_local(env, at, bytes, lane)?,
            }
        }
        if ascends || access.space == Space::Local { Ok(()) } else { self.check_one_value(access, active) }
    }

    /// The bytes that a lane stores.
    #[inline(always)]
    fn elements(&self, access: &Access, lane: usize, bytes: &mut [u8]) {
        if access.size == 4 && access.reg_size != 8 {
            for (reg, to) in access.regs.iter().zip(bytes.chunks_exact_mut(4)) {
                to.copy_from_slice(&self.regs.narrow[usize::from(*reg)][lane].to_le_bytes());
            }
            return;
        }
        let size = usize::from(access.size);
        for (reg, to) in access.regs.iter().zip(bytes.chunks_exact_mut(size)) {
            let bits = match access.reg_size {
                8 => self.regs.wide[usize::from(*reg)][lane],
                _ => u64::from(self.regs.narrow[usize::from(*reg)][lane]),
            };
            to.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
    }

    /// Lanes that write to one address must write one value: which one stays is not defined.
    fn check_one_value(&self, access: &Access, active: u32) -> Result<(), Stop> {
        let len = usize::from(access.size) * usize::from(access.count);
        let mut stores: Vec<(u64, usize)> =
            lanes(active).map(|lane| (self.address(access.address, lane), lane)).collect();
        stores.sort_unstable();
        let value = |lane: usize| {
            let mut bytes = [0; MAX_ACCESS];
            self.elements(access, lane, &mut bytes[..len]);
            bytes
        };
        for pair in stores.windows(2) {
            let [(at, one), (other_at, other)] = [pair[0], pair[1]];
            // Addresses are multiples of the length: ranges that overlap are equal.
            if at == other_at && at < LOCAL_WINDOW && value(one) != value(other) {
                return stop(format!("lanes {one} and {other} write different values to one address"));
            }
        }
        Ok(())
    }

    /// Bytes of a lane's local memory.
    fn local_range(env: &Env<'_>, at: u64, len: usize, lane: usize) -> Result<std::ops::Range<usize>, Stop> {
        let size = env.launch.kernel.local_bytes as usize;
        if at > size as u64 || len as u64 > size as u64 - at {
            return stop(format!("local access out of bounds: {len} bytes at {at} of {size} (lane {lane})"));
        }
        let start = lane * size + at as usize;
        Ok(start..start + len)
    }

    fn local_bytes(&self, env: &Env<'_>, at: u64, len: usize, lane: usize) -> Result<Vec<u8>, Stop> {
        let bytes = &self.local[Self::local_range(env, at, len, lane)?];
        if bytes.iter().any(|(_, is_written)| !is_written) {
            return stop(format!("local memory read before it is written, at byte {at} (lane {lane})"));
        }
        Ok(bytes.iter().map(|(byte, _)| *byte).collect())
    }

    fn store_local(&mut self, env: &Env<'_>, at: u64, bytes: &[u8], lane: usize) -> Result<(), Stop> {
        let range = Self::local_range(env, at, bytes.len(), lane)?;
        for (to, byte) in self.local[range].iter_mut().zip(bytes) {
            *to = (*byte, true);
        }
        Ok(())
    }

    /// The same bytes for all lanes: one lane is loaded and the others copy it.
    pub(super) fn load_bytes(&mut self, from: &[u8], at: usize, access: &Access, active: u32) -> Result<(), Stop> {
        let size = usize::from(access.size);
        let first = active.trailing_zeros() as usize;
        for (n, reg) in access.regs[..usize::from(access.count)].iter().enumerate() {
            self.set_element(access, n, first, &from[at + n * size..at + (n + 1) * size]);
            if access.reg_size == 8 {
                let value = self.regs.wide[usize::from(*reg)][first];
                put(&mut self.regs, *reg, active, &[value; LANES]);
            } else {
                let value = self.regs.narrow[usize::from(*reg)][first];
                put(&mut self.regs, *reg, active, &[value; LANES]);
            }
        }
        Ok(())
    }

    pub(super) fn load_const(&mut self, env: &Env<'_>, access: &Access, active: u32) -> Result<(), Stop> {
        let constants = &env.launch.kernel.data.constants;
        let len = usize::from(access.size) * usize::from(access.count);
        for lane in lanes(active) {
            let at = self.address(access.address, lane);
            check_aligned(at, len, lane)?;
            if at > constants.len() as u64 || len as u64 > constants.len() as u64 - at {
                let all = constants.len();
                return stop(format!("constant access out of bounds: {len} bytes at {at} of {all} (lane {lane})"));
            }
            self.load_bytes(constants, at as usize, access, 1 << lane)?;
        }
        Ok(())
    }
}

/// The warp that touches memory.
#[inline(always)]
pub(super) fn visitor(owner: Owner, shared: &Shared, warp: usize) -> Visitor<'_> {
    Visitor { owner, clock: shared.clock(warp) }
}

/// Up to eight bytes, the lowest first.
#[inline(always)]
pub(super) fn from_bytes(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        len => {
            let mut all = [0; 8];
            all[..len].copy_from_slice(bytes);
            u64::from_le_bytes(all)
        }
    }
}

fn sign_extend(bits: u64, bytes: u8) -> u64 {
    let spare = 64 - 8 * u32::from(bytes);
    ((bits << spare) as i64 >> spare) as u64
}

#[inline(always)]
pub(super) fn check_aligned(at: u64, len: usize, lane: usize) -> Result<(), Stop> {
    if at & (len as u64 - 1) == 0 {
        return Ok(());
    }
    stop(format!("misaligned access: {len} bytes at {at:#x} (lane {lane})"))
}

#[cold]
pub(super) fn in_lane(mut what: Stop, lane: usize) -> Stop {
    what.push_str(&format!(" (lane {lane})"));
    what
}
