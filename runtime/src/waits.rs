//! The threads that make values and those that wait, over all stores of the process: circles, and producers that do not get on.
//!
//! Guarantees that nobody begins to wait for a value which cannot come before he goes on himself, as far as waits for
//! values tell; and that of the threads which find that a value does not come, one at a time is told to make it.
//!
//! A thread that waits for something else, such as the end of a thread that it has spawned, looks like one that thinks.
//! Only time tells them apart, and only if the thread runs code of a user; see `pulse.rs`.

use crate::pulse::Pulse;
use crate::sync::{Arc, Mutex, ThreadId, lock};

/// The flight of a value: the address of what its waiters and producers keep alive.
pub(crate) type FlightId = usize;

/// A thread that waits for a flight; it waits for one at most.
struct Waiting {
    waiter: ThreadId,
    flight: FlightId,
}

/// A thread that makes the value of a flight; it may make several, one for the sake of another.
struct Producing {
    producer: ThreadId,
    flight: FlightId,
    /// How many producers before this one it has seen come to a standstill, each in the place of the one before.
    depth: u32,
    pulse: Arc<Pulse>,
}

#[derive(Default)]
struct WaitGraph {
    waiting: Vec<Waiting>,
    producing: Vec<Producing>,
}

/// The waits of the process.
#[derive(Default)]
pub(crate) struct Waits {
    graph: Mutex<WaitGraph>,
}

/// The state of the producers of a flight while none of them is known to be at work: as long as it stays the same, none of
/// them gets on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standstill {
    pub(crate) n_producers: u32,
    beats: u64,
}

impl WaitGraph {
    fn producers(&self, flight: FlightId) -> impl Iterator<Item = &Producing> {
        self.producing.iter().filter(move |producing| producing.flight == flight)
    }

    fn awaited_by(&self, thread: ThreadId) -> Option<FlightId> {
        self.waiting.iter().find(|waiting| waiting.waiter == thread).map(|waiting| waiting.flight)
    }

    /// Whether a flight may complete though `thread` stands still; `seen` are flights that would have to complete before.
    fn can_complete(&self, flight: FlightId, thread: ThreadId, seen: &mut Vec<FlightId>) -> bool {
        if seen.contains(&flight) {
            return false;
        }
        seen.push(flight);
        self.producers(flight).any(|producing| {
            let next = self.awaited_by(producing.producer);
            producing.producer != thread && next.is_none_or(|next| self.can_complete(next, thread, seen))
        })
    }

    /// Adds what is seen of the producers of a flight, and of those that they wait for; returns whether none is at work.
    fn add_standstill(&self, flight: FlightId, seen: &mut Vec<FlightId>, sum: &mut Standstill) -> bool {
        if seen.contains(&flight) {
            return true;
        }
        seen.push(flight);
        self.producers(flight).all(|producing| match self.awaited_by(producing.producer) {
            Some(next) => self.add_standstill(next, seen, sum),
            None => {
                sum.n_producers += 1;
                sum.beats = sum.beats.wrapping_add(producing.pulse.beats());
                producing.pulse.is_in_user_code()
            }
        })
    }

    fn standstill(&self, flight: FlightId) -> Option<Standstill> {
        let mut sum = Standstill::default();
        self.add_standstill(flight, &mut vec![], &mut sum).then_some(sum)
    }
}

impl Waits {
    /// The waits of the process; a model checker gives each of its runs its own.
    pub(crate) fn shared() -> Arc<Waits> {
        #[cfg(not(loom))]
        {
            static SHARED: std::sync::OnceLock<Arc<Waits>> = std::sync::OnceLock::new();
            SHARED.get_or_init(Arc::default).clone()
        }
        #[cfg(loom)]
        Arc::new(Waits::default())
    }

    /// Notes that this thread, which is `producer`, makes the value of a flight.
    pub(crate) fn begin_producing(&self, producer: ThreadId, flight: FlightId) {
        lock(&self.graph).producing.push(Producing { producer, flight, depth: 0, pulse: Pulse::own() });
    }

    /// Whether a thread makes the value of a flight.
    pub(crate) fn is_producer(&self, thread: ThreadId, flight: FlightId) -> bool {
        lock(&self.graph).producers(flight).any(|producing| producing.producer == thread)
    }

    /// Notes that `waiter` waits for a flight, unless that cannot complete before he goes on. Returns whether he may wait,
    /// as the depth that he would have as a producer.
    pub(crate) fn wait(&self, waiter: ThreadId, flight: FlightId) -> Option<u32> {
        let mut graph = lock(&self.graph);
        if !graph.can_complete(flight, waiter, &mut vec![]) {
            return None;
        }
        let depth = graph.producers(flight).map(|producing| producing.depth + 1).max().unwrap_or(0);
        graph.waiting.push(Waiting { waiter, flight });
        Some(depth)
    }

    /// The state of the producers of a flight, if none of them is known to be at work.
    pub(crate) fn standstill(&self, flight: FlightId) -> Option<Standstill> {
        lock(&self.graph).standstill(flight)
    }

    /// Makes this thread, which is `waiter`, a producer of the flight that it waited for, if the producers still stand as it
    /// has seen them; so of several that saw the same, one does.
    pub(crate) fn take_over(&self, waiter: ThreadId, flight: FlightId, depth: u32, seen: Standstill) -> bool {
        let mut graph = lock(&self.graph);
        if graph.standstill(flight) != Some(seen) {
            return false;
        }
        graph.waiting.retain(|other| other.waiter != waiter || other.flight != flight);
        graph.producing.push(Producing { producer: waiter, flight, depth, pulse: Pulse::own() });
        true
    }

    /// Forgets the waits for a flight: the waiters are about to wake.
    pub(crate) fn end_waits(&self, flight: FlightId) {
        lock(&self.graph).waiting.retain(|other| other.flight != flight);
    }

    /// Forgets one wait.
    pub(crate) fn end_wait(&self, waiter: ThreadId, flight: FlightId) {
        lock(&self.graph).waiting.retain(|other| other.waiter != waiter || other.flight != flight);
    }

    /// Forgets a producer; returns whether the flight has none left.
    pub(crate) fn end_producing(&self, producer: ThreadId, flight: FlightId) -> bool {
        let mut graph = lock(&self.graph);
        graph.producing.retain(|other| other.producer != producer || other.flight != flight);
        graph.producers(flight).next().is_none()
    }
}
