//! Code of a GPU: text is compiled once, shared while it is used, and kept on disk for the next process.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use super::disk::{self, Key};
use super::driver::{Entry, LinkFailure, Module};
use super::gpu::{CodeCounters, Function, Gpu};
use crate::error::{Error, Result};
use crate::lock::{into_inner, lock};

/// Threads that compile at once.
const MAX_THREADS: usize = 16;

/// The numbers of a GPU's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeStats {
    /// Kernels that the driver compiled.
    pub compiled: u64,
    /// Kernels whose code lay on disk.
    pub from_disk: u64,
    /// Kernels that are loaded now.
    pub live: usize,
}

/// A kernel as text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name of the kernel.
    pub name: &'a str,
    /// The PTX module that has it.
    pub text: &'a str,
}

impl Source<'_> {
    fn key(&self) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.name.len() as u64).to_le_bytes());
        hasher.update(self.name.as_bytes()).update(self.text.as_bytes());
        hasher.finalize().into()
    }
}

impl Gpu {
    /// Kernels for all sources, in order; those that are not loaded are compiled, several at once.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] with what the compiler of the driver wrote, if it refuses a text.
    pub fn load(self: &Arc<Gpu>, sources: &[Source<'_>]) -> Result<Vec<Arc<Function>>> {
        let keys: Vec<Key> = sources.iter().map(Source::key).collect();
        let mut functions: Vec<Option<Arc<Function>>> = keys.iter().map(|key| self.functions.get(key)).collect();
        let mut missing: Vec<usize> = Vec::new();
        for n in 0..sources.len() {
            if functions[n].is_none() && !missing.iter().any(|&m| keys[m] == keys[n]) {
                missing.push(n);
            }
        }
        for (n, made) in
            in_parallel(&missing, |n| self.functions.get_or_try_insert_with(&keys[n], || self.make(&sources[n])))
        {
            let made = made?;
            for (key, function) in keys.iter().zip(&mut functions).filter(|(key, _)| **key == keys[n]) {
                debug_assert!(function.is_none(), "{key:?} was not missing");
                *function = Some(Arc::clone(&made));
            }
        }
        let missing = || Error::Gpu { device: self.device(), reason: "a kernel was not loaded".into() };
        functions.into_iter().map(|function| function.ok_or_else(missing)).collect()
    }

    /// The numbers of its code.
    pub fn code_stats(&self) -> CodeStats {
        let CodeCounters { compiled, from_disk, live } = &self.code;
        CodeStats { compiled: compiled.load(Relaxed), from_disk: from_disk.load(Relaxed), live: live.load(Relaxed) }
    }

    /// Loads a kernel.
    fn make(self: &Arc<Gpu>, source: &Source<'_>) -> Result<Arc<Function>> {
        let (image, (module, entry)) = self.image(source)?;
        self.code.live.fetch_add(1, Relaxed);
        Ok(Arc::new(Function {
            gpu: Arc::clone(self),
            name: source.name.to_owned(),
            module: Some(module),
            entry,
            bytes: image.len(),
            shared: Mutex::new(0),
        }))
    }

    /// The code of a source, from disk if it is there, and loaded.
    fn image(&self, source: &Source<'_>) -> Result<(Vec<u8>, (Module, Entry))> {
        let folder = lock(&self.code_folder).clone();
        let key = self.disk_key(source.text);
        if let Some(image) = folder.as_deref().and_then(|folder| disk::read(folder, &key))
            && let Ok(loaded) = self.load_image(&image, source.name)
        {
            self.code.from_disk.fetch_add(1, Relaxed);
            return Ok((image, loaded));
        }
        let log = RefCell::new(String::new());
        let linked = self.check_with_room(|driver| {
            driver.link(source.text).map_err(|LinkFailure { failure, log: written }| {
                log.replace(written);
                failure
            })
        });
        let image = linked.map_err(|error| match (error, log.into_inner()) {
            (Error::Gpu { device, reason }, log) if !log.is_empty() => {
                Error::Gpu { device, reason: format!("kernel {}: {reason}\n{log}", source.name) }
            }
            (error, _) => error,
        })?;
        self.code.compiled.fetch_add(1, Relaxed);
        let loaded = self.load_image(&image, source.name)?;
        if let Some(folder) = folder {
            disk::write(&folder, &key, &image);
        }
        Ok((image, loaded))
    }

    /// Loads code; frees idle memory if there is too little.
    fn load_image(&self, image: &[u8], name: &str) -> Result<(Module, Entry)> {
        self.check_with_room(|driver| driver.load(image, name))
    }

    /// All that compiled code depends on.
    fn disk_key(&self, text: &str) -> Key {
        let (major, minor) = self.capability();
        let mut hasher = blake3::Hasher::new();
        for number in [major, minor, self.driver_version()] {
            hasher.update(&number.to_le_bytes());
        }
        for words in [self.name(), self.driver_build.as_deref().unwrap_or_default()] {
            hasher.update(&(words.len() as u64).to_le_bytes()).update(words.as_bytes());
        }
        hasher.update(text.as_bytes()).finalize().into()
    }

    /// Keeps compiled code in this folder from now on, or nowhere. At first it is the one that the variable
    /// `RETAPE_CUBIN_CACHE` names (`0` for none), else `retape/cubin` in the user's folder for caches.
    pub fn set_code_folder(&self, folder: Option<PathBuf>) {
        *lock(&self.code_folder) = folder;
    }
}

/// The results of `work` on all items, with the items, in order.
fn in_parallel<T: Send>(items: &[usize], work: impl Fn(usize) -> T + Sync) -> Vec<(usize, T)> {
    let n_threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(items.len());
    if n_threads < 2 {
        return items.iter().map(|&item| (item, work(item))).collect();
    }
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                while let Some((&item, result)) =
                    Some(next.fetch_add(1, Relaxed)).and_then(|n| items.get(n).zip(results.get(n)))
                {
                    *lock(result) = Some(work(item));
                }
            });
        }
    });
    let results = results.into_iter().map(into_inner);
    items.iter().copied().zip(results).filter_map(|(item, result)| Some((item, result?))).collect()
}
