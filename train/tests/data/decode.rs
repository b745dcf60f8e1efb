//! JPEG and PNG files, sound and hostile.

use std::time::{Duration, Instant};

use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageEncoder};
use retape::data::Random;
use retape_train::Error;
use retape_train::data::{Channels, Decoding, Image, Pixels};

use crate::place::{Place, jpeg, noise, png, smooth};

fn bytes(image: &Image) -> &[u8] {
    match image.pixels() {
        Pixels::U8(bytes) => bytes,
        Pixels::F32(_) => panic!("decoded images have bytes"),
    }
}

/// The error of bytes that are no image.
fn refusal(decoding: &Decoding, file: &[u8]) -> String {
    decoding.decode(file).unwrap_err().to_string()
}

#[test]
fn png_keeps_every_byte() {
    let decoding = Decoding::default();
    let colours = noise(1, 5 * 7 * 3);
    let image = decoding.decode(&png(&colours, 7, 5, ExtendedColorType::Rgb8)).unwrap();
    assert_eq!((image.shape(), bytes(&image)), ([5, 7, 3], &colours[..]));

    let greys = noise(2, 35);
    let image = decoding.decode(&png(&greys, 7, 5, ExtendedColorType::L8)).unwrap();
    let repeated: Vec<u8> = greys.iter().flat_map(|&grey| [grey; 3]).collect();
    assert_eq!((image.shape(), bytes(&image)), ([5, 7, 3], &repeated[..]));
    let grey = Decoding { channels: Channels::Grey, ..Decoding::default() };
    let image = grey.decode(&png(&greys, 7, 5, ExtendedColorType::L8)).unwrap();
    assert_eq!((image.shape(), bytes(&image)), ([5, 7, 1], &greys[..]));

    let with_opacity = noise(3, 35 * 4);
    let file = png(&with_opacity, 7, 5, ExtendedColorType::Rgba8);
    let dropped: Vec<u8> = with_opacity.chunks(4).flat_map(|pixel| &pixel[..3]).copied().collect();
    assert_eq!(bytes(&decoding.decode(&file).unwrap()), dropped);
    let rgba = Decoding { channels: Channels::Rgba, ..Decoding::default() };
    assert_eq!(bytes(&rgba.decode(&file).unwrap()), with_opacity);
}

#[test]
fn sixteen_bits_are_rounded_to_eight() {
    let values: [u16; 4] = [0, 128, 257 * 77 + 10, u16::MAX];
    let file = png(&values.map(u16::to_ne_bytes).concat(), 4, 1, ExtendedColorType::L16);
    let grey = Decoding { channels: Channels::Grey, ..Decoding::default() };
    // 128 / 257 is just below one half, and (257 * 77 + 10) / 257 just above 77.
    assert_eq!(bytes(&grey.decode(&file).unwrap()), [0, 0, 77, 255]);
}

#[test]
fn jpeg_is_near_its_pixels() {
    let colours = smooth(48, 32);
    let image = Decoding::default().decode(&jpeg(&colours, 48, 32)).unwrap();
    assert_eq!(image.shape(), [32, 48, 3]);
    let worst = bytes(&image).iter().zip(&colours).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(worst <= 16, "{worst}");
}

#[test]
fn an_image_is_turned_upright_on_request() {
    // One entry of a directory in the form of TIFF: orientation (0x0112), a short, once: 6, a quarter turn clockwise.
    let mut exif = b"II*\0\x08\0\0\0\x01\0".to_vec();
    exif.extend([0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    let (mut file, mut pixels) = (vec![], vec![0; 16 * 32 * 3]);
    // The left half white: after the turn, the upper half.
    pixels.chunks_mut(32 * 3).for_each(|row| row[..16 * 3].fill(255));
    let mut encoder = JpegEncoder::new_with_quality(&mut file, 95);
    encoder.set_exif_metadata(exif).unwrap();
    encoder.write_image(&pixels, 32, 16, ExtendedColorType::Rgb8).unwrap();

    let as_stored = Decoding::default().decode(&file).unwrap();
    assert_eq!(as_stored.shape(), [16, 32, 3]);
    let upright = Decoding { upright: true, ..Decoding::default() }.decode(&file).unwrap();
    assert_eq!(upright.shape(), [32, 16, 3]);
    assert!(upright.value(2, 8, 0).unwrap() > 0.9 && upright.value(29, 8, 0).unwrap() < 0.1);
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let decoding = Decoding::default();
    let colours = smooth(24, 16);
    let file = jpeg(&colours, 24, 16);
    for len in 0..file.len() {
        assert!(decoding.decode(&file[..len]).is_err(), "{len} of {} bytes of a JPEG", file.len());
    }
    let message = refusal(&decoding, &file[..file.len() - 40]);
    assert!(message.contains("cut off"), "{message}");

    let file = png(&colours, 24, 16, ExtendedColorType::Rgb8);
    let whole = decoding.decode(&file).unwrap();
    let mut n_refused = 0;
    for len in 0..file.len() {
        match decoding.decode(&file[..len]) {
            // The last chunk has no contents: without it, nothing is lost.
            Ok(image) => assert_eq!(image, whole, "{len} of {} bytes of a PNG", file.len()),
            Err(_) => n_refused += 1,
        }
    }
    assert!(file.len() - n_refused <= 16, "{n_refused} of {} prefixes refused", file.len());
}

#[test]
fn bytes_after_the_end_are_allowed() {
    let colours = smooth(24, 16);
    for file in [jpeg(&colours, 24, 16), png(&colours, 24, 16, ExtendedColorType::Rgb8)] {
        let longer = [&file[..], b"a trailer of some camera"].concat();
        assert_eq!(Decoding::default().decode(&longer).unwrap(), Decoding::default().decode(&file).unwrap());
    }
}

#[test]
fn damaged_files_are_refused_or_decoded_and_nothing_else() {
    let colours = smooth(24, 16);
    let mut random = Random::new(5, 0, 0);
    let (mut n_refused, mut n_decoded) = (0, 0);
    for file in [jpeg(&colours, 24, 16), png(&colours, 24, 16, ExtendedColorType::Rgb8)] {
        for _ in 0..400 {
            let mut damaged = file.clone();
            for _ in 0..1 + random.below(8) {
                let at = random.below(damaged.len());
                damaged[at] = random.below(256) as u8;
            }
            match (Decoding { max_pixel_bytes: 1 << 20, ..Decoding::default() }).decode(&damaged) {
                Ok(image) => {
                    assert!(bytes(&image).len() <= 1 << 20);
                    n_decoded += 1;
                }
                Err(_) => n_refused += 1,
            }
        }
    }
    assert!(n_refused > 100 && n_decoded > 20, "{n_refused} {n_decoded}");
}

/// The check of a PNG chunk (ISO 3309), bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// A small PNG whose header promises another size.
fn png_promising(width: u32, height: u32) -> Vec<u8> {
    let mut file = png(&noise(1, 12), 2, 2, ExtendedColorType::Rgb8);
    // Signature of 8 bytes, length and name of 4 each, then width and height.
    file[16..20].copy_from_slice(&width.to_be_bytes());
    file[20..24].copy_from_slice(&height.to_be_bytes());
    let check = crc(&file[12..29]).to_be_bytes();
    file[29..33].copy_from_slice(&check);
    file
}

/// A small JPEG whose header promises another size.
fn jpeg_promising(width: u16, height: u16) -> Vec<u8> {
    let mut file = jpeg(&smooth(16, 16), 16, 16);
    // The frame: marker and length of 2 bytes each, one byte of precision, then height and width.
    let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    file[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    file[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    file
}

#[test]
fn what_a_header_promises_is_checked_before_memory_is_taken() {
    let decoding = Decoding::default();
    assert!(decoding.decode(&png_promising(2, 2)).is_ok() && decoding.decode(&jpeg_promising(16, 16)).is_ok());
    let start = Instant::now();
    for (file, size) in [
        (png_promising(60_000, 60_000), "60000x60000"),
        (jpeg_promising(60_000, 60_000), "60000x60000"),
        (jpeg_promising(65_000, 64_000), "65000x64000"),
        (png_promising(1, 0x7FFF_FFFF), "1x2147483647"),
    ] {
        let message = refusal(&decoding, &file);
        assert!(message.contains(size) && message.contains("promises"), "{message}");
    }
    for (width, height) in [(0x7FFF_FFFF, 1), (0x7FFF_FFFF, 0x7FFF_FFFF), (0, 0), (0, 5), (u32::MAX, u32::MAX)] {
        assert!(decoding.decode(&png_promising(width, height)).is_err(), "{width} {height}");
    }
    // Sizes within the limit, with far too little data.
    for file in [png_promising(6000, 6000), png_promising(40_000_000, 1)] {
        assert!(decoding.decode(&file).is_err());
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn small_files_of_large_images_keep_to_the_limit() {
    let file = png(&vec![0; 1000 * 1000 * 3], 1000, 1000, ExtendedColorType::Rgb8);
    assert!(file.len() < 30_000);
    assert_eq!(Decoding::default().decode(&file).unwrap().shape(), [1000, 1000, 3]);
    let tight = Decoding { max_pixel_bytes: 2_999_999, ..Decoding::default() };
    assert!(refusal(&tight, &file).contains("1000x1000"));
    // One channel of a file is three of the image that is asked for.
    let grey = png(&vec![0; 1000 * 1000], 1000, 1000, ExtendedColorType::L8);
    assert!(refusal(&tight, &grey).contains("1000x1000"));
    assert!(Decoding { channels: Channels::Grey, ..tight }.decode(&grey).is_ok());
}

#[test]
fn a_jpeg_of_endless_scans_is_refused() {
    let file = jpeg(&smooth(16, 16), 16, 16);
    let scan = file.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
    let mut bomb = file[..scan].to_vec();
    for _ in 0..101 {
        bomb.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0, 0x55]);
    }
    bomb.extend([0xFF, 0xD9]);
    let message = refusal(&Decoding::default(), &bomb);
    assert!(message.contains("scans"), "{message}");
}

#[test]
fn a_file_is_told_by_its_contents() {
    let place = Place::new();
    let decoding = Decoding::default();
    let file = png(&noise(1, 12), 2, 2, ExtendedColorType::Rgb8);
    let image = decoding.read(place.file("really-a-png.jpg", &file)).unwrap();
    assert_eq!(image.shape(), [2, 2, 3]);
    for (name, contents, want) in [
        ("empty.png", &b""[..], "is empty"),
        ("text.png", b"this is text", "is neither JPEG nor PNG"),
        ("one.jpg", b"\xFF", "is neither JPEG nor PNG"),
        ("picture.png", b"GIF89a\0\0", "is GIF, and only JPEG and PNG are read"),
        ("picture.jpg", b"BM\0\0\0\0\0\0\0\0", "is BMP, and only JPEG and PNG are read"),
    ] {
        let path = place.file(name, contents);
        let error = decoding.read(&path).unwrap_err();
        assert!(matches!(&error, Error::Format { path: of, .. } if *of == path), "{error:?}");
        assert_eq!(error.to_string(), format!("{}: {want}", path.display()));
    }
}

#[test]
fn what_is_no_file_is_refused_with_its_path() {
    let place = Place::new();
    let decoding = Decoding { max_file_bytes: 1000, ..Decoding::default() };
    let missing = place.path().join("missing.png");
    assert!(matches!(decoding.read(&missing), Err(Error::Io { path, .. }) if path == missing));
    let folder = place.folder("folder.png");
    assert!(matches!(decoding.read(&folder), Err(Error::Format { path, .. }) if path == folder));
    let large = place.file("large.png", &noise(1, 1001));
    let message = decoding.read(&large).unwrap_err().to_string();
    assert!(message.contains("large.png: has more than 1000 bytes"), "{message}");
}
