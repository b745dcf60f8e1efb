//! The processor of this machine, for people.

use std::sync::OnceLock;

/// The processor's name as it gives it itself, such as `AMD EPYC 7B13`; none where it gives none.
///
/// ```
/// let model = retape_runtime::processor_model();
/// assert!(model.is_none_or(|model| !model.is_empty() && model.trim() == model));
/// ```
pub fn processor_model() -> Option<&'static str> {
    static MODEL: OnceLock<Option<String>> = OnceLock::new();
    MODEL.get_or_init(|| brand().as_deref().and_then(tidied).or_else(|| tidied(&listed()?))).as_deref()
}

/// One space between words; none if there are no words.
fn tidied(name: &str) -> Option<String> {
    let words: Vec<&str> = name.split([' ', '\0', '\t']).filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The brand string that x86 processors hold in three leaves of `cpuid`.
#[cfg(target_arch = "x86_64")]
fn brand() -> Option<String> {
    use std::arch::x86_64::__cpuid;

    const LEAVES: std::ops::RangeInclusive<u32> = 0x8000_0002..=0x8000_0004;
    if __cpuid(0x8000_0000).eax < *LEAVES.end() {
        return None;
    }
    let registers = LEAVES.map(__cpuid).flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
    let bytes: Vec<u8> = registers.flat_map(u32::to_le_bytes).collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn brand() -> Option<String> {
    None
}

/// The name in the list of processors that Linux keeps.
fn listed() -> Option<String> {
    parse_model(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// Reads the line `model name : ..`, or the line `Model : ..` of boards with an Arm processor.
fn parse_model(cpuinfo: &str) -> Option<String> {
    let value = |key: &str| {
        let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        pairs.filter(|(name, _)| name.trim() == key).find_map(|(_, value)| tidied(value))
    };
    value("model name").or_else(|| value("Model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_padding_and_nothing_else() {
        assert_eq!(tidied("AMD EPYC\0\0\0").as_deref(), Some("AMD EPYC"));
        let padded = "      Intel(R) Xeon(R)   CPU @ 2.20GHz\0";
        assert_eq!(tidied(padded).as_deref(), Some("Intel(R) Xeon(R) CPU @ 2.20GHz"));
        assert_eq!(tidied("\0\0 \0"), None);
    }

    #[test]
    fn the_list_of_processors_is_read() {
        let intel = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.00GHz\nflags\t\t: fpu vme\n";
        assert_eq!(parse_model(intel).as_deref(), Some("Intel(R) Xeon(R) CPU @ 2.00GHz"));
        let board = "processor\t: 0\nFeatures\t: fp asimd\n\nHardware\t: BCM2835\nModel\t\t: Raspberry Pi 4 Model B\n";
        assert_eq!(parse_model(board).as_deref(), Some("Raspberry Pi 4 Model B"));
        assert_eq!(parse_model("processor\t: 0\nmodel name\t:\n"), None);
    }
}
