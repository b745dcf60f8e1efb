//! Compiled code on disk, so that the next process need not compile it again.
//!
//! Guarantees that nothing here is an error: a file that is missing, cut, changed or foreign is as good as none, and a
//! folder that cannot be written stays as it is. Files are written beside their place and moved there whole.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// The hash of what code is made from.
pub(super) type Key = [u8; 32];

/// The head of each file; the hash of the code follows.
const MAGIC: &[u8] = b"retape cubin 1\n";
const HASH: usize = 32;
/// Bytes of files that are kept.
const LIMIT: u64 = 512 << 20;
/// After so many written bytes, the folder is measured again.
const SWEEP: u64 = 32 << 20;
/// Files that were being written for so long are left over from a process that ended.
const STALE: Duration = Duration::from_secs(3600);

/// The folder of this user, unless it is switched off: `RETAPE_CUBIN_CACHE` says where it is, or `0`.
pub(super) fn folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    match set("RETAPE_CUBIN_CACHE") {
        Some(value) if value == "0" => None,
        Some(value) => Some(value.into()),
        None => {
            let own = ["XDG_CACHE_HOME", "LOCALAPPDATA"].into_iter().find_map(set).map(PathBuf::from);
            let own = own.filter(|folder| folder.is_absolute());
            let of_user = own.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))?;
            Some(of_user.join("retape").join("cubin"))
        }
    }
}

fn path(folder: &Path, key: &Key) -> PathBuf {
    folder.join(format!("{}.cubin", blake3::Hash::from_bytes(*key).to_hex()))
}

/// The code that was stored under a key.
pub(super) fn read(folder: &Path, key: &Key) -> Option<Vec<u8>> {
    let path = path(folder, key);
    let mut bytes = fs::read(&path).ok()?;
    let hash = bytes.strip_prefix(MAGIC)?.get(..HASH)?;
    let image = &bytes[MAGIC.len() + HASH..];
    if image.is_empty() || blake3::hash(image).as_bytes() != hash {
        return None;
    }
    // Each use renews the time of the file, so that the files last used stay longest.
    let _ = File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(bytes.split_off(MAGIC.len() + HASH))
}

/// Stores code under a key.
pub(super) fn write(folder: &Path, key: &Key, image: &[u8]) {
    static SINCE_SWEEP: AtomicU64 = AtomicU64::new(SWEEP);
    if store(folder, key, image).is_err() {
        return;
    }
    let written = SINCE_SWEEP.fetch_add(image.len() as u64, Relaxed);
    if written >= SWEEP {
        SINCE_SWEEP.store(0, Relaxed);
        let _ = sweep(folder, LIMIT);
    }
}

fn store(folder: &Path, key: &Key, image: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    // Files of this folder are run as code, so nobody else may write them.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let place = path(folder, key);
    let beside = place.with_extension(format!("{}.{}.part", std::process::id(), NEXT.fetch_add(1, Relaxed)));
    let fill = |mut file: File| {
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(image).as_bytes())?;
        file.write_all(image)
    };
    let stored = File::create_new(&beside).and_then(fill).and_then(|()| fs::rename(&beside, &place));
    if stored.is_err() {
        let _ = fs::remove_file(&beside);
    }
    stored
}

/// Removes what was left half written, and the files that were not used for longest until at most three quarters of
/// `limit` are there, if there are more than that.
fn sweep(folder: &Path, limit: u64) -> io::Result<()> {
    let mut files = vec![];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, meta) = (entry.path(), entry.metadata()?);
        let modified = meta.modified()?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("cubin") => files.push((modified, meta.len(), path)),
            Some("part") if modified.elapsed().is_ok_and(|age| age > STALE) => fs::remove_file(path)?,
            _ => {}
        }
    }
    let mut total: u64 = files.iter().map(|(_, len, _)| len).sum();
    if total <= limit {
        return Ok(());
    }
    files.sort();
    for (_, len, path) in files {
        if total <= limit / 4 * 3 {
            break;
        }
        fs::remove_file(path)?;
        total -= len;
    }
    Ok(())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// A folder that is removed at the end.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Temporary {
            let folder = env::temp_dir().join(format!("retape-disk-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Temporary(folder)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let Temporary(folder) = &Temporary::new("round");
        assert_eq!(read(folder, &[1; 32]), None);
        write(folder, &[1; 32], b"one");
        write(folder, &[2; 32], b"two");
        assert_eq!(read(folder, &[1; 32]).as_deref(), Some(&b"one"[..]));
        write(folder, &[1; 32], b"three");
        assert_eq!(read(folder, &[1; 32]).as_deref(), Some(&b"three"[..]));
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2, "nothing is left beside");
    }

    #[test]
    fn broken_files_are_as_good_as_none() {
        let Temporary(folder) = &Temporary::new("broken");
        let key = [7; 32];
        write(folder, &key, b"the code");
        let whole = fs::read(path(folder, &key)).unwrap();
        for len in 0..whole.len() {
            fs::write(path(folder, &key), &whole[..len]).unwrap();
            assert_eq!(read(folder, &key), None, "cut at {len}");
        }
        for n in 0..whole.len() {
            let mut changed = whole.clone();
            changed[n] ^= 0x20;
            fs::write(path(folder, &key), changed).unwrap();
            assert_eq!(read(folder, &key), None, "changed at {n}");
        }
        write(folder, &key, b"the code");
        assert_eq!(read(folder, &key).as_deref(), Some(&b"the code"[..]));
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_error() {
        let Temporary(folder) = &Temporary::new("file");
        fs::write(folder, b"not a folder").unwrap();
        write(folder, &[1; 32], b"code");
        assert_eq!(read(folder, &[1; 32]), None);
        fs::remove_file(folder).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let Temporary(folder) = &Temporary::new("sweep");
        for n in 0..8_u8 {
            write(folder, &[n; 32], &[n; 953]);
            let file = File::options().append(true).open(path(folder, &[n; 32])).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(n) + 1)).unwrap();
        }
        fs::write(folder.join("x.1.0.part"), b"half").unwrap();
        assert!(read(folder, &[0; 32]).is_some(), "used now");
        sweep(folder, 8000).unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 9, "1000 bytes each");
        sweep(folder, 7999).unwrap();
        let left: Vec<u8> = (0..8).filter(|&n| read(folder, &[n; 32]).is_some()).collect();
        assert_eq!(left, [0, 4, 5, 6, 7]);
        assert!(folder.join("x.1.0.part").exists(), "it may still be written");
    }
}
