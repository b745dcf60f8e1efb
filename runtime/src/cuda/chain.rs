//! Chains of launches that run again and again on changing memory: direct at first, and then as graphs that are made
//! while the first run is under way.
//!
//! Arguments of kernels are places in buffers that a run brings along. A graph holds addresses, so a chain keeps a few
//! graphs for the sets of buffers that it saw: a loop whose buffers alternate finds one each time, and other buffers
//! cost an update of the kernels that use them. Runs that are queued keep the addresses that they were queued with.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use super::driver::{Event, Graph, LaunchConfig};
use super::gpu::Function;
use super::gpu::{Gpu, Remains};
use crate::error::{Error, Result};
use crate::lock::lock;

/// Graphs that a chain keeps.
const MAX_GRAPHS: usize = 4;
/// Chains that are shorter are launched directly: a graph would cost as much.
const MIN_LAUNCHES: usize = 2;

/// A place in one of the buffers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The number of the buffer.
    pub base: usize,
    /// Bytes from its start.
    pub offset: usize,
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub function: Arc<Function>,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory beyond what the kernel declares.
    pub shared: u32,
    /// The parameters, all of them addresses.
    pub arguments: SmallVec<[Address; 6]>,
}

/// When a launch ran, in nanoseconds from the first one's start, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSpan {
    /// Its start.
    pub start: u64,
    /// How long it took.
    pub nanos: u64,
}

/// Launches to run in order.
pub struct Chain {
    gpu: Arc<Gpu>,
    launches: Vec<Launch>,
    graphs: Mutex<Graphs>,
}

#[derive(Default)]
struct Graphs {
    all: Vec<Instance>,
    runs: u64,
}

/// A graph with the addresses that it holds.
struct Instance {
    graph: Graph,
    /// Empty if it is not known what it holds.
    bases: SmallVec<[u64; 8]>,
    last_run: u64,
}

impl Launch {
    fn config(&self) -> LaunchConfig {
        LaunchConfig { grid: self.grid, block: self.block, shared: self.shared }
    }

    fn addresses(&self, bases: &[u64]) -> SmallVec<[u64; 6]> {
        self.arguments.iter().map(|at| bases[at.base] + at.offset as u64).collect()
    }
}

impl Chain {
    /// A chain of launches.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if a launch is empty or wants more shared memory than the GPU has.
    pub fn new(gpu: &Arc<Gpu>, launches: Vec<Launch>) -> Result<Chain> {
        for launch in &launches {
            if launch.block == 0 || launch.grid.contains(&0) {
                let reason = format!("a launch of {} has no threads", launch.function.name());
                return Err(Error::Gpu { device: gpu.device(), reason });
            }
            launch.function.allow_shared(launch.shared)?;
        }
        Ok(Chain { gpu: Arc::clone(gpu), launches, graphs: Mutex::default() })
    }

    /// The launches.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// The number of graphs that are kept.
    pub fn n_graphs(&self) -> usize {
        lock(&self.graphs).all.len()
    }

    /// Queues all launches on buffers at these addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if the driver refuses, or if earlier work broke the device.
    ///
    /// # Panics
    ///
    /// If a launch has a place in a buffer that is not there.
    ///
    /// # Safety
    ///
    /// Each kernel has one parameter for each argument, all of them addresses, and accesses only the buffers, which are
    /// as large as it expects and belong to the chain until all that is queued now is done; memory of dropped
    /// [`DeviceBuffer`](super::DeviceBuffer)s does.
    pub unsafe fn run(&self, bases: &[u64]) -> Result<()> {
        // Held while the work is queued, so that nobody changes a graph in between.
        let graphs = &mut *lock(&self.graphs);
        graphs.runs += 1;
        let (is_first, is_graph) = (graphs.runs == 1, self.launches.len() >= MIN_LAUNCHES);
        if is_graph
            && !is_first
            // SAFETY: as the caller says.
            && let Ok(graph) = unsafe { self.graph_for(graphs, bases) }
        {
            // The driver may need memory for code that has not run before.
            // SAFETY: as the caller says.
            return self.gpu.check_with_room(|driver| unsafe { driver.launch_graph(graph) });
        }
        // At first, or if there is no memory for a graph.
        // SAFETY: as the caller says.
        unsafe { self.run_some(0..self.launches.len(), bases)? };
        if is_graph && is_first {
            // While the device works. If there is no memory for it, a later run tries again.
            // SAFETY: as the caller says.
            let _ = unsafe { self.graph_for(graphs, bases) };
        }
        Ok(())
    }

    /// Queues some of the launches, one by one.
    ///
    /// # Errors
    ///
    /// As [`run`](Chain::run).
    ///
    /// # Panics
    ///
    /// As [`run`](Chain::run), and if there are no such launches.
    ///
    /// # Safety
    ///
    /// As [`run`](Chain::run).
    pub unsafe fn run_some(&self, launches: Range<usize>, bases: &[u64]) -> Result<()> {
        for launch in &self.launches[launches] {
            // SAFETY: as the caller says.
            unsafe { self.launch(launch, bases)? };
        }
        Ok(())
    }

    /// Queues all launches one by one, waits for them, and says when each ran.
    ///
    /// # Errors
    ///
    /// As [`run`](Chain::run).
    ///
    /// # Panics
    ///
    /// As [`run`](Chain::run).
    ///
    /// # Safety
    ///
    /// As [`run`](Chain::run).
    pub unsafe fn run_timed(&self, bases: &[u64]) -> Result<Vec<LaunchSpan>> {
        let mut events: Vec<Event> = Vec::with_capacity(self.launches.len() + 1);
        let mark = |events: &mut Vec<Event>| {
            self.gpu.check(|driver| {
                let event = driver.event(true)?;
                driver.record(&event)?;
                events.push(event);
                Ok(())
            })
        };
        let mut queue = || {
            mark(&mut events)?;
            for launch in &self.launches {
                // SAFETY: as the caller says.
                unsafe { self.launch(launch, bases)? };
                mark(&mut events)?;
            }
            self.gpu.sync()?;
            let times = events[1..].iter().map(|event| {
                let millis = self.gpu.check(|driver| driver.millis_between(&events[0], event))?;
                Ok((millis * 1e6) as u64)
            });
            [Ok(0)].into_iter().chain(times).collect::<Result<Vec<u64>>>()
        };
        let times = queue();
        events.into_iter().for_each(|event| self.gpu.driver.drop_event(event));
        let span = |pair: &[u64]| LaunchSpan { start: pair[0], nanos: pair[1].saturating_sub(pair[0]) };
        Ok(times?.windows(2).map(span).collect())
    }

    /// Queues one launch.
    ///
    /// # Safety
    ///
    /// As [`run`](Chain::run).
    unsafe fn launch(&self, launch: &Launch, bases: &[u64]) -> Result<()> {
        let addresses = launch.addresses(bases);
        // SAFETY: as the caller says.
        self.gpu.check_with_room(|driver| unsafe { driver.launch(&launch.function.entry, launch.config(), &addresses) })
    }

    /// A graph that holds these addresses: one that does, a new one, or the one that was not used for longest, changed.
    ///
    /// # Safety
    ///
    /// As [`run`](Chain::run).
    unsafe fn graph_for<'a>(&self, graphs: &'a mut Graphs, bases: &[u64]) -> Result<&'a Graph> {
        let (runs, all) = (graphs.runs, &mut graphs.all);
        let held = all.iter().position(|instance| instance.bases.as_slice() == bases);
        let n = match held {
            Some(n) => n,
            None if all.len() < MAX_GRAPHS => {
                // SAFETY: as the caller says; the launches keep their kernels, and the chain them.
                all.push(unsafe { self.instance(bases)? });
                all.len() - 1
            }
            None => {
                let stalest = (0..all.len()).min_by_key(|&n| all[n].last_run).unwrap_or(0);
                // SAFETY: as the caller says.
                if unsafe { self.update(&mut all[stalest], bases) }.is_err() {
                    // SAFETY: as the caller says.
                    let instance = unsafe { self.instance(bases)? };
                    let old = std::mem::replace(&mut all[stalest], instance);
                    self.gpu.retire(Remains::Graph(old.graph));
                }
                stalest
            }
        };
        all[n].last_run = runs;
        Ok(&all[n].graph)
    }

    /// A new graph.
    ///
    /// # Safety
    ///
    /// As [`run`](Chain::run), for each launch of it.
    unsafe fn instance(&self, bases: &[u64]) -> Result<Instance> {
        let launches = self.launches.iter().map(|l| (&l.function.entry, l.config(), l.addresses(bases)));
        // SAFETY: as the caller says.
        let graph = self.gpu.check(|driver| unsafe { driver.graph(launches) })?;
        Ok(Instance { graph, bases: bases.into(), last_run: 0 })
    }

    /// Changes the addresses in a graph.
    ///
    /// # Safety
    ///
    /// As [`run`](Chain::run), for each launch of it.
    unsafe fn update(&self, instance: &mut Instance, bases: &[u64]) -> Result<()> {
        // Forgotten until all is done, in case it is not.
        let old = std::mem::take(&mut instance.bases);
        let is_changed = |at: &Address| old.get(at.base) != Some(&bases[at.base]);
        for (n, launch) in self.launches.iter().enumerate().filter(|(_, l)| l.arguments.iter().any(is_changed)) {
            let (entry, config, addresses) = (&launch.function.entry, launch.config(), launch.addresses(bases));
            let graph = &mut instance.graph;
            // SAFETY: as the caller says; the graph has a node for each launch.
            self.gpu.check(|driver| unsafe { driver.set_node(graph, n, entry, config, &addresses) })?;
        }
        instance.bases = bases.into();
        Ok(())
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let graphs = self.graphs.get_mut().unwrap_or_else(|poison| poison.into_inner());
        for instance in graphs.all.drain(..) {
            self.gpu.retire(Remains::Graph(instance.graph));
        }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("gpu", &self.gpu).field("launches", &self.launches).finish_non_exhaustive()
    }
}
