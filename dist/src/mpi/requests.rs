//! Messages under way: MPI reads and writes their bytes until a request is done.
//!
//! Invariant: the bytes of a request that is not done are neither freed nor given back to their owner. Frames own their
//! bytes, which are leaked if need be. Bodies borrow theirs: a transfer that is given up is withdrawn, and if MPI cannot,
//! the job ends.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use super::binding::{Binding, Handle};
use crate::transport::{Incoming, Outgoing, Undone};

/// Longer bodies travel in pieces, as counts of MPI have 31 bits.
const PIECE: usize = 64 << 20;

/// How long MPI may take to withdraw a request.
const WITHDRAWAL: Duration = Duration::from_secs(1);

/// Between two looks at whether another worker has failed, while bodies are under way.
const LOOK: Duration = Duration::from_millis(1);

/// Which of the two kinds of messages, which overtake each other.
#[derive(Clone, Copy)]
pub(super) enum Tag {
    Frame = 0x7274,
    Body = 0x7275,
}

/// Waits longer and longer: a message may come at once, and the others may need this core.
#[derive(Default)]
pub(super) struct Patience {
    n_waits: u32,
}

impl Patience {
    /// How often a worker spins, and then yields: for some milliseconds, since what is under way moves only while MPI is
    /// called. Sleeps are for workers that compute meanwhile.
    const N_SPINS: u32 = 50;
    const N_YIELDS: u32 = 10_000;
    const LONGEST_US: u32 = 50;

    pub(super) fn wait(&mut self) {
        self.n_waits = self.n_waits.saturating_add(1);
        match self.n_waits.checked_sub(Self::N_SPINS) {
            None => std::hint::spin_loop(),
            Some(0..Self::N_YIELDS) => std::thread::yield_now(),
            Some(n) => std::thread::sleep(Duration::from_micros((n - Self::N_YIELDS).min(Self::LONGEST_US).into())),
        }
    }
}

/// A message under way that owns its bytes.
pub(super) struct Pending<H: Handle> {
    request: H,
    bytes: ManuallyDrop<Vec<u8>>,
    is_done: bool,
}

impl<H: Handle> Pending<H> {
    /// The bytes, if MPI is done with them.
    pub(super) fn into_bytes(mut self) -> Option<Vec<u8>> {
        self.is_done.then(|| std::mem::take(&mut *self.bytes))
    }
}

impl<H: Handle> Drop for Pending<H> {
    fn drop(&mut self) {
        if self.is_done {
            drop(std::mem::take(&mut *self.bytes));
        }
    }
}

impl<H: Handle> Binding<H> {
    /// Begins to send bytes.
    pub(super) fn send(&self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<Pending<H>, String> {
        let bytes = ManuallyDrop::new(bytes);
        let _turn = self.turn();
        // SAFETY: the bytes stay where they are until the request is done, as `Pending` sees to.
        let request = unsafe { self.post_send(to, tag, &bytes) }?;
        Ok(Pending { request, bytes, is_done: false })
    }

    /// Begins to receive at most as many bytes as there is room for.
    pub(super) fn receive(&self, from: usize, tag: Tag, room: Vec<u8>) -> Result<Pending<H>, String> {
        let mut bytes = ManuallyDrop::new(room);
        let _turn = self.turn();
        // SAFETY: as in `send`.
        let request = unsafe { self.post_receive(from, tag, &mut bytes) }?;
        Ok(Pending { request, bytes, is_done: false })
    }

    /// Whether a message has been sent, or has arrived.
    pub(super) fn is_done(&self, pending: &mut Pending<H>) -> Result<bool, String> {
        let _turn = self.turn();
        if !pending.is_done {
            pending.is_done = self.test(&mut pending.request)?;
        }
        Ok(pending.is_done)
    }

    /// Withdraws a receive, and says whether MPI could.
    pub(super) fn withdraw(&self, mut pending: Pending<H>) -> bool {
        {
            let _turn = self.turn();
            // SAFETY: the request is under way or done, which MPI tells apart for receives.
            unsafe { (self.cancel)(&raw mut pending.request) };
        }
        let start = Instant::now();
        while start.elapsed() < WITHDRAWAL {
            match self.is_done(&mut pending) {
                Ok(true) => return true,
                Ok(false) => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
        false
    }

    /// Sends and receives bodies, as the transport says.
    pub(super) fn move_bodies(
        &self,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        gives_up: &mut dyn FnMut(bool) -> Option<String>,
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), Undone> {
        let mut transfer = Transfer { binding: self, open: vec![], reason: String::new() };
        // Receives first, so that what is sent finds its place.
        transfer.post(sends, receives).map_err(|error| transfer.fail(error))?;
        let mut pause = Patience::default();
        let (mut last_look, mut has_arrived) = (Instant::now(), false);
        loop {
            let n_open = transfer.open.len();
            transfer.look().map_err(|error| transfer.fail(error))?;
            if transfer.open.is_empty() {
                return Ok(());
            }
            if transfer.open.len() < n_open {
                has_arrived = true;
                pause = Patience::default();
            }
            if last_look.elapsed() >= LOOK {
                if let Some(reason) = gives_up(std::mem::take(&mut has_arrived)) {
                    transfer.reason = reason;
                    let mut peers: Vec<usize> = transfer.open.iter().map(|(peer, _)| *peer).collect();
                    peers.sort_unstable();
                    peers.dedup();
                    return Err(Undone::GivenUp(peers));
                }
                last_look = Instant::now();
            }
            if !work() {
                pause.wait();
            }
        }
    }

    /// Begins to send bytes.
    ///
    /// # Safety
    ///
    /// The bytes are neither freed nor written to until the request is done, and the caller has its turn.
    unsafe fn post_send(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<H, String> {
        let (len, peer) = (count(bytes.len())?, count(to)?);
        let mut request = H::EMPTY;
        // SAFETY: the handles are the library's own; the bytes are as long as it is told, and stay: the caller's promise.
        let code = unsafe {
            (self.isend)(bytes.as_ptr().cast(), len, self.byte, peer, tag as c_int, self.comm, &raw mut request)
        };
        self.check(code)?;
        Ok(request)
    }

    /// Begins to receive bytes.
    ///
    /// # Safety
    ///
    /// Nobody else touches the bytes until the request is done, and the caller has its turn.
    unsafe fn post_receive(&self, from: usize, tag: Tag, bytes: &mut [u8]) -> Result<H, String> {
        let (len, peer) = (count(bytes.len())?, count(from)?);
        let mut request = H::EMPTY;
        // SAFETY: as in `post_send`.
        let code = unsafe {
            (self.irecv)(bytes.as_mut_ptr().cast(), len, self.byte, peer, tag as c_int, self.comm, &raw mut request)
        };
        self.check(code)?;
        Ok(request)
    }

    /// Whether a request is done. The caller has its turn.
    fn test(&self, request: &mut H) -> Result<bool, String> {
        let mut is_done = 0;
        // SAFETY: the request was given by MPI, and is under way: done ones are not asked again. The status may be left
        // out, by the library's own constant.
        let code = unsafe { (self.test)(request, &raw mut is_done, self.no_status as *mut _) };
        self.check(code)?;
        Ok(is_done != 0)
    }
}

/// Bodies under way, whose bytes are borrowed for as long as this lives.
struct Transfer<'b, H: Handle> {
    binding: &'b Binding<H>,
    /// The other worker of each request that is not done.
    open: Vec<(usize, H)>,
    /// Why the transfer is given up, if it is.
    reason: String,
}

impl<H: Handle> Transfer<'_, H> {
    fn post(&mut self, sends: &[Outgoing<'_>], receives: &mut [Incoming<'_>]) -> Result<(), String> {
        let _turn = self.binding.turn();
        for (from, bytes) in receives {
            for piece in bytes.chunks_mut(PIECE) {
                // SAFETY: the bytes are borrowed until `move_bodies` returns, when no request is open any more: each is
                // done, or `drop` has withdrawn it.
                self.open.push((*from, unsafe { self.binding.post_receive(*from, Tag::Body, piece) }?));
            }
        }
        for (to, bytes) in sends {
            for piece in bytes.chunks(PIECE) {
                // SAFETY: as above.
                self.open.push((*to, unsafe { self.binding.post_send(*to, Tag::Body, piece) }?));
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: String) -> Undone {
        self.reason.clone_from(&error);
        Undone::Failed(error)
    }

    /// Forgets the requests that are done, and those that have failed, which are done as well.
    fn look(&mut self) -> Result<(), String> {
        let _turn = self.binding.turn();
        let mut error = None;
        self.open.retain_mut(|(_, request)| match self.binding.test(request) {
            Ok(is_done) => !is_done,
            Err(reason) => {
                error = Some(reason);
                false
            }
        });
        error.map_or(Ok(()), Err)
    }
}

impl<H: Handle> Drop for Transfer<'_, H> {
    fn drop(&mut self) {
        if self.open.is_empty() {
            return;
        }
        {
            let _turn = self.binding.turn();
            for (_, request) in &mut self.open {
                // SAFETY: the request was given by MPI, and is under way.
                unsafe { (self.binding.cancel)(request) };
            }
        }
        let start = Instant::now();
        while !self.open.is_empty() {
            // An error of one request does not hinder the others.
            let _ = self.look();
            if start.elapsed() > WITHDRAWAL {
                // The bytes cannot be given back to their owner while MPI uses them.
                self.binding
                    .abort(&format!("{}; the job ends, as messages under way cannot be withdrawn", self.reason));
            }
            std::thread::yield_now();
        }
    }
}

/// A number as MPI takes it.
fn count(n: usize) -> Result<c_int, String> {
    c_int::try_from(n).map_err(|_| format!("{n} is more than MPI counts"))
}
