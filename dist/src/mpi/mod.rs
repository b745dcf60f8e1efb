//! The transport of processes: a library of MPI, found when the program runs.
//!
//! Open MPI and MPICH are different binary interfaces of one standard. About fifteen functions are needed, since MPI only
//! moves bytes from one worker to another here; both libraries are served by one implementation, generic over the type of
//! their handles.

mod binding;
mod requests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use retape_runtime::lock;

use crate::error::{Error, Result};
use crate::frame::FRAME;
use crate::launcher::Launcher;
use crate::transport::{Incoming, Outgoing, Transport, Undone};
use binding::{Abi, Binding, Handle};
pub(crate) use binding::{Abortion, LAST_WORDS, abortion};
use requests::{Patience, Pending, Tag};

/// How long the end waits for frames on their way, which nobody waits for.
const LAST: Duration = Duration::from_secs(1);

/// Opens the library of a launcher, and joins its job.
pub(crate) fn connect(launcher: &Launcher) -> Result<Box<dyn Transport>> {
    let (library, name) = binding::open(&launcher.libraries).map_err(|errors| {
        Error::Launch(format!(
            "the library of MPI that belongs to {} cannot be opened: {errors}; RETAPE_MPI=PATH names the file",
            launcher.evidence
        ))
    })?;
    match library.abi() {
        Ok(Abi::OpenMpi(version)) => join(library.open_mpi(), launcher, &name, &version),
        Ok(Abi::Mpich(version)) => join(library.mpich(), launcher, &name, &version),
        Err(error) => Err(Error::Launch(format!("{name}: {error}"))),
    }
}

fn join<H: Handle>(
    binding: std::result::Result<Binding<H>, String>,
    launcher: &Launcher,
    name: &str,
    version: &str,
) -> Result<Box<dyn Transport>> {
    let fail = |error: String| Error::Launch(format!("{name} ({version}): {error}"));
    let binding = binding.map_err(fail)?;
    binding.init().map_err(fail)?;
    let (rank, size) = (binding.rank().map_err(fail)?, binding.size().map_err(fail)?);
    if let Some(wanted) = launcher.size.filter(|&wanted| wanted != size) {
        binding.finalize();
        return Err(Error::Launch(format!(
            "the launcher started {wanted} workers ({}), but {name} ({version}) finds {size}: the library is not that of \
             the launcher. RETAPE_MPI=PATH names the right one",
            launcher.evidence
        )));
    }
    if let Some(wanted) = launcher.rank.filter(|&wanted| wanted != rank) {
        binding.finalize();
        return Err(Error::Launch(format!(
            "the launcher calls this worker {wanted} ({}), but {name} ({version}) calls it {rank}: the library is not that \
             of the launcher. RETAPE_MPI=PATH names the right one",
            launcher.evidence
        )));
    }
    let mut frames = Frames { standing: vec![], outgoing: vec![], arrived: VecDeque::new() };
    for peer in 0..size {
        let receive = (peer != rank).then(|| binding.receive(peer, Tag::Frame, vec![0; FRAME]));
        frames.standing.push(receive.transpose().map_err(fail)?);
    }
    Ok(Box::new(Mpi { binding, rank, size, frames: Mutex::new(frames), has_ended: AtomicBool::new(false) }))
}

/// One process' end of a job.
struct Mpi<H: Handle> {
    binding: Binding<H>,
    rank: usize,
    size: usize,
    frames: Mutex<Frames<H>>,
    has_ended: AtomicBool,
}

struct Frames<H: Handle> {
    /// The receive of the next frame of each other worker. Each is there at all times, for a frame is never held back.
    standing: Vec<Option<Pending<H>>>,
    /// Frames that are sent, whose buffers are still in use.
    outgoing: Vec<Pending<H>>,
    /// Frames that nobody has asked for yet.
    arrived: VecDeque<(usize, Vec<u8>)>,
}

impl<H: Handle> Mpi<H> {
    fn frames(&self) -> std::result::Result<MutexGuard<'_, Frames<H>>, String> {
        if self.has_ended.load(Ordering::Acquire) {
            return Err("MPI has ended".to_owned());
        }
        Ok(lock(&self.frames))
    }

    /// Takes in what has arrived, and lets go of what has been sent.
    fn look(&self, frames: &mut Frames<H>) -> std::result::Result<(), String> {
        for (peer, standing) in frames.standing.iter_mut().enumerate() {
            let Some(mut pending) = standing.take() else { continue };
            if self.binding.is_done(&mut pending)? {
                *standing = Some(self.binding.receive(peer, Tag::Frame, vec![0; FRAME])?);
                frames.arrived.extend(pending.into_bytes().map(|bytes| (peer, bytes)));
            } else {
                *standing = Some(pending);
            }
        }
        let mut error = None;
        frames.outgoing.retain_mut(|pending| match self.binding.is_done(pending) {
            Ok(is_done) => !is_done,
            Err(reason) => {
                error = Some(reason);
                false
            }
        });
        error.map_or(Ok(()), Err)
    }
}

impl<H: Handle> Transport for Mpi<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn host(&self) -> String {
        self.binding.host().unwrap_or_else(|| "localhost".to_owned())
    }

    fn send(&self, to: usize, frame: Vec<u8>) -> std::result::Result<(), String> {
        let mut frames = self.frames()?;
        let mut pending = self.binding.send(to, Tag::Frame, frame)?;
        if !self.binding.is_done(&mut pending)? {
            frames.outgoing.push(pending);
        }
        Ok(())
    }

    fn receive(&self, patience: Duration) -> std::result::Result<Option<(usize, Vec<u8>)>, String> {
        let start = Instant::now();
        let mut pause = Patience::default();
        loop {
            let mut frames = self.frames()?;
            if frames.arrived.is_empty() {
                self.look(&mut frames)?;
            }
            if let Some(frame) = frames.arrived.pop_front() {
                return Ok(Some(frame));
            }
            drop(frames);
            if start.elapsed() >= patience {
                return Ok(None);
            }
            pause.wait();
        }
    }

    fn bodies(
        &self,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        gives_up: &mut dyn FnMut(bool) -> Option<String>,
        work: &mut dyn FnMut() -> bool,
    ) -> std::result::Result<(), Undone> {
        self.binding.move_bodies(sends, receives, gives_up, work)
    }

    fn finish(&self, is_clean: bool) {
        let Ok(mut frames) = self.frames() else { return };
        let start = Instant::now();
        let mut pause = Patience::default();
        // An error ends the flush: MPI itself is about to end.
        while self.look(&mut frames).is_ok() && !frames.outgoing.is_empty() && start.elapsed() < LAST {
            pause.wait();
        }
        self.has_ended.store(true, Ordering::Release);
        // The end of MPI waits for all workers, and so is left out if one may be gone. The launcher notices, and ends the
        // others.
        if is_clean && frames.standing.drain(..).flatten().all(|pending| self.binding.withdraw(pending)) {
            self.binding.finalize();
        }
    }

    fn abort(&self, message: &str) -> ! {
        self.binding.abort(message)
    }
}
