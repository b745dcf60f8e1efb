//! Checkpoints of all workers, which are those of worker 0: all have the same state.

use retape::Tensor;
use retape_dist::{Failure, World};
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::progress::Position;

use crate::network::Training;
use crate::options::Options;

/// Where a training begins.
pub(crate) struct Start {
    pub(crate) training: Training,
    pub(crate) position: Position,
    pub(crate) n_shards: usize,
}

/// The shards of a batch, if nothing says otherwise.
const N_SHARDS: usize = 4;

/// The folder of checkpoints, which worker 0 alone has open.
pub(crate) fn open(options: &Options, world: &World) -> Result<Option<Checkpoints>, Failure> {
    let folder = options.checkpoints.as_ref().filter(|_| world.rank() == 0);
    Ok(folder.map(|folder| Checkpoints::open(folder).map(|all| all.keep_last(2))).transpose()?)
}

/// The newest checkpoint, if it is asked for and there is one; else the beginning. Worker 0 reads it for all.
pub(crate) fn begin(
    options: &Options,
    world: &World,
    checkpoints: Option<&Checkpoints>,
    training: Training,
) -> Result<Start, Failure> {
    let Options { epochs, resume, device, .. } = options;
    let asked = format!("{}, epochs {epochs}, resume {resume}, device {device}", choices(options));
    world.agree("the choice of options", blake3::hash(asked.as_bytes()).as_bytes(), &|| asked.clone())?;
    let mut start = Start { training, position: Position::default(), n_shards: options.shards.unwrap_or(N_SHARDS) };
    if !options.resume {
        return Ok(start);
    }
    if let Some(checkpoints) = checkpoints
        && let Some(restored) = checkpoints.latest(&start.training)?
    {
        let kept: String = restored.manifest.value("choices")?.unwrap_or_default();
        if choices(options) != kept {
            let path = restored.path.display();
            return Err(format!("{path} was trained with {kept}, and this is {}", choices(options)).into());
        }
        start.position = restored.manifest.position;
        start.n_shards = restored.manifest.value("shards")?.unwrap_or(start.n_shards);
        start.training = restored.tree;
        if let Some(asked) = options.shards.filter(|asked| *asked != start.n_shards) {
            return Err(format!("--shards {asked}: the checkpoint has {}, which stay", start.n_shards).into());
        }
    }
    let Position { step, epoch, batch } = start.position;
    let numbers = Tensor::from([step as i64, epoch as i64, batch as i64, start.n_shards as i64]);
    let (training, numbers) = world.broadcast(&(start.training, numbers));
    let numbers = numbers.to_vec::<i64>()?;
    let [step, epoch, batch, n_shards] = [0, 1, 2, 3].map(|at| numbers[at] as u64);
    let position = Position { step, epoch, batch: batch as usize };
    Ok(Start { training, position, n_shards: n_shards as usize })
}

/// The checkpoint of a position, with the number of shards, without which it could not go on with the same bits.
pub(crate) fn checkpoint(options: &Options, world: &World, position: Position) -> Result<Checkpoint, Failure> {
    let checkpoint = Checkpoint::at(position).seed(options.seed);
    Ok(checkpoint.value("shards", &world.n_shards())?.value("choices", &choices(options))?)
}

/// The options that decide about the bits.
fn choices(options: &Options) -> String {
    let Options { seed, batch, rate, size, sync, .. } = options;
    format!("seed {seed}, batch {batch}, rate {rate}, size {size}, synchronised {sync}")
}
