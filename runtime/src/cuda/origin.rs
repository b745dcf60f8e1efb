//! Which build of the driver this process runs: the file that its functions lie in.
//!
//! The version that a driver tells is that of CUDA, which drivers of different builds share.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The path, the size and the time of the file that holds the code at an address, where the system tells.
pub(super) fn of(address: usize) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = mapped(&maps, address)?;
    let file = fs::metadata(path).ok()?;
    let modified = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", path.display(), file.len(), modified.as_nanos()))
}

/// The file that is mapped at an address, by the system's list of mappings.
fn mapped(maps: &str, address: usize) -> Option<&Path> {
    maps.lines().find_map(|line| {
        // The range, what is allowed, the offset, the device and the number of the file; then its path, behind blanks.
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16));
        let path = Path::new(fields.nth(4)?.trim_start());
        ((start.ok()?..end.ok()?).contains(&address) && path.is_absolute()).then_some(path)
    })
}

#[cfg(all(test, not(miri), target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn code_lies_in_the_file_that_it_was_loaded_from() {
        let own = std::env::current_exe().unwrap();
        let found = of(of as *const () as usize).unwrap();
        assert!(found.starts_with(own.to_str().unwrap()), "{found}");
        assert_eq!(found.rsplit(' ').nth(1), Some(fs::metadata(own).unwrap().len().to_string().as_str()));
        assert_eq!(of(1), None);
    }

    #[test]
    fn lines_without_a_file_are_skipped() {
        let maps = "1000-2000 rw-p 00000000 00:00 0 \n\
                    2000-3000 r-xp 00001000 fd:00 42                         /a place/libcuda.so.1\n\
                    3000-4000 rw-p 00000000 00:00 0                          [heap]\n";
        assert_eq!(mapped(maps, 0x1800), None);
        assert_eq!(mapped(maps, 0x2fff), Some(Path::new("/a place/libcuda.so.1")));
        assert_eq!(mapped(maps, 0x3000), None);
    }
}
