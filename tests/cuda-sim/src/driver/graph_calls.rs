//! Graphs: built by hand or captured, made ready, launched, changed.

#![allow(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::sync::Arc;

use super::foreign::{Code, In, Out, Status};
use super::graph::{Exec, Graph};
use super::launch_calls::Shape;
use super::nodes::{CopyParams, HostParams, KernelParams, SetParams, UpdateInfo};
use super::state::{State, call};
use super::work::Work;

/// Adds a node; gives its handle back.
fn add(state: &mut State, to: Out<usize>, graph: usize, deps: In<usize>, count: usize, work: Work) -> Status {
    let deps = if count == 0 { vec![] } else { deps.list(count)? };
    let handle = state.handle();
    state.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?.add(handle, work, &deps)?;
    to.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphCreate(to: Out<usize>, flags: c_uint) -> c_int {
    call("cuGraphCreate", |state| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let handle = state.handle();
        state.graphs.insert(handle, Graph::default());
        to.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: usize) -> c_int {
    call("cuGraphDestroy", |state| state.graphs.remove(&graph).map(drop).ok_or(Code::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphClone(to: Out<usize>, graph: usize) -> c_int {
    call("cuGraphClone", |state| {
        let copy = state.graphs.get(&graph).ok_or(Code::INVALID_VALUE)?.clone();
        let handle = state.handle();
        state.graphs.insert(handle, copy);
        to.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddKernelNode_v2(
    to: Out<usize>,
    graph: usize,
    deps: In<usize>,
    count: usize,
    params: In<KernelParams>,
) -> c_int {
    call("cuGraphAddKernelNode_v2", |state| {
        let work = params.get()?.work(state)?;
        add(state, to, graph, deps, count, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddMemcpyNode(
    to: Out<usize>,
    graph: usize,
    deps: In<usize>,
    count: usize,
    params: In<CopyParams>,
    _context: usize,
) -> c_int {
    call("cuGraphAddMemcpyNode", |state| {
        let work = params.get()?.work(state)?;
        add(state, to, graph, deps, count, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddMemsetNode(
    to: Out<usize>,
    graph: usize,
    deps: In<usize>,
    count: usize,
    params: In<SetParams>,
    _context: usize,
) -> c_int {
    call("cuGraphAddMemsetNode", |state| {
        let work = params.get()?.work()?;
        add(state, to, graph, deps, count, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddHostNode(
    to: Out<usize>,
    graph: usize,
    deps: In<usize>,
    count: usize,
    params: In<HostParams>,
) -> c_int {
    call("cuGraphAddHostNode", |state| {
        let HostParams { run, data } = params.get()?;
        let work = Work::Host { run: run.ok_or(Code::INVALID_VALUE)?, data };
        add(state, to, graph, deps, count, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddEmptyNode(to: Out<usize>, graph: usize, deps: In<usize>, count: usize) -> c_int {
    call("cuGraphAddEmptyNode", |state| add(state, to, graph, deps, count, Work::Nothing))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddDependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) -> c_int {
    call("cuGraphAddDependencies", |state| {
        let graph = state.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
        for n in 0..count {
            let (from, to) = (graph.index(from.at(n)?)?, graph.index(to.at(n)?)?);
            graph.nodes[to].deps.push(from);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddDependencies_v2(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    _edges: usize,
    count: usize,
) -> c_int {
    cuGraphAddDependencies(graph, from, to, count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetNodes(graph: usize, to: Out<usize>, count: Out<usize>) -> c_int {
    call("cuGraphGetNodes", |state| {
        let graph = state.graphs.get(&graph).ok_or(Code::INVALID_VALUE)?;
        if to.is_null() {
            return count.set(graph.nodes.len());
        }
        let room = count.get()?;
        for (n, node) in graph.nodes.iter().take(room).enumerate() {
            to.set_at(n, node.handle);
        }
        count.set(graph.nodes.len().min(room))
    })
}

/// The work of a node, in whichever graph.
fn node_work(state: &State, node: usize) -> Result<&Work, Code> {
    let nodes = state.graphs.values().flat_map(|graph| &graph.nodes);
    nodes.into_iter().find(|own| own.handle == node).map(|node| &node.work).ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetType(node: usize, to: Out<c_int>) -> c_int {
    call("cuGraphNodeGetType", |state| {
        to.set(match node_work(state, node)? {
            Work::Launch(_) => 0,
            Work::CopyIn { .. } | Work::CopyBytes { .. } | Work::CopyOut { .. } | Work::CopyWithin { .. } => 1,
            Work::Set { .. } => 2,
            Work::Host { .. } => 3,
            Work::Graph(_) => 4,
            Work::Record(_) | Work::Wait { .. } | Work::Free(_) | Work::Nothing => 5,
        })
    })
}

/// Function, grid and block of a node; its parameters are not given back.
#[unsafe(no_mangle)]
extern "C" fn cuGraphKernelNodeGetParams_v2(node: usize, to: Out<KernelParams>) -> c_int {
    call("cuGraphKernelNodeGetParams_v2", |state| {
        let Work::Launch(launch) = node_work(state, node)? else { return Err(Code::INVALID_VALUE) };
        let shape = Shape { grid: launch.grid, block: launch.block, shared: launch.shared };
        let (pointers, extra) = (In::null(), In::null());
        to.set(KernelParams { function: launch.function, shape, pointers, extra, kernel: 0, context: 0 })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphKernelNodeSetParams_v2(node: usize, params: In<KernelParams>) -> c_int {
    call("cuGraphKernelNodeSetParams_v2", |state| {
        let work = params.get()?.work(state)?;
        let nodes = state.graphs.values_mut().flat_map(|graph| &mut graph.nodes);
        let node = nodes.into_iter().find(|own| own.handle == node).ok_or(Code::INVALID_VALUE)?;
        node.work = work;
        Ok(())
    })
}

fn instantiate(state: &mut State, to: Out<usize>, graph: usize) -> Status {
    let device = state.working_device()?;
    let nodes = state.graphs.get(&graph).ok_or(Code::INVALID_VALUE)?.nodes.clone();
    let exec = Exec { nodes, device };
    // A cycle leaves nodes out.
    if exec.sequence(false).len() != exec.nodes.len() {
        return Err(Code::INVALID_VALUE);
    }
    let handle = state.handle();
    state.execs.insert(handle, Arc::new(exec));
    to.set(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(to: Out<usize>, graph: usize, _flags: c_ulonglong) -> c_int {
    call("cuGraphInstantiateWithFlags", |state| instantiate(state, to, graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiate_v2(
    to: Out<usize>,
    graph: usize,
    _error_node: Out<usize>,
    _log: Out<c_char>,
    _room: usize,
) -> c_int {
    call("cuGraphInstantiate_v2", |state| instantiate(state, to, graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(exec: usize) -> c_int {
    call("cuGraphExecDestroy", |state| state.execs.remove(&exec).map(drop).ok_or(Code::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(exec: usize, stream: usize) -> c_int {
    call("cuGraphLaunch", |state| {
        let exec = Arc::clone(state.execs.get(&exec).ok_or(Code::INVALID_VALUE)?);
        let key = state.stream_key(stream)?;
        if state.stream(key)?.device != exec.device {
            return Err(Code::INVALID_HANDLE);
        }
        state.enqueue(key, Work::Graph(exec))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(exec: usize, stream: usize) -> c_int {
    call("cuGraphUpload", |state| {
        let key = state.stream_key(stream)?;
        state.check_not_capturing(key)?;
        state.execs.get(&exec).map(drop).ok_or(Code::INVALID_VALUE)
    })
}

/// Changes the work of one node; launches that are queued keep the old one.
fn change(state: &mut State, exec: usize, node: usize, work: Work) -> Status {
    let exec = Arc::make_mut(state.execs.get_mut(&exec).ok_or(Code::INVALID_VALUE)?);
    let node = exec.nodes.iter_mut().find(|own| own.handle == node).ok_or(Code::INVALID_VALUE)?;
    if std::mem::discriminant(&node.work) != std::mem::discriminant(&work) {
        return Err(Code::INVALID_VALUE);
    }
    node.work = work;
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecKernelNodeSetParams_v2(exec: usize, node: usize, params: In<KernelParams>) -> c_int {
    call("cuGraphExecKernelNodeSetParams_v2", |state| {
        let work = params.get()?.work(state)?;
        change(state, exec, node, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemcpyNodeSetParams(
    exec: usize,
    node: usize,
    params: In<CopyParams>,
    _context: usize,
) -> c_int {
    call("cuGraphExecMemcpyNodeSetParams", |state| {
        let work = params.get()?.work(state)?;
        change(state, exec, node, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemsetNodeSetParams(
    exec: usize,
    node: usize,
    params: In<SetParams>,
    _context: usize,
) -> c_int {
    call("cuGraphExecMemsetNodeSetParams", |state| {
        let work = params.get()?.work()?;
        change(state, exec, node, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecUpdate_v2(exec: usize, graph: usize, info: Out<UpdateInfo>) -> c_int {
    call("cuGraphExecUpdate_v2", |state| {
        let graph = state.graphs.get(&graph).ok_or(Code::INVALID_VALUE)?.clone();
        let exec = Arc::make_mut(state.execs.get_mut(&exec).ok_or(Code::INVALID_VALUE)?);
        match exec.update(&graph) {
            Ok(()) => {
                info.set_if(UpdateInfo { result: 0, node: 0, from: 0 });
                Ok(())
            }
            Err(node) => {
                // 2 is "the topology changed".
                info.set_if(UpdateInfo { result: 2, node: node.unwrap_or(0), from: 0 });
                Err(Code::GRAPH_EXEC_UPDATE_FAILURE)
            }
        }
    })
}
