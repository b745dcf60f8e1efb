//! Images and the tensors made of them.

use retape::DType;
use retape_train::data::{Image, Pixels};

#[test]
fn pixels_have_to_fill_the_shape() {
    for (n, shape) in [(5, [1, 2, 3]), (7, [1, 2, 3]), (0, [0, 2, 3]), (0, [2, 3, 0]), (1, [usize::MAX, 2, 3])] {
        assert!(Image::from_u8(vec![0; n], shape).is_err(), "{shape:?}");
        assert!(Image::from_f32(vec![0.0; n], shape).is_err(), "{shape:?}");
    }
}

#[test]
fn bytes_and_floats_convert_both_ways() {
    let bytes: Vec<u8> = (0..=255).collect();
    let image = Image::from_u8(bytes, [16, 16, 1]).unwrap();
    let floats = image.clone().into_f32();
    assert_eq!(floats.value(15, 15, 0), Some(1.0));
    assert_eq!(floats.value(3, 4, 0), Some(52.0 / 255.0));
    assert_eq!(floats.clone().into_u8(), image);
    assert_eq!(floats.clone().into_f32(), floats);
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.001, 0.0019, 0.002, 1.5];
    let clamped = Image::from_f32(odd.to_vec(), [1, 7, 1]).unwrap().into_u8();
    assert_eq!(clamped.pixels(), &Pixels::U8(vec![0, 255, 0, 0, 0, 1, 255]));
    assert_eq!((image.value(16, 0, 0), image.value(0, 16, 0), image.value(0, 0, 1)), (None, None, None));
}

#[test]
fn images_of_one_shape_stack() {
    let bytes = Image::from_u8(vec![0, 51, 255, 102, 0, 0], [1, 2, 3]).unwrap();
    let floats = Image::from_f32(vec![0.5; 6], [1, 2, 3]).unwrap();
    let batch = Image::stack_f32(&[bytes.clone(), floats.clone()]).unwrap();
    assert_eq!((batch.shape(), batch.dtype()), (&[2, 1, 2, 3][..], DType::F32));
    assert_eq!(batch.to_vec::<f32>().unwrap(), [0.0, 0.2, 1.0, 0.4, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]);
    let batch = Image::stack_u8(&[bytes.clone(), bytes.clone()]).unwrap();
    assert_eq!((batch.shape(), batch.dtype()), (&[2, 1, 2, 3][..], DType::U8));
    assert_eq!(batch.to_vec::<u8>().unwrap()[6..9], [0, 51, 255]);
    assert_eq!(bytes.to_tensor().unwrap().shape(), [1, 2, 3]);

    assert!(Image::stack_u8(&[bytes.clone(), floats]).unwrap_err().to_string().contains("image 1"));
    assert!(Image::stack_f32(&[]).is_err() && Image::stack_u8(&[]).is_err());
    let other = Image::from_u8(vec![0; 6], [2, 1, 3]).unwrap();
    let message = Image::stack_f32(&[bytes.clone(), bytes, other]).unwrap_err().to_string();
    assert!(message.contains("image 0 is [1, 2, 3], image 2 is [2, 1, 3]"), "{message}");
}
