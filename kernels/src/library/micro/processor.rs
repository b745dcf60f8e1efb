//! Facts that x86-64 processors tell of themselves, and the way of AVX-512 that follows.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

use super::Level;

/// The two ways of AVX-512, first the one for a nearest cache of so many bytes: all steps of a column panel take 32 KiB,
/// those of a row panel 12 in single precision.
pub(super) fn levels_of_512(near_cache: Option<usize>) -> [Level; 2] {
    const ROOMY: usize = 48 << 10;
    if near_cache.is_some_and(|bytes| bytes >= ROOMY) {
        [Level::Avx512, Level::Avx512Small]
    } else {
        [Level::Avx512Small, Level::Avx512]
    }
}

/// Bytes of a core's first-level data cache, as the processor tells them.
pub(super) fn near_cache() -> Option<usize> {
    /// Leaves with a subleaf for each cache, of Intel's processors and of AMD's, and the most of them.
    const LEAVES: [u32; 2] = [4, 0x8000_001d];
    const MOST: u32 = 16;
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    let find = || {
        let present = LEAVES.into_iter().filter(|leaf| __cpuid(leaf & 0x8000_0000).eax >= *leaf);
        let mut caches = present.flat_map(|leaf| (0..MOST).map(move |index| __cpuid_count(leaf, index)));
        caches.find_map(|found| data_cache([found.eax, found.ebx, found.ecx]))
    };
    *BYTES.get_or_init(find)
}

/// The bytes of a cache by what the processor tells of it in `eax`, `ebx` and `ecx`, if it is a first-level data cache
/// (Intel's manual, volume 2, `CPUID` leaf 4). One of two ways is what virtual machines tell of processors long gone, and
/// no cache of a processor with AVX-512.
fn data_cache([kind, shape, sets]: [u32; 3]) -> Option<usize> {
    const DATA: u32 = 1;
    const FEW_WAYS: usize = 2;
    let (is_data, is_first) = (kind & 0x1f == DATA, kind >> 5 & 7 == 1);
    let part = |low: u32, bits: u32| (shape >> low & ((1 << bits) - 1)) as usize + 1;
    let ways = part(22, 10);
    (is_data && is_first && ways > FEW_WAYS).then(|| ways * part(12, 10) * part(0, 12) * (sets as usize + 1))
}

/// Whether vectors of 512 bits are multiplied in two passes, so that there is time for a load beside each multiplication: on
/// AMD's processors with a nearest cache of 32 KiB (Zen 4).
pub(super) fn multiplies_in_halves() -> bool {
    // The parts of "AuthenticAMD", as `CPUID` gives them.
    const AMD: [[u8; 4]; 3] = [*b"Auth", *b"enti", *b"cAMD"];
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let vendor = __cpuid(0);
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes) == AMD;
        is_amd && levels_of_512(near_cache())[0] == Level::Avx512Small
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_chosen_by_the_nearest_cache() {
        // 12 ways of 64 lines of 64 bytes; a cache of instructions; a second-level cache; 8 ways; 2 of
        // a virtual machine.
        let bytes = |kind: u32, ways: u32, sets: u32| data_cache([kind, (ways - 1) << 22 | 63, sets - 1]);
        assert_eq!(bytes(0x21, 12, 64), Some(48 << 10));
        assert_eq!(bytes(0x22, 8, 64), None);
        assert_eq!(bytes(0x43, 16, 2048), None);
        assert_eq!(bytes(0x21, 8, 64), Some(32 << 10));
        assert_eq!(bytes(0x21, 2, 512), None);
        assert_eq!(levels_of_512(Some(48 << 10)), [Level::Avx512, Level::Avx512Small]);
        assert_eq!(levels_of_512(Some(32 << 10)), [Level::Avx512Small, Level::Avx512]);
        assert_eq!(levels_of_512(None), [Level::Avx512Small, Level::Avx512]);
        assert!(near_cache().is_none_or(|bytes| (8 << 10..1 << 20).contains(&bytes)), "{:?}", near_cache());
    }
}
