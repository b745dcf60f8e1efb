//! Steps that take other workers, on a GPU.
//!
//! If the GPUs of all workers have a link, bytes go over it and never see the host; else the step is one of the host. The
//! workers come together twice for a step of a link, by the checked exchanges of their communicator: before anything is
//! queued, so that each is in the same step with all that it needs, and after, so that nobody waits for its GPU while
//! another worker has not queued its part. So a worker that fails is an error of all, and no GPU waits for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use retape_runtime::{DeviceBuffer, lock};

use super::program::{CollectiveProgram, CollectiveStage, Transfer, program};
use super::{DeviceExecutable, Segment, address, code_bytes};
use crate::error::{Error, Result};
use crate::library::{Collective, Communicator, GpuLink, GpuTransfer, Library, Peers};
use crate::plan::Operand;

/// A step that takes other workers.
#[derive(Debug)]
pub(super) struct Exchanged {
    library: Library,
    collective: Collective,
    operands: Vec<Operand>,
    /// By the number of the worker, which is not known before the step runs: workers that are threads may share the code.
    programs: Mutex<BTreeMap<usize, Arc<CollectiveProgram>>>,
}

impl Exchanged {
    pub(super) fn new(collective: Collective, operands: Vec<Operand>) -> Exchanged {
        Exchanged { library: collective.clone().into(), collective, operands, programs: Mutex::default() }
    }

    /// Bytes of the code that was made so far.
    pub(super) fn code_bytes(&self) -> usize {
        let programs = lock(&self.programs);
        let stages = programs.values().flat_map(|program| &program.stages);
        let segments = stages
            .flat_map(|stage| if let CollectiveStage::Nests(segments) = stage { segments.as_slice() } else { &[] });
        segments.map(|segment| if let Segment::Chain(chain) = segment { code_bytes(chain) } else { 0 }).sum()
    }

    /// Runs the step.
    pub(super) fn run(&self, executable: &DeviceExecutable, buffers: &[&DeviceBuffer]) -> Result<()> {
        let Some(peers) = self.collective.peers()? else {
            let (program, memory) = self.prepare(executable, 0)?;
            return self.queue(&program, executable, buffers, &memory, None);
        };
        let communicator = &*peers.communicator;
        match communicator.link(&executable.gpu).map_err(Error::Communication)? {
            None => executable.run_on_host(&self.library, &self.operands, buffers),
            Some(link) => {
                let outcome = self.run_over(&*link, &peers, executable, buffers);
                if outcome.is_err() {
                    link.abort();
                }
                outcome
            }
        }
    }

    /// Runs the step over a link.
    fn run_over(
        &self,
        link: &dyn GpuLink,
        peers: &Peers<'_>,
        executable: &DeviceExecutable,
        buffers: &[&DeviceBuffer],
    ) -> Result<()> {
        let communicator = &*peers.communicator;
        let (program, memory) = tell_peers(peers, self.prepare(executable, peers.rank))?;
        let call = format!("{} between GPUs", peers.call);
        meet(communicator, &call)?;
        tell_peers(peers, self.queue(&program, executable, buffers, &memory, Some((link, communicator))))?;
        meet(communicator, &format!("the end of {call}"))
    }

    /// The program of a worker, and the memory for a run of it.
    fn prepare(
        &self,
        executable: &DeviceExecutable,
        rank: usize,
    ) -> Result<(Arc<CollectiveProgram>, Vec<DeviceBuffer>)> {
        let mut programs = lock(&self.programs);
        let program = match programs.get(&rank) {
            Some(program) => program.clone(),
            None => {
                let DeviceExecutable { plan, gpu, target, .. } = executable;
                let made = Arc::new(program(plan, (&self.collective, &self.operands), rank, gpu, *target)?);
                programs.insert(rank, made.clone());
                made
            }
        };
        drop(programs);
        let memory = program.memory.iter().map(|&bytes| DeviceBuffer::alloc(&executable.gpu, bytes));
        let memory = memory.collect::<Result<Vec<_>, _>>()?;
        Ok((program, memory))
    }

    fn queue(
        &self,
        program: &CollectiveProgram,
        executable: &DeviceExecutable,
        buffers: &[&DeviceBuffer],
        memory: &[DeviceBuffer],
        link: Option<(&dyn GpuLink, &dyn Communicator)>,
    ) -> Result<()> {
        let buffers: Vec<&DeviceBuffer> = buffers.iter().copied().chain(memory).collect();
        for stage in &program.stages {
            match stage {
                CollectiveStage::Nests(segments) => {
                    segments.iter().try_for_each(|segment| executable.run_segment(segment, &buffers))?
                }
                CollectiveStage::Exchange(transfers) => {
                    let Some((link, peers)) = link else {
                        return Err(Error::Internal("a transfer of a worker that is alone".to_owned()));
                    };
                    let transfer = |Transfer { peer, is_sent, operand, bytes }: &Transfer| {
                        let at = address(&executable.plan, operand);
                        let bytes = at.offset + bytes.start..at.offset + bytes.end;
                        GpuTransfer { peer: *peer, is_sent: *is_sent, buffer: buffers[at.base], bytes }
                    };
                    let transfers: Vec<GpuTransfer<'_>> = transfers.iter().map(transfer).collect();
                    link.exchange(peers, &transfers).map_err(Error::Communication)?;
                }
                CollectiveStage::Copies(copies) => {
                    let Some(out) = self.operands.last() else { continue };
                    let at = address(&executable.plan, out);
                    for (from, to, len) in copies {
                        buffers[at.base].copy_within(at.offset + from, at.offset + to, *len)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Waits until all workers are at a call.
fn meet(communicator: &dyn Communicator, call: &str) -> Result<()> {
    let nothing = vec![[].as_slice(); communicator.size()];
    let mut nowhere: Vec<&mut [u8]> = (0..communicator.size()).map(|_| [].as_mut_slice()).collect();
    communicator.exchange(call, &nothing, &mut nowhere).map_err(Error::Communication)
}

/// Tells the other workers of an error, as they would wait for this one.
fn tell_peers<T>(peers: &Peers<'_>, outcome: Result<T>) -> Result<T> {
    if let Err(error) = &outcome {
        peers.communicator.fail(&format!("rank {} failed: {error}", peers.rank));
    }
    outcome
}
