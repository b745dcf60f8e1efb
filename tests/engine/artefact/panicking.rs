//! Types of the program that panic over words which they never wrote.

use retape::{Accelerated, Reader, Tensor, Tree, Writer, accelerate};

use super::attack::{CHECKSUM, resealed};

/// Written as the word itself.
#[derive(Clone)]
struct Grade(u64);

/// Reading panics above, with a text.
const READS: u64 = 0x5eed_0000_0000_00ff;

/// Writing panics above, with a literal.
const WRITES: u64 = 0x5eed_0000_0000_000f;

impl Tree for Grade {
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        assert!(self.0 <= WRITES, "no such grade");
        to.word(self.0);
    }

    fn read(from: &mut Reader<'_>) -> retape::Result<Self> {
        let word = from.word()?;
        assert!(word <= READS, "grade {word:x} cannot be");
        Ok(Grade(word))
    }
}

type Graded = (Tensor, Grade);

/// A grade that is an argument, and the one after it in the result.
fn graded() -> Accelerated<impl Fn(&Tensor, &Grade) -> Graded, Graded, Graded> {
    accelerate(|x: &Tensor, grade: &Grade| (x * 2.0, Grade(grade.0 + 1)))
}

const GRADE: u64 = 0x5eed_0000_0000_0001;

/// The bytes with one word in the place of another.
fn replaced(bytes: &[u8], from: u64, to: u64) -> Vec<u8> {
    let mut bytes = bytes[..bytes.len() - CHECKSUM].to_vec();
    let places: Vec<usize> = (0..bytes.len() - 7).filter(|&at| bytes[at..at + 8] == from.to_le_bytes()).collect();
    assert_eq!(places.len(), 1);
    bytes[places[0]..places[0] + 8].copy_from_slice(&to.to_le_bytes());
    resealed(bytes)
}

#[test]
fn panics_of_types_are_refusals() {
    let function = graded();
    let x = || Tensor::ones([2]);
    function.call(x(), Grade(GRADE)).unwrap();
    let mut saved = vec![];
    function.save_to(&mut saved).unwrap();

    for old in [GRADE, GRADE + 1] {
        for (new, panic) in [(READS + 1, "grade 5eed000000000100 cannot be"), (WRITES + 1, "no such grade")] {
            let function = graded();
            let error = function.load_from(&replaced(&saved, old, new)[..]).unwrap_err().to_string();
            assert!(error.starts_with("artefact: the artefact is malformed: entry ("), "{error}");
            assert!(error.contains("Grade") && error.ends_with(&format!("panicked: {panic}")), "{error}");
            // The cache is as it was, and the function as good as any.
            assert_eq!(function.stats().entries.len(), 0);
            assert_eq!(function.call(x(), Grade(GRADE)).unwrap().1.0, GRADE + 1);
            assert_eq!(function.load_from(&saved[..]).unwrap().skipped.len(), 1);
        }
    }
    // Words that the types accept are loaded.
    let other = graded();
    assert_eq!(other.load_from(&replaced(&saved, GRADE, GRADE + 2)[..]).unwrap().entries, 1);
    assert_eq!(other.call(x(), Grade(GRADE + 2)).unwrap().1.0, GRADE + 1);
    assert_eq!(other.stats().misses, 0);
}
