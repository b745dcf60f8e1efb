//! Arrays of the crate `ndarray` become tensors and come back. Not inside the crate: `s!` contains unsafe code.

use ndarray::{Array0, Array2, Array3, Axis, arr0, s};
use retape::{Error, Tensor};

#[test]
fn arrays_survive_the_round_trip() {
    let array = Array3::from_shape_fn([2, 3, 4], |(i, j, k)| (100 * i + 10 * j + k) as i64);
    let tensor = Tensor::from(&array);
    assert_eq!(tensor.shape(), [2, 3, 4]);
    assert_eq!(tensor.to_ndarray::<i64>().unwrap(), array.into_dyn());
    let scalar: Array0<bool> = arr0(true);
    assert_eq!(Tensor::from(scalar.clone()).to_ndarray::<bool>().unwrap(), scalar.into_dyn());
    let empty = Array2::<f32>::zeros([0, 3]);
    assert_eq!(Tensor::from(empty.view()).shape(), [0, 3]);
    assert_eq!(Tensor::from(&empty).to_ndarray::<f32>().unwrap(), empty.into_dyn());
}

#[test]
fn views_of_any_layout_are_read_in_their_order() {
    let array = Array2::from_shape_fn([3, 4], |(i, j)| (10 * i + j) as f64);
    for view in [array.t(), array.slice(s![..;-1, 1..;2]), array.slice(s![1..2, ..])] {
        let tensor = Tensor::from(view);
        assert_eq!(tensor.shape(), view.shape());
        assert_eq!(tensor.to_vec::<f64>().unwrap(), view.iter().copied().collect::<Vec<_>>());
    }
    let row = array.index_axis(Axis(0), 2);
    assert_eq!(Tensor::from(row).to_vec::<f64>().unwrap(), [20.0, 21.0, 22.0, 23.0]);
}

#[test]
fn another_dtype_is_an_error() {
    assert!(matches!(Tensor::ones([2]).to_ndarray::<f64>(), Err(Error::Type { .. })));
}

/// Large arrays that own their elements become tensors where they are, also if they show a part of them only.
#[test]
fn arrays_that_own_their_elements_are_taken_apart() {
    let array = || Array2::from_shape_fn([30, 400], |(i, j)| (1000 * i + j) as f32);
    let parts = [
        array(),
        array().slice_move(s![1..29, ..]),
        array().slice_move(s![..3, ..]),
        array().slice_move(s![5, ..]).into_shape_with_order([1, 400]).unwrap(),
        array().reversed_axes(),
        array().slice_move(s![.., 1..]),
        array().slice_move(s![7..7, ..]),
    ];
    for part in parts {
        let tensor = Tensor::from(part.clone());
        assert_eq!((tensor.shape(), tensor.error().is_none()), (part.shape(), true));
        assert_eq!(tensor.to_vec::<f32>().unwrap(), part.iter().copied().collect::<Vec<_>>());
    }
}

/// A view repeats its elements without memory, and a tensor cannot.
#[test]
fn views_that_memory_cannot_hold_are_refused() {
    let one = arr0(1.0_f32);
    let (tensor, line) = (Tensor::from(one.broadcast([1_usize << 44]).unwrap()), line!());
    let Some(Error::Memory(refused)) = tensor.error() else { panic!("{:?}", tensor.shape()) };
    assert_eq!((refused.by.as_str(), refused.at.file(), refused.at.line()), ("`from`", file!(), line));
    let repeated = arr0(true);
    let repeated = Tensor::from(repeated.broadcast([2, 3]).unwrap());
    assert_eq!((repeated.shape(), repeated.to_vec::<bool>().unwrap()), (&[2, 3][..], vec![true; 6]));
}
