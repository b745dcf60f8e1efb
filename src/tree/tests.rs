//! Round trips of every kind of tree, the paths of leaves, and streams that no tree wrote.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;

use retape_runtime::{DType, bf16};

use super::writer::{LeafKind, path_text};
use super::{Reader, Static, Tree, Writer};
use crate::error::Result;
use crate::tensor::Tensor;

fn words<T: Tree>(tree: &T) -> Vec<u64> {
    let mut leaves = Writer::default();
    tree.write(&mut leaves);
    leaves.words.to_vec()
}

fn read<T: Tree>(words: &[u64], tensors: &[Tensor]) -> Result<T> {
    T::read(&mut Reader::new(words, tensors))
}

/// Writes, reads and writes again; checks that every shorter stream is an error; returns what was read.
fn round_trip<T: Tree>(tree: &T) -> T {
    let mut leaves = Writer::default();
    tree.write(&mut leaves);
    let tensors: Vec<Tensor> = leaves.tensors.iter().copied().cloned().collect();
    let mut from = Reader::new(&leaves.words, &tensors);
    let again = T::read(&mut from).unwrap();
    assert!(from.is_done());
    let mut second = Writer::with_paths();
    again.write(&mut second);
    assert_eq!(second.words, leaves.words);
    let same = |(one, other): (&&Tensor, &&Tensor)| one.to_vec::<f32>().unwrap() == other.to_vec::<f32>().unwrap();
    assert_eq!(second.tensors.len(), tensors.len());
    assert!(second.tensors.iter().zip(leaves.tensors.iter()).all(same));
    for n_words in 0..leaves.words.len() {
        assert!(read::<T>(&leaves.words[..n_words], &tensors).is_err(), "cut after {n_words} words");
    }
    if !tensors.is_empty() {
        assert!(read::<T>(&leaves.words, &tensors[1..]).is_err());
    }
    drop(second);
    again
}

fn same<T: Tree + PartialEq + Debug>(tree: T) {
    assert_eq!(round_trip(&tree), tree);
}

fn paths<T: Tree>(tree: &T) -> Vec<(String, LeafKind, String)> {
    let mut leaves = Writer::with_paths();
    tree.write(&mut leaves);
    let paths = leaves.paths.unwrap();
    paths.leaves.iter().map(|leaf| (path_text("", &leaf.path), leaf.kind, leaf.text.clone())).collect()
}

#[derive(Clone, Debug, Tree)]
struct Layer {
    weights: Tensor,
    bias: Option<Tensor>,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Tree)]
struct Unit;

#[derive(Clone, Debug, PartialEq, Tree)]
struct Pair<A, B>(A, Static<B>, PhantomData<fn() -> f32>)
where
    B: super::StaticLeaf;

#[derive(Clone, Debug, PartialEq, Tree)]
struct Marked<T, S, P> {
    r#type: T,
    #[tree(static)]
    rate: f32,
    #[tree(static)]
    limits: Option<(S, S)>,
    nothing: PhantomData<P>,
}

#[derive(Clone, Debug, PartialEq, Tree)]
enum Mode {
    Train,
    Decay(Static<f64>, u32),
    Named { flag: bool, inner: Box<Mode> },
}

#[derive(Tree)]
enum Never {}

#[derive(Clone, Debug, PartialEq, Tree)]
struct Nest<T, const N: usize> {
    children: Vec<Nest<T, N>>,
    values: [T; N],
}

fn layer(name: &str, bias: Option<Tensor>) -> Layer {
    Layer { weights: Tensor::from([[1.0_f32, 2.0]]), bias, name: name.into() }
}

#[test]
fn numbers_and_text() {
    same((true, false, 'ä', (), PhantomData::<f32>));
    same((u8::MAX, u16::MAX, u32::MAX, u64::MAX, u128::MAX - 5, usize::MAX));
    same((i8::MIN, i16::MIN, i32::MIN, i64::MIN, i128::MIN + 5, isize::MIN));
    same((-1_i8, -1_i16, -1_i32, -1_i64, -1_i128, -1_isize));
    DType::ALL.into_iter().for_each(same);
    for text in ["", "a", "12345678", "123456789", "grüße, 世界"] {
        same(text.to_owned());
    }
}

#[test]
fn static_values_are_compared_by_bits() {
    same(Static(1.5_f32));
    same((Static(f64::MIN_POSITIVE), Static(bf16::from_f32(3.0)), Static((1.0_f32, [2_u8, 3], Some('x')))));
    same((Static(vec![1.0_f32, 2.0]), Static(vec![(); 3]), Static(None::<f64>), Static("text".to_owned())));
    assert_ne!(words(&Static(0.0_f32)), words(&Static(-0.0_f32)));
    assert_eq!(words(&Static(f32::NAN)), words(&Static(f32::NAN)));
    assert!(round_trip(&Static(f64::NAN)).is_nan());
}

#[test]
fn containers() {
    same(vec![vec![1_u8], vec![], vec![2, 3]]);
    same((Some(4_u32), None::<u32>, Some(None::<bool>), Some(Some(true))));
    same(Box::new(Box::new(7_i32)));
    same([["a".to_owned(), "b".to_owned()], ["c".to_owned(), String::new()]]);
    same([(); 0]);
    same(BTreeMap::from([("one".to_owned(), 1_u8), ("two".to_owned(), 2)]));
    same(BTreeMap::from([(-3_i64, ()), (5, ())]));
    same(BTreeMap::from([((1_u8, 'a'), vec![true])]));
    same(BTreeMap::from([((), ())]));
    same((vec![(); 1000], vec![Box::new(()); 3], Vec::<bool>::new(), BTreeMap::<u8, bool>::new()));
    round_trip(&vec![Tensor::from([1.0_f32, 2.0]), Tensor::from([3.0_f32])]);
    round_trip(&BTreeMap::from([(1_u8, Some(Tensor::from([1.0_f32])))]));
}

#[test]
fn derived() {
    same(Unit);
    same(Pair(vec![1_u8], Static(0.5_f32), PhantomData));
    same(Pair(Pair('x', Static(()), PhantomData), Static([1.0_f64, 2.0]), PhantomData));
    same(Marked { r#type: Some(1_u8), rate: 0.1, limits: Some((1_i8, 2)), nothing: PhantomData::<*const f32> });
    same(Mode::Train);
    same(Mode::Decay(Static(0.9), 7));
    same(Mode::Named { flag: true, inner: Box::new(Mode::Named { flag: false, inner: Box::new(Mode::Train) }) });
    let leaf = Nest { children: vec![], values: [1_u8, 2] };
    same(Nest { children: vec![leaf.clone(), Nest { children: vec![leaf], values: [3, 4] }], values: [5, 6] });
    let read = round_trip(&vec![layer("a", None), layer("b", Some(Tensor::from([0.5_f32])))]);
    assert_eq!(read[1].name, "b");
    assert!(read[0].bias.is_none());
}

#[test]
fn every_difference_of_structure_is_in_the_words() {
    let distinct = [
        words(&Mode::Train),
        words(&Mode::Decay(Static(0.0), 1)),
        words(&Mode::Decay(Static(0.0), 2)),
        words(&Mode::Decay(Static(1.0), 2)),
    ];
    for (position, one) in distinct.iter().enumerate() {
        assert!(distinct[..position].iter().all(|other| other != one));
    }
    assert_ne!(words(&layer("a", None)), words(&layer("b", None)));
    assert_ne!(words(&layer("a", None)), words(&layer("a", Some(Tensor::from(1.0_f32)))));
    assert_ne!(words(&(vec![1_u8], vec![2_u8, 3])), words(&(vec![1_u8, 2], vec![3_u8])));
    assert_ne!(words(&Tensor::zeros([2, 3])), words(&Tensor::zeros([3, 2])));
    assert_ne!(words(&Tensor::zeros([2])), words(&Tensor::zeros_of(DType::F64, [2])));
}

#[test]
fn paths_lead_to_leaves() {
    let tree = (layer("ab", None), BTreeMap::from([("k".to_owned(), vec![Tensor::from(1.0_f32)])]));
    let expected = [
        ("[0].weights", LeafKind::Tensor, ""),
        ("[0].bias", LeafKind::Structure, "None"),
        ("[0].name", LeafKind::Static { type_name: "String" }, "\"ab\""),
        ("[1]", LeafKind::Structure, "length 1"),
        ("[1]", LeafKind::Static { type_name: "String" }, "\"k\""),
        ("[1][\"k\"]", LeafKind::Structure, "length 1"),
        ("[1][\"k\"][0]", LeafKind::Tensor, ""),
    ];
    assert_eq!(paths(&tree), expected.map(|(path, kind, text)| (path.to_owned(), kind, text.to_owned())));
    let marked = Marked { r#type: 1_u8, rate: 0.1, limits: None::<(u8, u8)>, nothing: PhantomData::<()> };
    assert_eq!(paths(&marked).iter().map(|leaf| &*leaf.0).collect::<Vec<_>>(), ["type", "rate", "limits"]);
}

#[test]
fn corrupt_streams_are_errors() {
    let message = |error: Result<()>| error.unwrap_err().to_string();
    assert!(message(read::<Mode>(&[3], &[]).map(drop)).contains("`Mode` has no variant 3"));
    assert!(message(read::<Never>(&[0], &[]).map(drop)).contains("no variant"));
    assert!(message(read::<bool>(&[2], &[]).map(drop)).contains("not a static `bool`"));
    assert!(read::<char>(&[0xd800], &[]).is_err());
    assert!(read::<u8>(&[256], &[]).is_err());
    assert!(read::<i8>(&[128], &[]).is_err());
    assert!(read::<Static<f32>>(&[1 << 40], &[]).is_err());
    assert!(read::<DType>(&[200], &[]).is_err());
    assert!(read::<String>(&[u64::MAX, 0], &[]).is_err());
    assert!(read::<String>(&[1, 0xff], &[]).is_err());
    assert!(read::<String>(&[1, 0x6261], &[]).is_err());
    assert!(read::<Vec<u8>>(&[u64::MAX, 1, 2], &[]).is_err());
    assert!(read::<Vec<()>>(&[u64::MAX], &[]).is_err());
    assert!(read::<Vec<()>>(&[1, 5], &[]).is_err());
    assert!(read::<BTreeMap<u8, ()>>(&[2, 7, 7], &[]).is_err());
    assert!(read::<BTreeMap<(), ()>>(&[2, 0, 0], &[]).is_err());
    assert!(read::<Tensor>(&[u64::MAX], &[Tensor::from(1.0_f32)]).is_err());
    assert!(read::<Tensor>(&words(&Tensor::from(1.0_f32)), &[]).is_err());
}

#[test]
fn nesting_is_bounded() {
    assert!(read::<Mode>(&[2, 1].repeat(100_000), &[]).unwrap_err().to_string().contains("deep"));
    assert!(read::<Nest<(), 0>>(&[1; 100_000], &[]).unwrap_err().to_string().contains("deep"));
}
