//! Streams: queues of work, and captures.

use std::collections::VecDeque;

use super::foreign::{Code, Status};
use super::graph::Node;
use super::state::State;
use super::work::Work;

/// Work on one stream after which it is done without being asked.
const MAX_QUEUE: usize = 512;

/// The stream does not wait for the null stream.
pub(super) const NON_BLOCKING: u32 = 1;

/// A stream.
pub(super) struct Stream {
    pub(super) device: usize,
    pub(super) flags: u32,
    pub(super) priority: i32,
    queue: VecDeque<(u64, Work)>,
    /// Numbers of the last work that was queued and of the last that was done.
    issued: u64,
    done: u64,
    pub(super) capture: Option<Capture>,
}

/// The part that a stream has in a capture.
#[derive(Clone)]
pub(super) struct Capture {
    /// The graph that is made.
    pub(super) graph: usize,
    /// The nodes that the next one depends on.
    pub(super) tails: Vec<usize>,
    /// The capture began here.
    pub(super) is_origin: bool,
    pub(super) is_valid: bool,
    pub(super) mode: u32,
    pub(super) thread: std::thread::ThreadId,
}

/// The work that an event stands for.
#[derive(Clone, Default)]
pub(super) enum Recorded {
    #[default]
    Never,
    /// Work of a stream up to a number.
    Work { stream: usize, until: u64 },
    /// Nodes of a graph that is being captured.
    Captured { graph: usize, tails: Vec<usize> },
}

impl Stream {
    pub(super) fn new(device: usize, flags: u32, priority: i32) -> Stream {
        Stream { device, flags, priority, queue: VecDeque::new(), issued: 0, done: 0, capture: None }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}

impl State {
    /// Queues work, or makes a node of it if the stream is captured.
    pub(super) fn enqueue(&mut self, key: usize, work: Work) -> Status {
        let device = self.stream(key)?.device;
        if self.stream(key)?.capture.is_some() {
            return self.capture_work(key, work);
        }
        self.check_working(device)?;
        // The null stream waits for all blocking ones, and they for it.
        if Self::is_null_stream(key) {
            let others: Vec<usize> = self
                .streams
                .iter()
                .filter(|(own, stream)| **own != key && stream.device == device && stream.flags & NON_BLOCKING == 0)
                .map(|(own, _)| *own)
                .collect();
            for other in others {
                self.drain(other, u64::MAX)?;
            }
        } else if self.stream(key)?.flags & NON_BLOCKING == 0 {
            self.drain(Self::null_stream(device), u64::MAX)?;
        }
        let stream = self.stream(key)?;
        stream.issued += 1;
        let number = stream.issued;
        stream.queue.push_back((number, work));
        if stream.queue.len() > MAX_QUEUE {
            return self.drain(key, u64::MAX);
        }
        Ok(())
    }

    fn capture_work(&mut self, key: usize, work: Work) -> Status {
        let stream = self.stream(key)?;
        let Some(capture) = stream.capture.as_mut() else { return Err(Code::INVALID_HANDLE) };
        if !capture.is_valid {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        if matches!(work, Work::Free(_)) {
            capture.is_valid = false;
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let (id, deps) = (capture.graph, capture.tails.clone());
        let handle = self.handle();
        let graph = self.graphs.get_mut(&id).ok_or(Code::CAPTURE_INVALIDATED)?;
        graph.nodes.push(Node { handle, work, deps });
        let tail = graph.nodes.len() - 1;
        if let Some(capture) = self.stream(key)?.capture.as_mut() {
            capture.tails = vec![tail];
        }
        Ok(())
    }

    /// Does the work of a stream up to a number; nothing that is queued behind it.
    pub(super) fn drain(&mut self, key: usize, until: u64) -> Status {
        let device = self.stream(key)?.device;
        while let Some((number, work)) = self.stream(key)?.queue.pop_front_if(|(number, _)| *number <= until) {
            // Memory is given back whatever happened.
            if self.devices[device].broken.is_none() || matches!(work, Work::Free(_)) {
                if let Work::Wait { stream, until } = &work {
                    // A stream that is gone has done its work; a fault of another device is not this one's.
                    if self.streams.contains_key(stream) {
                        let _ = self.drain(*stream, *until);
                    }
                } else if let Err(broken) = self.perform(device, &work) {
                    self.break_device(device, broken);
                }
            }
            self.stream(key)?.done = number;
        }
        self.check_working(device)
    }

    /// Does all work of a device.
    pub(super) fn drain_device(&mut self, device: usize) -> Status {
        let keys: Vec<usize> =
            self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(key, _)| *key).collect();
        for key in keys {
            self.drain(key, u64::MAX)?;
        }
        self.check_working(device)
    }

    /// Does all work there is.
    pub(super) fn drain_all(&mut self) {
        for key in self.streams.keys().copied().collect::<Vec<_>>() {
            let _ = self.drain(key, u64::MAX);
        }
    }

    /// Refuses what must not happen while a stream is captured, and spoils the capture.
    pub(super) fn check_not_capturing(&mut self, key: usize) -> Status {
        match self.stream(key)?.capture.as_mut() {
            Some(capture) => {
                capture.is_valid = false;
                Err(Code::CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// Refuses calls that could synchronise while this thread captures anything in a mode that forbids them.
    pub(super) fn check_no_capture(&mut self) -> Status {
        let thread = std::thread::current().id();
        let mut found = Ok(());
        for capture in self.streams.values_mut().filter_map(|stream| stream.capture.as_mut()) {
            // Mode 0 is of all threads, 1 of the one that began, 2 allows everything.
            if capture.mode == 0 || capture.mode == 1 && capture.thread == thread {
                capture.is_valid = false;
                found = Err(Code::CAPTURE_UNSUPPORTED);
            }
        }
        found
    }

    /// The work that an event recorded now on a stream stands for.
    pub(super) fn record(&mut self, key: usize, event: usize) -> Result<Recorded, Code> {
        if let Some(capture) = &self.stream(key)?.capture {
            return Ok(Recorded::Captured { graph: capture.graph, tails: capture.tails.clone() });
        }
        self.enqueue(key, Work::Record(event))?;
        let until = self.stream(key)?.issued;
        Ok(Recorded::Work { stream: key, until })
    }

    /// Whether what an event stands for is done.
    pub(super) fn is_done(&self, recorded: &Recorded) -> bool {
        match recorded {
            Recorded::Work { stream, until } => self.streams.get(stream).is_none_or(|stream| stream.done >= *until),
            _ => true,
        }
    }
}
