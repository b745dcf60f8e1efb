//! Streams, events, captures.

#![allow(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{c_int, c_uint};

use super::foreign::{Code, Out, Status};
use super::graph::Graph;
use super::state::{Event, State, call, context_of};
use super::stream::{Capture, Recorded, Stream};
use super::work::Work;

/// Flag of an event that has no time.
const DISABLE_TIMING: c_uint = 2;

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(to: Out<usize>, flags: c_uint) -> c_int {
    call("cuStreamCreate", |state| create(state, to, flags, 0))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(to: Out<usize>, flags: c_uint, priority: c_int) -> c_int {
    call("cuStreamCreateWithPriority", |state| create(state, to, flags, priority))
}

fn create(state: &mut State, to: Out<usize>, flags: c_uint, priority: c_int) -> Status {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let device = state.working_device()?;
    let handle = state.handle();
    state.streams.insert(handle, Stream::new(device, flags, priority.clamp(-5, 0)));
    to.set(handle)
}

/// The work that is queued is done first.
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_int {
    call("cuStreamDestroy_v2", |state| {
        let key = state.stream_key(stream)?;
        if State::is_null_stream(key) {
            return Err(Code::INVALID_HANDLE);
        }
        let drained = state.drain(key, u64::MAX);
        state.streams.remove(&key);
        drained
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> c_int {
    call("cuStreamSynchronize", |state| {
        let key = state.stream_key(stream)?;
        state.check_not_capturing(key)?;
        state.drain(key, u64::MAX)
    })
}

/// Asking does not do the work: a program that waits by asking sees it done the second time.
#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> c_int {
    call("cuStreamQuery", |state| {
        let key = state.stream_key(stream)?;
        state.check_not_capturing(key)?;
        if state.stream(key)?.is_idle() {
            let device = state.stream(key)?.device;
            return state.check_working(device);
        }
        state.drain(key, u64::MAX)?;
        Err(Code::NOT_READY)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: usize, flags: Out<c_uint>) -> c_int {
    call("cuStreamGetFlags", |state| {
        let key = state.stream_key(stream)?;
        flags.set(state.stream(key)?.flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: usize, priority: Out<c_int>) -> c_int {
    call("cuStreamGetPriority", |state| {
        let key = state.stream_key(stream)?;
        priority.set(state.stream(key)?.priority)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: usize, context: Out<usize>) -> c_int {
    call("cuStreamGetCtx", |state| {
        let key = state.stream_key(stream)?;
        context.set(context_of(state.stream(key)?.device))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_int {
    call("cuStreamWaitEvent", |state| {
        let key = state.stream_key(stream)?;
        let recorded = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.recorded.clone();
        match recorded {
            Recorded::Never => Ok(()),
            Recorded::Work { .. } if state.stream(key)?.capture.is_some() => {
                // A capture cannot wait for work outside of it.
                state.check_not_capturing(key)
            }
            Recorded::Work { stream, until } => state.enqueue(key, Work::Wait { stream, until }),
            Recorded::Captured { graph, tails } => join(state, key, graph, &tails),
        }
    })
}

/// Lets a stream take part in a capture, behind these nodes.
fn join(state: &mut State, key: usize, graph: usize, tails: &[usize]) -> Status {
    let template = state.streams.values().filter_map(|stream| stream.capture.as_ref()).find(|own| own.graph == graph);
    let Some(template) = template.cloned() else { return Err(Code::CAPTURED_EVENT) };
    let stream = state.stream(key)?;
    match stream.capture.as_mut() {
        Some(capture) if capture.graph == graph => {
            let new = tails.iter().filter(|tail| !capture.tails.contains(tail)).copied().collect::<Vec<_>>();
            capture.tails.extend(new);
            Ok(())
        }
        Some(_) => Err(Code::CAPTURE_UNSUPPORTED),
        None => {
            stream.capture = Some(Capture { tails: tails.to_vec(), is_origin: false, ..template });
            Ok(())
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: c_uint) -> c_int {
    call("cuStreamBeginCapture_v2", |state| {
        let key = state.stream_key(stream)?;
        if State::is_null_stream(key) || mode > 2 || state.stream(key)?.capture.is_some() {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let graph = state.handle();
        state.graphs.insert(graph, Graph::default());
        let thread = std::thread::current().id();
        let capture = Capture { graph, tails: vec![], is_origin: true, is_valid: true, mode, thread };
        state.stream(key)?.capture = Some(capture);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: usize, to: Out<usize>) -> c_int {
    call("cuStreamEndCapture", |state| {
        let key = state.stream_key(stream)?;
        let capture = state.stream(key)?.capture.clone().ok_or(Code::CAPTURE_UNMATCHED)?;
        if !capture.is_origin {
            return Err(Code::CAPTURE_UNMATCHED);
        }
        let of_this = |own: &Option<Capture>| own.as_ref().is_some_and(|own| own.graph == capture.graph);
        let is_valid = state
            .streams
            .values()
            .all(|stream| !of_this(&stream.capture) || stream.capture.as_ref().is_some_and(|capture| capture.is_valid));
        for stream in state.streams.values_mut().filter(|stream| of_this(&stream.capture)) {
            stream.capture = None;
        }
        let joined = state.graphs.get(&capture.graph).is_some_and(|graph| graph.all_lead_to(&capture.tails));
        let fault = match (is_valid, joined) {
            (true, true) => return to.set(capture.graph),
            (false, _) => Code::CAPTURE_INVALIDATED,
            (true, false) => Code::CAPTURE_UNJOINED,
        };
        state.graphs.remove(&capture.graph);
        to.set_if(0);
        Err(fault)
    })
}

/// 0 is not capturing, 1 is capturing, 2 is a capture that is no longer valid.
fn capture_status(state: &mut State, stream: usize) -> Result<(c_int, usize), Code> {
    let key = state.stream_key(stream)?;
    let capture = state.stream(key)?.capture.as_ref();
    Ok(capture.map_or((0, 0), |capture| (if capture.is_valid { 1 } else { 2 }, capture.graph)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: usize, status: Out<c_int>) -> c_int {
    call("cuStreamIsCapturing", |state| status.set(capture_status(state, stream)?.0))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    count: Out<usize>,
) -> c_int {
    call("cuStreamGetCaptureInfo_v2", |state| {
        let (found, handle) = capture_status(state, stream)?;
        id.set_if(handle as u64);
        graph.set_if(handle);
        nodes.set_if(0);
        count.set_if(0);
        status.set(found)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) -> c_int {
    call("cuThreadExchangeStreamCaptureMode", |_| mode.get().and_then(|_| mode.set(0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(to: Out<usize>, flags: c_uint) -> c_int {
    call("cuEventCreate", |state| {
        let device = state.working_device()?;
        let handle = state.handle();
        let has_time = flags & DISABLE_TIMING == 0;
        state.events.insert(handle, Event { device, has_time, ..Event::default() });
        to.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> c_int {
    call("cuEventDestroy_v2", |state| state.events.remove(&event).map(drop).ok_or(Code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_int {
    call("cuEventRecord", |state| {
        let key = state.stream_key(stream)?;
        let device = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.device;
        if device != state.stream(key)?.device {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = state.record(key, event)?;
        if let Some(event) = state.events.get_mut(&event) {
            event.recorded = recorded;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: usize, stream: usize, _flags: c_uint) -> c_int {
    cuEventRecord(event, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> c_int {
    call("cuEventSynchronize", |state| match state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.recorded.clone() {
        Recorded::Work { stream, until } if state.streams.contains_key(&stream) => state.drain(stream, until),
        Recorded::Captured { .. } => Err(Code::CAPTURED_EVENT),
        _ => Ok(()),
    })
}

/// Asking does not do the work, but lets it be done: it is, the second time.
#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> c_int {
    call("cuEventQuery", |state| {
        let recorded = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.recorded.clone();
        if state.is_done(&recorded) {
            return Ok(());
        }
        if let Recorded::Work { stream, until } = recorded {
            state.drain(stream, until)?;
        }
        Err(Code::NOT_READY)
    })
}

fn elapsed(state: &State, to: Out<f32>, start: usize, end: usize) -> Status {
    let event = |handle: usize| state.events.get(&handle).ok_or(Code::INVALID_HANDLE);
    let (start, end) = (event(start)?, event(end)?);
    if !start.has_time || !end.has_time {
        return Err(Code::INVALID_HANDLE);
    }
    if !state.is_done(&start.recorded) || !state.is_done(&end.recorded) {
        return Err(Code::NOT_READY);
    }
    let (Some(start), Some(end)) = (start.time, end.time) else { return Err(Code::INVALID_HANDLE) };
    let forward = end.saturating_duration_since(start).as_secs_f32();
    to.set(1e3 * (forward - start.saturating_duration_since(end).as_secs_f32()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(to: Out<f32>, start: usize, end: usize) -> c_int {
    call("cuEventElapsedTime", |state| elapsed(state, to, start, end))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(to: Out<f32>, start: usize, end: usize) -> c_int {
    call("cuEventElapsedTime_v2", |state| elapsed(state, to, start, end))
}
