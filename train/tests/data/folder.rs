//! Folders of images, sound and hostile.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use image::ExtendedColorType;
use retape_train::Error;
use retape_train::data::{Channels, Dataset, Decoding, FolderOptions, ImageFolder, Labelled, Loader};

use crate::place::{Place, jpeg, noise, png, smooth};

/// A PNG of one colour.
fn dot(value: u8) -> Vec<u8> {
    png(&[value; 3], 1, 1, ExtendedColorType::Rgb8)
}

fn names(folder: &ImageFolder) -> Vec<String> {
    let name = |index| folder.path(index).unwrap().strip_prefix(folder.root()).unwrap().to_str().unwrap().to_owned();
    (0..folder.len()).map(name).collect()
}

/// The error of opening, which has to name this path.
fn refusal(place: &Place, path: &str) -> String {
    let error = ImageFolder::open(place.path()).unwrap_err();
    let at = match &error {
        Error::Io { path, .. } | Error::Format { path, .. } => path.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(at, place.path().join(path), "{error}");
    error.to_string()
}

#[test]
fn subfolders_are_labels() {
    let place = Place::new();
    place.file("dog/b.png", &dot(4));
    place.file("dog/A.JPG", &jpeg(&smooth(8, 8), 8, 8));
    place.file("dog/young/c.jpeg", &dot(5));
    place.file("cat/x.png", &dot(1));
    place.file("cat/notes.txt", b"about cats");
    place.file("cat/.x.png", b"leavings of some system");
    place.file("ant/10.png", &dot(9));
    place.file("ant/9.png", &dot(8));
    place.file("readme.png", &dot(0));
    place.folder(".cache");
    let folder = ImageFolder::open(place.path()).unwrap();
    assert_eq!(folder.classes(), ["ant", "cat", "dog"]);
    assert_eq!(names(&folder), ["ant/10.png", "ant/9.png", "cat/x.png", "dog/A.JPG", "dog/b.png", "dog/young/c.jpeg"]);
    let labels: Vec<i32> = (0..6).map(|index| folder.label(index).unwrap()).collect();
    assert_eq!(labels, [0, 0, 1, 2, 2, 2]);
    for (index, want) in [(0, 9_u8), (1, 8), (2, 1), (4, 4), (5, 5)] {
        let (image, label) = folder.get(index).unwrap();
        assert_eq!((image.value(0, 0, 2), label), (Some(f32::from(want) / 255.0), labels[index]));
    }
    // Nothing is left out in silence.
    let mut ignored: Vec<PathBuf> = folder.ignored().to_vec();
    ignored.sort();
    let left_out = [".cache", "cat/.x.png", "cat/notes.txt", "readme.png"].map(|name| place.path().join(name));
    assert_eq!(ignored, left_out);
    assert!(folder.get(6).is_err() && folder.label(6).is_err() && folder.path(6).is_none());
}

#[test]
fn a_split_holds_out_the_same_share_of_every_label() {
    let place = Place::new();
    for index in 0..20 {
        place.file(format!("many/{index:02}.png"), &dot(index));
    }
    for index in 0..5 {
        place.file(format!("few/{index}.png"), &dot(100 + index));
    }
    let open = || ImageFolder::open(place.path()).unwrap();
    let (train, held_out) = open().split_by_label(0.2, 3).unwrap();
    let count = |part: &dyn Labelled<Item = _>, label| {
        (0..part.len()).filter(|&index| part.label(index).unwrap() == label).count()
    };
    assert_eq!([count(&train, 0), count(&train, 1)], [4, 16]);
    assert_eq!([count(&held_out, 0), count(&held_out, 1)], [1, 4]);
    let mut all = [train.indices(), held_out.indices()].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..25));
    assert_eq!(train.indices(), open().split_by_label(0.2, 3).unwrap().0.indices());
    assert_ne!(train.indices(), open().split_by_label(0.2, 4).unwrap().0.indices());
}

#[test]
fn an_empty_class_is_refused_or_allowed() {
    let place = Place::new();
    place.file("full/a.png", &dot(1));
    place.file("hollow/notes.txt", b"no images");
    let message = refusal(&place, "hollow");
    assert!(message.contains("has no images"), "{message}");
    let options = FolderOptions { empty_classes: true, ..Default::default() };
    let folder = ImageFolder::open_with(place.path(), options).unwrap();
    assert_eq!((folder.classes().len(), folder.len()), (2, 1));
}

#[test]
fn a_folder_without_images_is_refused() {
    let place = Place::new();
    assert!(refusal(&place, "").contains("has no subfolders"));
    place.file("a.png", &dot(1));
    assert!(refusal(&place, "").contains("has no subfolders"));
    place.folder("cat");
    assert!(refusal(&place, "cat").contains("has no images"));
    let options = FolderOptions { empty_classes: true, ..Default::default() };
    let error = ImageFolder::open_with(place.path(), options).unwrap_err();
    assert!(error.to_string().contains("has no images"), "{error}");

    let file = place.file("file", b"");
    assert!(matches!(ImageFolder::open(&file), Err(Error::Format { path, .. }) if path == file));
    let missing = place.path().join("missing");
    assert!(matches!(ImageFolder::open(&missing), Err(Error::Io { path, .. }) if path == missing));
}

#[test]
fn classes_can_be_those_of_another_folder() {
    let place = Place::new();
    place.file("b/1.png", &dot(1));
    place.file("c/1.png", &dot(1));
    let open = |names: &[&str], empty_classes| {
        let classes = Some(names.iter().map(OsString::from).collect());
        ImageFolder::open_with(place.path(), FolderOptions { classes, empty_classes, ..Default::default() })
    };
    let folder = open(&["c", "a", "b"], true).unwrap();
    assert_eq!((0..2).map(|index| folder.label(index).unwrap()).collect::<Vec<_>>(), [0, 2]);
    assert!(open(&["a", "b", "c"], false).unwrap_err().to_string().contains("has no images"));
    assert!(open(&["b"], true).unwrap_err().to_string().contains("c: is none of the classes"));
    assert!(open(&["b", "c", "b"], true).unwrap_err().to_string().contains("named twice"));
}

#[test]
fn decoding_is_as_asked() {
    let place = Place::new();
    place.file("a/1.png", &dot(1));
    let decoding = Decoding { channels: Channels::Grey, ..Default::default() };
    let folder = ImageFolder::open_with(place.path(), FolderOptions { decoding, ..Default::default() }).unwrap();
    assert_eq!(folder.get(0).unwrap().0.shape(), [1, 1, 1]);
}

#[test]
fn a_broken_image_is_an_error_with_its_path_or_skipped_and_counted() {
    let place = Place::new();
    for index in 0..6 {
        place.file(format!("a/{index}.png"), &png(&noise(index, 48), 4, 4, ExtendedColorType::Rgb8));
    }
    let whole = png(&noise(1, 48), 4, 4, ExtendedColorType::Rgb8);
    let broken = [place.file("a/1.png", &whole[..60]), place.file("a/4.png", b"")];
    let loader = Loader::new(ImageFolder::open(place.path()).unwrap(), 3).unwrap();
    let results: Vec<_> = loader.epoch(0).collect();
    assert_eq!(results.len(), 2);
    for (result, path) in results.iter().zip(&broken) {
        let message = result.as_ref().unwrap_err().to_string();
        assert!(message.contains(&path.display().to_string()), "{message}");
    }

    let loader = loader.skip_broken();
    let mut batches = loader.epoch(0);
    let indices: Vec<Vec<usize>> = batches.by_ref().map(|batch| batch.unwrap().indices).collect();
    assert_eq!(indices, [vec![0, 2], vec![3, 5]]);
    let skipped: Vec<String> = batches.skipped().iter().map(Error::to_string).collect();
    assert_eq!(skipped.len(), 2);
    for (message, path) in skipped.iter().zip(&broken) {
        assert!(message.contains(&path.display().to_string()), "{message}");
    }
    assert_eq!((batches.stats().examples, batches.stats().skipped), (4, 2));
}

#[test]
fn a_file_that_went_away_is_an_error_with_its_path() {
    let place = Place::new();
    let path = place.file("a/1.png", &dot(1));
    let folder = ImageFolder::open(place.path()).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(folder.get(0), Err(Error::Io { path: at, .. }) if at == path));
    fs::create_dir(&path).unwrap();
    assert!(matches!(folder.get(0), Err(Error::Format { path: at, .. }) if at == path));
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn names_need_not_be_text() {
        let place = Place::new();
        let (class, file) = (OsStr::from_bytes(b"caf\xE9"), OsStr::from_bytes(b"\xFF\xFE.png"));
        place.file(PathBuf::from(class).join(file), &dot(7));
        let broken = place.file(PathBuf::from(class).join(OsStr::from_bytes(b"\xFF\xFF.png")), b"");
        let folder = ImageFolder::open(place.path()).unwrap();
        assert_eq!(folder.classes(), [class]);
        assert_eq!(folder.get(0).unwrap().0.value(0, 0, 0), Some(7.0 / 255.0));
        assert!(matches!(folder.get(1), Err(Error::Format { path, .. }) if path == broken));
    }

    #[test]
    fn links_are_followed() {
        let place = Place::new();
        let elsewhere = Place::new();
        let image = elsewhere.file("1.png", &dot(3));
        elsewhere.file("more/2.png", &dot(4));
        place.folder("a");
        symlink(&image, place.path().join("a/1.png")).unwrap();
        symlink(elsewhere.path().join("more"), place.path().join("b")).unwrap();
        let folder = ImageFolder::open(place.path()).unwrap();
        assert_eq!(names(&folder), ["a/1.png", "b/2.png"]);
        assert_eq!(folder.get(1).unwrap().0.value(0, 0, 0), Some(4.0 / 255.0));
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let up = Place::new();
        up.file("a/1.png", &dot(1));
        symlink("..", up.path().join("a/up")).unwrap();
        assert!(refusal(&up, "a/up").contains("is the same folder"));

        let own = Place::new();
        own.file("a/1.png", &dot(1));
        symlink("own.png", own.path().join("a/own.png")).unwrap();
        refusal(&own, "a/own.png");

        let pair = Place::new();
        pair.file("a/1.png", &dot(1));
        pair.file("b/1.png", &dot(1));
        symlink("../b", pair.path().join("a/b")).unwrap();
        symlink("../a", pair.path().join("b/a")).unwrap();
        refusal(&pair, "a/b/a");
    }

    #[test]
    fn links_that_multiply_are_refused() {
        // Followed blindly, two to the power of thirty folders.
        let place = Place::new();
        place.file("class/0/1.png", &dot(1));
        for depth in 0..30 {
            let folder = place.folder(format!("class/{depth}"));
            symlink(format!("../{}", depth + 1), folder.join("left")).unwrap();
            symlink(format!("../{}", depth + 1), folder.join("right")).unwrap();
        }
        place.folder("class/30");
        let error = ImageFolder::open(place.path()).unwrap_err();
        assert!(error.to_string().contains("is the same folder"), "{error}");
    }

    #[test]
    fn a_link_to_nowhere_is_refused() {
        let place = Place::new();
        place.file("a/1.png", &dot(1));
        symlink("gone", place.path().join("a/2.png")).unwrap();
        refusal(&place, "a/2.png");
    }

    #[test]
    fn a_socket_with_the_name_of_an_image_is_refused() {
        let place = Place::new();
        place.file("a/1.png", &dot(1));
        let _socket = UnixListener::bind(place.path().join("a/2.png")).unwrap();
        assert!(refusal(&place, "a/2.png").contains("is neither a file nor a folder"));
    }

    #[test]
    fn a_pipe_in_place_of_a_file_does_not_hang() {
        let place = Place::new();
        let path = place.file("a/1.png", &dot(1));
        let folder = ImageFolder::open(place.path()).unwrap();
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(matches!(folder.get(0), Err(Error::Format { path: at, .. }) if at == path));
    }

    #[test]
    fn an_unreadable_file_or_folder_is_an_error_with_its_path() {
        let place = Place::new();
        let path = place.file("a/1.png", &dot(1));
        let folder = ImageFolder::open(place.path()).unwrap();
        let close = |path: &PathBuf| fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        close(&path);
        if fs::read(&path).is_ok() {
            // The superuser reads everything; the tests above cover the errors of the system for it.
            return;
        }
        assert!(matches!(folder.get(0), Err(Error::Io { path: at, .. }) if at == path));
        let class = place.path().join("a");
        close(&class);
        let error = ImageFolder::open(place.path()).unwrap_err();
        fs::set_permissions(&class, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(error, Error::Io { path: at, .. } if at == class));
    }
}
