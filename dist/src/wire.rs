//! Exchanges of bytes that are checked: all workers are in the same call, and lengths fit, or all of them learn why not.
//!
//! Each message begins with a head that names the call. A worker that finds another one elsewhere reports both calls, and
//! tells the others. One that finds nobody reports who is missing. Either way the world is broken from then on, and each
//! later call fails with the first error: a worker never waits for one that is gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use retape_kernels::library::{Communicator, GpuLink};
use retape_runtime::Gpu;

use crate::agree;
use crate::frame::{self, Call, Frame, Kind};
use crate::link::Links;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use crate::transport::{Incoming, Outgoing, Transport, Undone};

/// Workers wait for each other this long if nothing else is said. One may be compiling.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// A worker that knows of a disagreement waits this long for the workers of which it does not know yet where they are.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

/// The call that a worker is at which has come to its end.
const END: &str = "the end of its work";

/// One worker's end of all messages of a world.
pub(crate) struct Wire {
    transport: Box<dyn Transport>,
    state: Mutex<State>,
    timeout_ms: AtomicU64,
    links: Links,
    /// Whether somebody has begun to end the world.
    is_ending: AtomicBool,
    has_ended: AtomicBool,
}

struct State {
    /// The exchanges that have begun.
    n_exchanges: u64,
    /// Frames of each worker that have arrived before this one waits for them.
    early: Vec<VecDeque<Frame>>,
    /// The first error, or that the world is at its end.
    broken: Option<String>,
}

impl State {
    /// The error of a worker that has told of it.
    fn failure(&self) -> Option<String> {
        self.failure_by(u64::MAX)
    }

    /// The error of a worker that has failed in an exchange or before it. One that failed behind it had done its part.
    fn failure_by(&self, exchange: u64) -> Option<String> {
        let failed = |frame: &&Frame| frame.kind == Kind::Failed && frame.call.number <= exchange;
        self.early.iter().flatten().find(failed).map(|frame| frame.call.text.clone())
    }
}

/// How the world is left by a process that exits.
#[cfg_attr(not(unix), allow(dead_code, reason = "processes of MPI are served on Unix only"))]
pub(crate) enum Left {
    /// It has come to its end, or the others know why it will not.
    Ended,
    /// Another thread is in a call, or is about to end it.
    Busy,
    /// The others are not at the end.
    Failed(String),
}

/// Why an exchange failed.
enum ExchangeFailure {
    /// By an error that this worker is the first to see: the others are to be told.
    Own(String),
    /// By an error of which another worker has told.
    Told(String),
}

impl Wire {
    pub(crate) fn new(transport: Box<dyn Transport>) -> Wire {
        let early = (0..transport.size()).map(|_| VecDeque::new()).collect();
        let state = Mutex::new(State { n_exchanges: 0, early, broken: None });
        let timeout_ms = AtomicU64::new(TIMEOUT.as_millis() as u64);
        let (is_ending, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Wire { transport, state, timeout_ms, links: Links::default(), is_ending, has_ended }
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    /// Breaks the world with an error of this worker, if it is not broken yet, and tells the others.
    pub(crate) fn fail(&self, message: &str) {
        self.fail_in(&mut self.lock(), message);
    }

    fn fail_in(&self, state: &mut State, message: &str) {
        if state.broken.is_none() {
            state.broken = Some(message.to_owned());
            self.tell(state.n_exchanges + 1, message);
        }
    }

    /// The first error, if the world is broken, or that it is at its end.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    /// Waits until all workers have come to their end, and ends the transport. A world that is broken already has no
    /// error at its end.
    pub(crate) fn end(&self) -> Result<(), String> {
        self.is_ending.store(true, Ordering::Release);
        let outcome = self.leave(&mut self.lock());
        match outcome {
            Ok(true) => self.links.close(),
            Ok(false) | Err(_) => self.links.abort(),
        }
        self.finish(outcome)
    }

    /// As [`end`](Wire::end), for a process that exits with a status: waits for no other thread of it, and leaves the
    /// link between GPUs to the system, as the driver may have ended already. A status that is a failure ends the job,
    /// so the others are told of it and not waited for.
    #[cfg_attr(not(unix), allow(dead_code, reason = "processes of MPI are served on Unix only"))]
    pub(crate) fn leave_at_exit(&self, status: i32) -> Left {
        if self.has_ended.load(Ordering::Acquire) {
            return Left::Ended;
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return Left::Busy,
        };
        if self.is_ending.swap(true, Ordering::AcqRel) {
            return Left::Busy;
        }
        if status != 0 && state.broken.is_none() {
            self.fail_in(&mut state, &format!("rank {} exited with status {status}", self.rank()));
            std::thread::sleep(GRACE);
        }
        // Other threads stay out until the process is gone.
        let outcome = self.leave(&mut state);
        self.finish(outcome).map_or_else(Left::Failed, |()| Left::Ended)
    }

    /// Waits until all workers have come to their end, unless the world is broken; whether it is not.
    fn leave(&self, state: &mut State) -> Result<bool, String> {
        if state.broken.is_some() {
            return Ok(false);
        }
        let nothing = vec![[].as_slice(); self.size()];
        let mut nowhere: Vec<&mut [u8]> = (0..self.size()).map(|_| [].as_mut_slice()).collect();
        self.exchange_in(state, END, &nothing, &mut nowhere, &mut || false)?;
        state.broken = Some(format!("rank {}: the world has come to its end", self.rank()));
        Ok(true)
    }

    /// Ends the transport, behind the outcome of [`leave`](Wire::leave).
    fn finish(&self, outcome: Result<bool, String>) -> Result<(), String> {
        self.transport.finish(outcome == Ok(true));
        self.has_ended.store(true, Ordering::Release);
        outcome.map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peers(&self) -> impl Iterator<Item = usize> {
        let rank = self.rank();
        (0..self.size()).filter(move |&peer| peer != rank)
    }

    /// Tells the others of a failure in an exchange, or before it.
    fn tell(&self, exchange: u64, message: &str) {
        for peer in self.peers() {
            // A worker that cannot be told is gone, or finds out by its own time-out.
            let _ = self.transport.send(peer, frame::failed(exchange, message));
        }
    }

    /// Takes this worker's turn, unless the world is broken.
    fn begin(&self, call: &str, sends: &[&[u8]], receives: &[&mut [u8]]) -> Result<MutexGuard<'_, State>, String> {
        let size = self.size();
        if sends.len() != size || receives.len() != size {
            return Err(format!("{} and {} parts at `{call}`, for {size} workers", sends.len(), receives.len()));
        }
        let state = self.lock();
        state.broken.clone().map_or(Ok(state), Err)
    }

    /// Breaks the world if an exchange has failed, and tells the others unless they know.
    fn told(&self, state: &mut State, outcome: Result<(), ExchangeFailure>) -> Result<(), String> {
        let error = match outcome {
            Ok(()) => return Ok(()),
            Err(ExchangeFailure::Own(error)) => {
                self.tell(state.n_exchanges, &error);
                error
            }
            Err(ExchangeFailure::Told(error)) => error,
        };
        state.broken = Some(error.clone());
        Err(error)
    }

    /// An exchange of a worker that has its turn.
    fn exchange_in(
        &self,
        state: &mut State,
        call: &str,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        state.n_exchanges += 1;
        let call = Call::new(state.n_exchanges, call);
        let outcome = self.try_exchange(state, &call, sends, receives, work);
        let outcome = outcome.and_then(|()| self.hear(state, &call, call.number));
        self.told(state, outcome)
    }

    fn try_exchange(
        &self,
        state: &mut State,
        call: &Call,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), ExchangeFailure> {
        for peer in self.peers() {
            let frame = frame::call(call, sends[peer], receives[peer].len());
            self.transport.send(peer, frame).map_err(|error| self.of_transport(call, &error))?;
        }
        let heads = self.heads(state, call, work)?;
        self.check_lengths(call, &heads, sends, receives)?;
        let mut rests: Vec<Incoming<'_>> = vec![];
        for (peer, receive) in receives.iter_mut().enumerate() {
            let Some(head) = &heads[peer] else { continue };
            let (first, rest) = receive.split_at_mut(head.payload.len());
            first.copy_from_slice(&head.payload);
            if !rest.is_empty() {
                rests.push((peer, rest));
            }
        }
        let tails = self.peers().map(|peer| (peer, &sends[peer][frame::in_head(call, sends[peer].len())..]));
        let tails: Vec<Outgoing<'_>> = tails.filter(|(_, tail)| !tail.is_empty()).collect();
        if rests.is_empty() && tails.is_empty() { Ok(()) } else { self.bodies(state, call, &tails, &mut rests, work) }
    }

    /// Waits for the heads of all others, which must be in the same call.
    fn heads(
        &self,
        state: &mut State,
        call: &Call,
        work: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Option<Frame>>, ExchangeFailure> {
        let timeout = self.timeout();
        let mut deadline = Instant::now() + timeout;
        let mut heads: Vec<Option<Frame>> = (0..self.size()).map(|_| None).collect();
        let mut differs = false;
        loop {
            for peer in self.peers() {
                if heads[peer].is_none() {
                    heads[peer] = state.early[peer].pop_front_if(|frame| frame.kind == Kind::Call);
                    if heads[peer].as_ref().is_some_and(|head| !head.call.is(call)) && !differs {
                        differs = true;
                        deadline = deadline.min(Instant::now() + GRACE);
                    }
                }
            }
            let is_complete = self.peers().all(|peer| heads[peer].is_some());
            if differs && is_complete {
                return Err(ExchangeFailure::Own(self.disagreement(call, &heads)));
            }
            // A worker that saw the disagreement first has said so: the others are still waited for a little, so that
            // all know as much.
            if let (Some(message), false) = (state.failure_by(call.number), differs) {
                return Err(ExchangeFailure::Told(message));
            }
            if is_complete {
                return Ok(heads);
            }
            let patience = deadline.saturating_duration_since(Instant::now());
            if patience.is_zero() && differs {
                return Err(ExchangeFailure::Own(self.disagreement(call, &heads)));
            }
            if patience.is_zero() {
                let missing: Vec<usize> = self.peers().filter(|&peer| heads[peer].is_none()).collect();
                return Err(ExchangeFailure::Own(self.too_late(call, timeout, &missing)));
            }
            self.take_in(state, call, if work() { Duration::ZERO } else { patience })?;
        }
    }

    /// Receives a frame, if one comes in time, and says whether one did.
    fn take_in(&self, state: &mut State, call: &Call, patience: Duration) -> Result<bool, ExchangeFailure> {
        let arrived = self.transport.receive(patience).map_err(|error| self.of_transport(call, &error))?;
        let Some((from, bytes)) = arrived else { return Ok(false) };
        let Some(frame) = frame::decode(&bytes) else {
            let rank = self.rank();
            return Err(ExchangeFailure::Own(format!(
                "rank {rank} received a message from rank {from} that it cannot read: do all workers run the same \
                 program?"
            )));
        };
        state.early[from].push_back(frame);
        Ok(true)
    }

    /// Reads the frames that have arrived, and fails if one of them tells of a failure in an exchange or before it: a
    /// worker that came late has all heads of a call that the others have given up, and the failure behind them.
    fn hear(&self, state: &mut State, call: &Call, exchange: u64) -> Result<(), ExchangeFailure> {
        while self.take_in(state, call, Duration::ZERO)? {}
        state.failure_by(exchange).map_or(Ok(()), |text| Err(ExchangeFailure::Told(text)))
    }

    fn check_lengths(
        &self,
        call: &Call,
        heads: &[Option<Frame>],
        sends: &[&[u8]],
        receives: &[&mut [u8]],
    ) -> Result<(), ExchangeFailure> {
        let fail = |from: usize, sent: u64, to: usize, wanted: u64| {
            let Call { number, text, .. } = call;
            Err(ExchangeFailure::Own(format!(
                "rank {from} sends {sent} bytes to rank {to}, which waits for {wanted}, both at `{text}` (exchange \
                 {number})"
            )))
        };
        let rank = self.rank();
        for (peer, head) in heads.iter().enumerate() {
            let Some(head) = head else { continue };
            let (sent, wanted) = (sends[peer].len() as u64, receives[peer].len() as u64);
            if head.sent != wanted {
                return fail(peer, head.sent, rank, wanted);
            }
            if head.wanted != sent {
                return fail(rank, sent, peer, head.wanted);
            }
        }
        Ok(())
    }

    fn bodies(
        &self,
        state: &mut State,
        call: &Call,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), ExchangeFailure> {
        let timeout = self.timeout();
        let mut deadline = Instant::now() + timeout;
        let mut failure = None;
        let mut gives_up = |has_arrived: bool| {
            if has_arrived {
                deadline = Instant::now() + timeout;
            }
            let taken = self.take_in(state, call, Duration::ZERO);
            failure = taken.err().or(state.failure().map(ExchangeFailure::Told));
            match &failure {
                Some(ExchangeFailure::Own(reason) | ExchangeFailure::Told(reason)) => Some(reason.clone()),
                None => (Instant::now() >= deadline).then(|| self.too_late(call, timeout, &[])),
            }
        };
        match self.transport.bodies(sends, receives, &mut gives_up, work) {
            Ok(()) => Ok(()),
            Err(Undone::Failed(error)) => Err(self.of_transport(call, &error)),
            Err(Undone::GivenUp(missing)) => {
                Err(failure.unwrap_or_else(|| ExchangeFailure::Own(self.too_late(call, timeout, &missing))))
            }
        }
    }

    fn of_transport(&self, call: &Call, error: &str) -> ExchangeFailure {
        ExchangeFailure::Own(format!(
            "rank {} failed at `{}` (exchange {}): {error}",
            self.rank(),
            call.text,
            call.number
        ))
    }

    fn too_late(&self, call: &Call, timeout: Duration, missing: &[usize]) -> String {
        let (rank, Call { number, text, .. }) = (self.rank(), call);
        let missing = if missing.is_empty() { "others".to_owned() } else { agree::ranks(missing) };
        format!("rank {rank} waited {timeout:?} at `{text}` (exchange {number}) for {missing}")
    }

    /// The calls in which the workers are, as far as it is known.
    fn disagreement(&self, call: &Call, heads: &[Option<Frame>]) -> String {
        let mut calls: Vec<(&Call, Vec<usize>)> = vec![];
        let mut missing = vec![];
        for (rank, head) in heads.iter().enumerate() {
            let theirs = match head {
                Some(head) => &head.call,
                None if rank == self.rank() => call,
                None => {
                    missing.push(rank);
                    continue;
                }
            };
            match calls.iter_mut().find(|(known, _)| known.is(theirs)) {
                Some((_, ranks)) => ranks.push(rank),
                None => calls.push((theirs, vec![rank])),
            }
        }
        let is_cut = calls.iter().any(|(a, _)| calls.iter().any(|(b, _)| a.text == b.text && !a.is(b)));
        let mut places: Vec<String> = vec![];
        for (Call { number, text, digest }, at) in &calls {
            let are = if at.len() == 1 { "is" } else { "are" };
            let digest = if is_cut { format!(", digest {digest:032x}") } else { String::new() };
            places.push(format!("{} {are} at `{text}` (exchange {number}{digest})", agree::ranks(at)));
        }
        if !missing.is_empty() {
            places.push(format!("nothing is known of {}", agree::ranks(&missing)));
        }
        places.join(", ")
    }
}

impl Communicator for Wire {
    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn size(&self) -> usize {
        self.transport.size()
    }

    fn exchange(&self, call: &str, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> Result<(), String> {
        self.exchange_while(call, sends, receives, &mut || false)
    }

    fn exchange_while(
        &self,
        call: &str,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        let mut state = self.begin(call, sends, receives)?;
        self.exchange_in(&mut state, call, sends, receives, work)
    }

    fn next_round(
        &self,
        call: &str,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        let mut state = self.begin(call, sends, receives)?;
        // Only errors show it.
        let call = Call { number: state.n_exchanges, digest: 0, text: call.to_owned() };
        let bytes = |&peer: &usize| !sends[peer].is_empty();
        let sends: Vec<Outgoing<'_>> = self.peers().filter(bytes).map(|peer| (peer, sends[peer])).collect();
        let receives = receives.iter_mut().enumerate().map(|(peer, receive)| (peer, &mut **receive));
        let mut receives: Vec<Incoming<'_>> =
            receives.filter(|(peer, receive)| *peer != self.rank() && !receive.is_empty()).collect();
        let outcome = self.bodies(&mut state, &call, &sends, &mut receives, work);
        // A worker may fail between the rounds of a call, which nothing tells from a failure behind it.
        let outcome = outcome.and_then(|()| self.hear(&mut state, &call, u64::MAX));
        self.told(&mut state, outcome)
    }

    fn agree(&self, class: &str, text: &str) -> Result<(), String> {
        agree::on_text(self, "the graph of a function", class, text)
    }

    fn link(&self, gpu: &Arc<Gpu>) -> Result<Option<Arc<dyn GpuLink>>, String> {
        self.links.link(self, &self.transport.host(), gpu, self.timeout())
    }

    fn fail(&self, message: &str) {
        Wire::fail(self, message);
    }

    fn check(&self) -> Result<(), String> {
        let mut state = self.lock();
        while let Some((from, bytes)) = self.transport.receive(Duration::ZERO)? {
            state.early[from].extend(frame::decode(&bytes));
        }
        if state.broken.is_none() {
            state.broken = state.failure();
        }
        state.broken.clone().map_or(Ok(()), Err)
    }
}
