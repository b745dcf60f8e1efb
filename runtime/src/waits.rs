//! The threads that make values and those that wait, over all stores of the process: circles, and makers that do not get on.
//!
//! Guarantees that nobody begins to wait for a value which cannot come before he goes on himself, as far as waits for
//! values tell; and that of the threads which find that a value does not come, one at a time is told to make it.
//!
//! A thread that waits for something else, such as the end of a thread that it has spawned, looks like one that thinks.
//! Only time tells them apart, and only if the thread runs code of a user; see `pulse.rs`.

use crate::pulse::Pulse;
use crate::sync::{Arc, Mutex, ThreadId, lock};

/// The flight of a value: the address of what its waiters and makers keep alive.
pub(crate) type FlightId = usize;

/// A thread that waits for a flight; it waits for one at most.
struct Waiting {
    waiter: ThreadId,
    flight: FlightId,
}

/// A thread that makes the value of a flight; it may make several, one for the sake of another.
struct Making {
    maker: ThreadId,
    flight: FlightId,
    /// How many makers before this one it has seen come to a standstill, each in the place of the one before.
    depth: u32,
    pulse: Arc<Pulse>,
}

#[derive(Default)]
struct WaitGraph {
    waiting: Vec<Waiting>,
    making: Vec<Making>,
}

/// The waits of the process.
#[derive(Default)]
pub(crate) struct Waits {
    graph: Mutex<WaitGraph>,
}

/// The state of the makers of a flight while none of them is known to be at work: as long as it stays the same, none of
/// them gets on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standstill {
    pub(crate) n_makers: u32,
    beats: u64,
}

impl WaitGraph {
    fn makers(&self, flight: FlightId) -> impl Iterator<Item = &Making> {
        self.making.iter().filter(move |making| making.flight == flight)
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
        self.makers(flight).any(|making| {
            let next = self.awaited_by(making.maker);
            making.maker != thread && next.is_none_or(|next| self.can_complete(next, thread, seen))
        })
    }

    /// Adds what is seen of the makers of a flight, and of those that they wait for; returns whether none is at work.
    fn add_standstill(&self, flight: FlightId, seen: &mut Vec<FlightId>, sum: &mut Standstill) -> bool {
        if seen.contains(&flight) {
            return true;
        }
        seen.push(flight);
        self.makers(flight).all(|making| match self.awaited_by(making.maker) {
            Some(next) => self.add_standstill(next, seen, sum),
            None => {
                sum.n_makers += 1;
                sum.beats = sum.beats.wrapping_add(making.pulse.beats());
                making.pulse.is_in_user_code()
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

    /// Notes that this thread, which is `maker`, makes the value of a flight.
    pub(crate) fn make(&self, maker: ThreadId, flight: FlightId) {
        lock(&self.graph).making.push(Making { maker, flight, depth: 0, pulse: Pulse::own() });
    }

    /// Whether a thread makes the value of a flight.
    pub(crate) fn makes(&self, thread: ThreadId, flight: FlightId) -> bool {
        lock(&self.graph).makers(flight).any(|making| making.maker == thread)
    }

    /// Notes that `waiter` waits for a flight, unless that cannot complete before he goes on. Returns whether he may wait,
    /// as the depth that he would have as a maker.
    pub(crate) fn wait(&self, waiter: ThreadId, flight: FlightId) -> Option<u32> {
        let mut graph = lock(&self.graph);
        if !graph.can_complete(flight, waiter, &mut vec![]) {
            return None;
        }
        let depth = graph.makers(flight).map(|making| making.depth + 1).max().unwrap_or(0);
        graph.waiting.push(Waiting { waiter, flight });
        Some(depth)
    }

    /// The state of the makers of a flight, if none of them is known to be at work.
    pub(crate) fn standstill(&self, flight: FlightId) -> Option<Standstill> {
        lock(&self.graph).standstill(flight)
    }

    /// Makes this thread, which is `waiter`, a maker of the flight that it waited for, if the makers still stand as it
    /// has seen them; so of several that saw the same, one does.
    pub(crate) fn take_over(&self, waiter: ThreadId, flight: FlightId, depth: u32, seen: Standstill) -> bool {
        let mut graph = lock(&self.graph);
        if graph.standstill(flight) != Some(seen) {
            return false;
        }
        graph.waiting.retain(|other| other.waiter != waiter || other.flight != flight);
        graph.making.push(Making { maker: waiter, flight, depth, pulse: Pulse::own() });
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

    /// Forgets a maker; returns whether the flight has none left.
    pub(crate) fn end_making(&self, maker: ThreadId, flight: FlightId) -> bool {
        let mut graph = lock(&self.graph);
        graph.making.retain(|other| other.maker != maker || other.flight != flight);
        graph.makers(flight).next().is_none()
    }
}
