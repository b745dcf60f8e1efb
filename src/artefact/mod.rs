//! Artefacts: the entries of an accelerated function in a file, so that a program starts warm.
//!
//! An artefact holds what was traced: graphs, captured tensors, signatures. It holds no machine code: loading reads
//! and verifies each graph as if it came from an enemy, and then optimises, plans and compiles it for this processor.
//! So a loaded entry gives the bits that a fresh trace would give, and the closure is never entered for it.

mod bytes;
mod envelope;
mod file;
mod record;

use std::any::type_name;
use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use retape_runtime::Insertion;

use self::envelope::Header;
use self::record::{Record, Types, Verified};
use crate::accelerate::{Accelerated, Core, Entry, Known, Rejected};
use crate::error::{ArtefactError, Error, Result};
use crate::signature::Signature;
use crate::tree::Tree;

/// The outcome of a save.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The number of entries.
    pub entries: usize,
    /// The number of entries that were left out because a check found their code wrong.
    pub quarantined: usize,
    /// The size of the artefact.
    pub bytes: u64,
}

/// The outcome of a load.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The number of entries that went into the cache.
    pub entries: usize,
    /// The entries of the artefact that did not.
    pub skipped: Vec<Skipped>,
    /// Whether the artefact was saved on a processor with other features. Code is made anew in any case.
    pub recompiled_for_other_cpu: bool,
    /// Reading and verifying.
    pub read_time: Duration,
    /// Optimising, planning and compiling.
    pub compile_time: Duration,
}

/// An entry of an artefact that did not go into the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The arguments that it is for.
    pub signature: Signature,
    /// Why.
    pub reason: SkipReason,
}

/// Why an entry of an artefact did not go into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The cache has an entry for these arguments, which stays.
    Present,
    /// The cache is full; the entries it holds stay.
    NoRoom,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::Present => "the cache has an entry for these arguments",
            SkipReason::NoRoom => "the cache is full",
        })
    }
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries loaded, {} skipped", self.entries, self.skipped.len())?;
        if self.recompiled_for_other_cpu {
            f.write_str(", saved on another processor")?;
        }
        write!(f, " (read in {:.2?}, compiled in {:.2?})", self.read_time, self.compile_time)
    }
}

impl<F, Args, R> Accelerated<F, Args, R>
where
    Args: Tree,
    R: Tree,
{
    /// Writes all entries to a file, most recently used first. The file is replaced as a whole or not at all.
    ///
    /// An artefact holds the recorded graphs and every captured tensor with its bytes, but no machine code.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, or if an entry's graph has no text that reads back or has more than 65,536
    /// nodes; the error names it.
    ///
    /// ```
    /// # use retape::{accelerate, Tensor};
    /// fn double() -> retape::Accelerated<impl Fn(&Tensor) -> Tensor, (Tensor,), Tensor> {
    ///     accelerate(|x: &Tensor| x + x)
    /// }
    /// # let folder = std::env::temp_dir().join(format!("retape-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let path = folder.join("double.retape");
    /// let step = double();
    /// step.call(Tensor::ones([4]))?;
    /// step.save(&path)?;
    ///
    /// // In another process:
    /// let step = double();
    /// step.load(&path)?;
    /// assert_eq!(step.call(Tensor::ones([4]))?.to_vec::<f32>()?, [2.0; 4]);
    /// assert_eq!(step.stats().misses, 0);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> Result<Saved> {
        let (saved, bytes) = save(self.core(), &own_header::<Args, R>(self.core())?)?;
        file::replace(path.as_ref(), &bytes)?;
        Ok(saved)
    }

    /// Writes all entries, as [`save`](Accelerated::save) does.
    ///
    /// # Errors
    ///
    /// As [`save`](Accelerated::save).
    pub fn save_to(&self, mut to: impl Write) -> Result<Saved> {
        let (saved, bytes) = save(self.core(), &own_header::<Args, R>(self.core())?)?;
        to.write_all(&bytes).and_then(|()| to.flush()).map_err(|e| ArtefactError::io(&e, None))?;
        Ok(saved)
    }

    /// Adds the entries of a file that [`save`](Accelerated::save) wrote: calls with their signatures are hits from
    /// now on, give the bits that they gave when saved, and never enter the closure.
    ///
    /// Every entry is verified and compiled before the first one goes in. Entries that are in the cache stay, and if
    /// there is no room for all, the most recently used ones of the artefact go in. An artefact of another processor
    /// is as good as any.
    ///
    /// The artefact must be of this function: one of the same types that the same line of the program accelerated. So
    /// it is refused when that line has moved, and calls trace as if there were none. Functions that one line makes in
    /// turn, of closures of one type, are taken for each other, and whether the closure still says what it said when
    /// the artefact was saved, nothing but entering it could tell: save anew when its code changes, or let the check
    /// mode compare.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Artefact`](crate::Error::Artefact) if the file cannot be read, is no artefact, is corrupt or
    /// cut off, goes on after its end, or was written for another function, for other types, in another format or by
    /// another version of this library; if a graph in it has more than 65,536 nodes, or a type of the arguments or the
    /// result panics over what it is to read; and if the device refuses the code. A load that fails leaves the cache as
    /// it was.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Loaded> {
        let mut file = file::open(path.as_ref())?;
        let artefact = Artefact::read(&mut file, &own_header::<Args, R>(self.core())?, &Types::of::<Args, R>())?;
        file::check_end(file)?;
        artefact.install(self.core())
    }

    /// Adds the entries of an artefact, as [`load`](Accelerated::load) does; reads no byte beyond its end.
    ///
    /// So a stream may hold several artefacts one after the other, and anything else behind them. A caller that expects
    /// the end of the stream checks for it; `load` refuses a file that goes on.
    ///
    /// # Errors
    ///
    /// As [`load`](Accelerated::load).
    pub fn load_from(&self, mut from: impl Read) -> Result<Loaded> {
        let artefact = Artefact::read(&mut from, &own_header::<Args, R>(self.core())?, &Types::of::<Args, R>())?;
        artefact.install(self.core())
    }
}

/// The header of the artefacts that this program writes.
fn own_header<Args, R>(core: &Core) -> Result<Header> {
    Ok(Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: format!("{} {}", std::env::consts::ARCH, retape_kernels::machine().map_err(Error::from)?),
        function: core.type_name().to_owned(),
        arguments: type_name::<Args>().to_owned(),
        result: type_name::<R>().to_owned(),
        place: core.identity().made_at().to_string(),
    })
}

fn save(core: &Core, header: &Header) -> Result<(Saved, Vec<u8>)> {
    let mut entries = core.entries();
    let n_all = entries.len();
    entries.retain(|entry| !core.is_quarantined(&entry.signature));
    let records = entries.iter().map(|entry| Record::of(entry)).collect::<Result<Vec<_>, _>>()?;
    let bytes = envelope::seal(header, |to| record::encode(&records, to))?;
    let (entries, quarantined) = (records.len(), n_all - records.len());
    Ok((Saved { entries, quarantined, bytes: bytes.len() as u64 }, bytes))
}

/// The verified content of an artefact.
struct Artefact {
    entries: Vec<Verified>,
    is_from_other_cpu: bool,
    read_time: Duration,
}

impl Artefact {
    fn read(from: &mut dyn Read, own: &Header, types: &Types) -> Result<Artefact> {
        let start = Instant::now();
        let (header, payload) = envelope::open(from, own)?;
        let records = record::decode(&payload)?;
        drop(payload);
        let entries = records.into_iter().map(|record| record.verify(types)).collect::<Result<Vec<_>, _>>()?;
        Ok(Artefact { entries, is_from_other_cpu: header.machine != own.machine, read_time: start.elapsed() })
    }

    /// Compiles what is new and has room, then puts it into the cache.
    fn install(self, core: &Core) -> Result<Loaded> {
        let start = Instant::now();
        let (mut compiled, mut skipped) = (vec![], vec![]);
        let mut room = core.room();
        for Verified { signature, trace, text } in self.entries {
            let reason = match (core.peek(&signature).is_some(), room) {
                (true, _) => SkipReason::Present,
                (false, 0) => SkipReason::NoRoom,
                (false, _) => {
                    room -= 1;
                    compiled.push(Entry::loaded(signature, trace, text, core.identity())?);
                    continue;
                }
            };
            skipped.push(Skipped { signature, reason });
        }
        let compile_time = start.elapsed();
        let mut entries = 0;
        // Most recently used last, as they were.
        for entry in compiled.into_iter().rev() {
            let signature = entry.signature.clone();
            match core.insert(entry) {
                Insertion::Inserted => entries += 1,
                Insertion::Present => skipped.push(Skipped { signature, reason: SkipReason::Present }),
                Insertion::NoRoom => skipped.push(Skipped { signature, reason: SkipReason::NoRoom }),
            }
        }
        let (recompiled_for_other_cpu, read_time) = (self.is_from_other_cpu, self.read_time);
        Ok(Loaded { entries, skipped, recompiled_for_other_cpu, read_time, compile_time })
    }
}

macro_rules! files {
    ($($method:ident -> $result:ty),*) => {
        impl<F, Args, R> Rejected<F, Args, R> {
            $(
                #[doc(hidden)]
                pub fn $method(&self, _: impl Sized) -> Result<$result>
                where
                    (Args, R): Known,
                {
                    Self::refuse()
                }
            )*
        }
    };
}

files!(save -> Saved, save_to -> Saved, load -> Loaded, load_from -> Loaded);
