//! The transport of threads: each worker has a mailbox, into which the others put copies of their bytes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use crate::transport::{Incoming, Outgoing, Transport, Undone};

/// A worker that waits for bodies looks this often whether another one has failed, if nothing arrives.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Mailbox {
    contents: Mutex<Contents>,
    arrived: Condvar,
}

#[derive(Default)]
struct Contents {
    frames: VecDeque<(usize, Vec<u8>)>,
    bodies: VecDeque<(usize, Vec<u8>)>,
}

impl Mailbox {
    fn open(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's end of the mailboxes of a world.
pub(crate) struct Threads {
    rank: usize,
    mailboxes: Arc<[Mailbox]>,
}

impl Threads {
    /// The ends of all workers.
    pub(crate) fn of(size: usize) -> Vec<Threads> {
        let mailboxes: Arc<[Mailbox]> = (0..size).map(|_| Mailbox::default()).collect();
        (0..size).map(|rank| Threads { rank, mailboxes: mailboxes.clone() }).collect()
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.mailboxes.len()
    }

    fn host(&self) -> String {
        "localhost".to_owned()
    }

    fn send(&self, to: usize, frame: Vec<u8>) -> Result<(), String> {
        let mailbox = &self.mailboxes[to];
        mailbox.open().frames.push_back((self.rank, frame));
        mailbox.arrived.notify_all();
        Ok(())
    }

    fn receive(&self, patience: Duration) -> Result<Option<(usize, Vec<u8>)>, String> {
        let until = Instant::now() + patience;
        let mailbox = &self.mailboxes[self.rank];
        let mut contents = mailbox.open();
        loop {
            if let Some(frame) = contents.frames.pop_front() {
                return Ok(Some(frame));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            contents = mailbox.arrived.wait_timeout(contents, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn bodies(
        &self,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        gives_up: &mut dyn FnMut(bool) -> Option<String>,
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), Undone> {
        for &(to, bytes) in sends {
            let mailbox = &self.mailboxes[to];
            let body = bytes.to_vec();
            mailbox.open().bodies.push_back((self.rank, body));
            mailbox.arrived.notify_all();
        }
        let mailbox = &self.mailboxes[self.rank];
        let mut missing: Vec<&mut Incoming<'_>> = receives.iter_mut().collect();
        loop {
            let n_missing = missing.len();
            let has_more = work();
            let mut contents = mailbox.open();
            if !has_more && !missing.iter().any(|(from, _)| contents.bodies.iter().any(|(sender, _)| sender == from)) {
                // Frames wake a worker as well: a failure is seen at once.
                contents = mailbox.arrived.wait_timeout(contents, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
            let mut found = vec![];
            missing.retain_mut(|(from, into)| {
                let Some(at) = contents.bodies.iter().position(|(sender, _)| sender == from) else { return true };
                found.extend(contents.bodies.remove(at).map(|(from, body)| (from, body, std::mem::take(into))));
                false
            });
            drop(contents);
            // The copies are made while others may put bodies into the mailbox.
            for (from, body, into) in found {
                if body.len() != into.len() {
                    let (sent, wanted) = (body.len(), into.len());
                    return Err(Undone::Failed(format!("rank {from} sent {sent} bytes instead of {wanted}")));
                }
                into.copy_from_slice(&body);
            }
            if missing.is_empty() {
                return Ok(());
            }
            if gives_up(missing.len() < n_missing).is_some() {
                return Err(Undone::GivenUp(missing.iter().map(|(from, _)| *from).collect()));
            }
        }
    }

    fn finish(&self, _: bool) {}

    fn abort(&self, message: &str) -> ! {
        // The other threads are told by the worker that catches the panic.
        panic!("{message}")
    }
}
