//! Hostile artefacts and graphs: how they are made, and the guarantees that hold for all of them.
//!
//! The fuzz targets use this file as well, so that a run of the fuzzer and a run of the tests check the same.

use retape::{Accelerated, DType, Error, Form, Graph, MathMode, Signature, Tensor, TensorType, accelerate};

/// A function that takes and returns tensors of any number and type, so that any graph may be an entry of it.
pub(crate) type Subject = Accelerated<fn(&Vec<Tensor>) -> Vec<Tensor>, (Vec<Tensor>,), Vec<Tensor>>;

/// The function under attack, with an empty cache.
pub(crate) fn subject() -> Subject {
    accelerate((|xs: &Vec<Tensor>| xs.iter().map(|x| x + x).collect()) as fn(&Vec<Tensor>) -> Vec<Tensor>)
}

/// The length of a checksum.
pub(crate) const CHECKSUM: usize = 32;

/// A payload without entries, and its length before it.
const EMPTY: usize = 8;

/// Everything before the length of the payload, for the function under attack.
pub(crate) fn head() -> Vec<u8> {
    let mut bytes = vec![];
    subject().save_to(&mut bytes).expect("an empty cache can be saved");
    bytes.truncate(bytes.len() - CHECKSUM - EMPTY - 8);
    bytes
}

/// An artefact with this payload whose length and checksum fit.
pub(crate) fn sealed(payload: &[u8]) -> Vec<u8> {
    let mut bytes = head();
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend(payload);
    resealed(bytes)
}

/// The bytes with a checksum that fits.
pub(crate) fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = blake3::hash(&bytes);
    bytes.extend(checksum.as_bytes());
    bytes
}

fn put_words(to: &mut Vec<u8>, words: &[u64]) {
    to.extend((words.len() as u64).to_le_bytes());
    words.iter().for_each(|word| to.extend(word.to_le_bytes()));
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// The words of a vector of tensors.
fn words_of<'t>(types: impl ExactSizeIterator<Item = &'t TensorType>) -> Vec<u64> {
    let mut words = vec![types.len() as u64];
    for ty in types {
        let dtype = DType::ALL.iter().position(|&dtype| dtype == ty.dtype).expect("a dtype is one of all");
        words.push(dtype as u64 | (ty.rank() as u64) << 8);
        words.extend(ty.shape.iter().map(|&extent| extent as u64));
    }
    words
}

/// The payload with one entry: this graph, its parameters as arguments and its outputs as results.
pub(crate) fn payload_of(graph: &Graph) -> Vec<u8> {
    let mut to = 1_u64.to_le_bytes().to_vec();
    put_words(&mut to, &words_of(graph.params().iter().map(|&id| graph.ty(id))));
    // No mode changes the code, and all arguments are in main memory.
    to.push(0);
    put_words(&mut to, &vec![0; graph.params().len()]);
    put_text(&mut to, "hostile");
    put_text(&mut to, &graph.to_string());
    to.extend(0_u64.to_le_bytes());
    put_words(&mut to, &words_of(graph.outputs().iter().map(|&id| graph.ty(id))));
    to.extend((graph.outputs().len() as u64).to_le_bytes());
    for output in 0..graph.outputs().len() as u64 {
        to.push(0);
        to.extend(output.to_le_bytes());
    }
    to
}

/// The modes of a signature that its entry's code is compiled in: nondeterministic algorithms, approximations, and the
/// trap. The text of a tensor's type has no semicolon.
pub(crate) fn modes_of(signature: &Signature) -> [bool; 3] {
    const ALL: [&str; 3] = ["nondeterministic algorithms", "fast math", "trap for non-finite values"];
    let text = signature.to_string();
    let modes: Vec<&str> = text.split("; ").skip(1).collect();
    assert!(modes.iter().all(|mode| ALL.contains(mode)), "{text}");
    ALL.map(|mode| modes.contains(&mode))
}

/// Puts a function in these modes, the last two of [`modes_of`]; the first is that of the process.
pub(crate) fn set_modes(function: &Subject, [is_fast, traps]: [bool; 2]) {
    function.configure(|options| options.math = if is_fast { MathMode::Fast } else { MathMode::Strict });
    function.configure(|options| options.trap_nonfinite = traps);
}

/// Loads bytes into a fresh function and returns whether it took them. The load always comes back; a refusal changes
/// nothing; an entry that is taken is a verified graph that can be looked at and, if it is small, called: a hit, if the
/// function is in the modes of the entry.
pub(crate) fn attack(bytes: &[u8]) -> bool {
    let function = subject();
    let loaded = match function.load_from(bytes) {
        Ok(loaded) => loaded,
        Err(error) => {
            assert!(!matches!(error, Error::Internal(_)), "{error}");
            assert_eq!(function.stats().entries.len(), 0);
            return false;
        }
    };
    let stats = function.stats();
    assert_eq!((loaded.entries, stats.misses), (stats.entries.len(), 0));
    for entry in &stats.entries {
        let text = function.text(&entry.signature, Form::Graph).expect("a loaded entry shows its graph");
        let recorded = text.split("\n; optimised\n").next().expect("a text has a first part");
        let graph: Graph = recorded.parse().expect("what was loaded reads");
        graph.verify().expect("what was loaded verifies");
        let [is_nondeterministic, modes @ ..] = modes_of(&entry.signature);
        // Such an entry serves no call of this process.
        if is_nondeterministic {
            continue;
        }
        if let Some(args) = small_arguments(&graph, entry.arena_bytes) {
            let hits = function.stats().hits;
            set_modes(&function, modes);
            if let Err(error) = function.call(&args) {
                assert!(!matches!(error, Error::Internal(_)), "{error} in {graph}");
            }
            let stats = function.stats();
            assert_eq!((stats.hits, stats.misses), (hits + 1, 0), "{} of {graph}", entry.signature);
        }
    }
    true
}

/// Arguments for a graph, unless running it takes long.
fn small_arguments(graph: &Graph, arena_bytes: usize) -> Option<Vec<Tensor>> {
    const LARGE: usize = 1 << 14;
    let elements = graph.nodes().iter().map(|node| node.ty.shape.iter().product::<usize>());
    (arena_bytes < 8 * LARGE && elements.fold(0_usize, usize::saturating_add) < LARGE).then(|| {
        let value = |dtype| if dtype == DType::U32 { 7 } else { 1 };
        let types = graph.params().iter().map(|&id| graph.ty(id));
        types.map(|ty| Tensor::full(&*ty.shape, value(ty.dtype)).cast(ty.dtype)).collect()
    })
}

/// Text as a graph, and as an entry if it is one.
pub(crate) fn attack_graph(text: &str) -> bool {
    let Ok(graph) = text.parse::<Graph>() else { return false };
    graph.verify().expect("what reads verifies");
    assert_eq!(graph.to_string().parse().as_ref(), Ok(&graph), "a graph reads back");
    attack(&sealed(&payload_of(&graph)))
}
