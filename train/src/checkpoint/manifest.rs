//! The file that says what a checkpoint is.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::{Batching, Dataset, Loader};
use crate::error::{Error, Result};
use crate::files::is_plain_name;
use crate::json::Number;
use crate::progress::Position;

/// The format that is written, and the newest that is read.
const FORMAT: u64 = 1;

/// The name of the file.
pub(super) const MANIFEST: &str = "manifest.json";

/// The largest one that is read, in bytes.
const MAX_BYTES: u64 = 100_000_000;

/// Everything of a checkpoint except its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// The version of the format of folder and manifest.
    pub format: u64,
    /// Where the training goes on.
    #[serde(flatten)]
    pub position: Position,
    /// The batches that the position counts, if they were given; see [`Manifest::position_in`].
    #[serde(default)]
    pub data: Option<Batching>,
    /// The seed of the run, if it was given.
    pub seed: Option<u64>,
    /// The measured values, by name.
    #[serde(serialize_with = "numbers", deserialize_with = "from_numbers")]
    pub metrics: BTreeMap<String, f64>,
    /// Other values that were to be kept, by name; see [`Manifest::value`].
    pub values: BTreeMap<String, serde_json::Value>,
    /// The files beside the manifest.
    pub files: BTreeMap<String, FileInfo>,
    /// The versions of what wrote it.
    pub versions: BTreeMap<String, String>,
    /// When it was written, in seconds since the start of 1970.
    pub time: u64,
}

/// The length and hash that a file of a checkpoint must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its length.
    pub bytes: u64,
    /// Its blake3 hash in hexadecimal digits.
    pub blake3: String,
}

/// A checkpoint before it is written.
///
/// ```
/// use retape_train::checkpoint::Checkpoint;
/// use retape_train::data::{Loader, from_fn};
/// use retape_train::progress::Position;
///
/// let loader = Loader::new(from_fn(500, |index| Ok(index as f32)), 10)?.shuffled(7);
/// let checkpoint = Checkpoint::at(Position { step: 120, epoch: 2, batch: 20 })
///     .of(&loader)
///     .seed(7)
///     .metric("validation/loss", 0.31)
///     .value("notes", &["first try"])?;
/// # let _ = checkpoint;
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    pub(super) manifest: Manifest,
}

impl Checkpoint {
    /// A checkpoint of a training that goes on at `position`: the step to be done next.
    pub fn at(position: Position) -> Checkpoint {
        let versions = [("retape", retape::VERSION), ("retape-train", env!("CARGO_PKG_VERSION"))];
        let manifest = Manifest {
            format: FORMAT,
            position,
            data: None,
            seed: None,
            metrics: BTreeMap::new(),
            values: BTreeMap::new(),
            files: BTreeMap::new(),
            versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        Checkpoint { manifest }
    }

    /// Notes the batches that the position counts, so that [`Manifest::position_in`] refuses those of another loader.
    #[must_use]
    pub fn of<D: Dataset, C>(mut self, loader: &Loader<D, C>) -> Checkpoint {
        self.manifest.data = Some(loader.batching());
        self
    }

    /// Notes the seed of the run.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Checkpoint {
        self.manifest.seed = Some(seed);
        self
    }

    /// Adds a metric, by which the best checkpoints are kept ([`Checkpoints::keep_best`](super::Checkpoints::keep_best)).
    #[must_use]
    pub fn metric(mut self, name: impl Into<String>, value: f64) -> Checkpoint {
        self.manifest.metrics.insert(name.into(), value);
        self
    }

    /// Adds anything else that the run needs to go on, such as a [`Patience`](crate::progress::Patience).
    ///
    /// JSON has no NaN and no infinities: as a value of your own they become `null`, which [`Manifest::value`] reads into
    /// an [`Option`] only. Metrics keep them.
    ///
    /// # Errors
    ///
    /// Fails if the value has no form in JSON, such as a map whose keys are no texts.
    #[track_caller]
    pub fn value(mut self, name: impl Into<String>, value: &impl Serialize) -> Result<Checkpoint> {
        let name = name.into();
        let value = match serde_json::to_value(value) {
            Ok(value) => value,
            Err(error) => return Err(Error::argument(format!("`{name}`: {error}"))),
        };
        self.manifest.values.insert(name, value);
        Ok(self)
    }
}

impl Manifest {
    /// Where the training goes on in the batches of a loader.
    ///
    /// # Errors
    ///
    /// Fails if the position counts batches of another size, number or order ([`Checkpoint::of`]), and says what differs.
    #[track_caller]
    pub fn position_in<D: Dataset, C>(&self, loader: &Loader<D, C>) -> Result<Position> {
        let differences = self.data.map_or(vec![], |data| data.differences(&loader.batching()));
        if differences.is_empty() {
            return Ok(self.position);
        }
        let (step, differences) = (self.position.step, differences.join("; "));
        Err(Error::argument(format!("the checkpoint of step {step} cannot go on with this loader: {differences}")))
    }

    /// A value that was kept by [`Checkpoint::value`]; nothing if there is none of this name.
    ///
    /// # Errors
    ///
    /// Fails if it is of another form.
    #[track_caller]
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.values.get(name) else { return Ok(None) };
        match T::deserialize(value) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(Error::argument(format!("the value `{name}` of the checkpoint: {error}"))),
        }
    }

    pub(super) fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let n_bytes = fs::metadata(&path).map_err(Error::io(&path))?.len();
        let broken = |what: String| Error::format(&path, format!("is no manifest of a checkpoint: {what}"));
        if n_bytes > MAX_BYTES {
            return Err(broken(format!("it has {n_bytes} bytes")));
        }
        let text = fs::read(&path).map_err(Error::io(&path))?;
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        // First, for the rest of a newer format may be anything.
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format > FORMAT => {
                let message = format!("is of format {format}; this version of retape-train reads up to {FORMAT}");
                return Err(Error::Version { path, message });
            }
            Some(_) => {}
            None => return Err(broken("it has no format".to_owned())),
        }
        let manifest: Manifest = serde_json::from_value(value).map_err(|error| broken(error.to_string()))?;
        match manifest.files.keys().find(|name| !is_plain_name(name)) {
            Some(name) => Err(broken(format!("it names the file {name:?}, which is not beside it"))),
            None => Ok(manifest),
        }
    }

    /// Compares the files of a checkpoint with what is said of them.
    pub(super) fn verify(&self, folder: &Path) -> Result<()> {
        for (name, info) in &self.files {
            let path = folder.join(name);
            let n_bytes = fs::metadata(&path).map_err(Error::io(&path))?.len();
            if n_bytes != info.bytes {
                return Err(Error::format(&path, format!("has {n_bytes} bytes instead of {}", info.bytes)));
            }
            let hash = hash(&path).map_err(Error::io(&path))?;
            if hash != info.blake3 {
                return Err(Error::format(&path, format!("was changed: its hash is {hash}, not {}", info.blake3)));
            }
        }
        Ok(())
    }
}

/// The blake3 hash of a file in hexadecimal digits.
fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            n => hasher.update(&bytes[..n]),
        };
    }
}

fn numbers<S: Serializer>(metrics: &BTreeMap<String, f64>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(metrics.iter().map(|(name, &value)| (name, Number(value))))
}

fn from_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<BTreeMap<String, f64>, D::Error> {
    let numbers = BTreeMap::<String, Number>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|(name, Number(value))| (name, value)).collect())
}
