//! A folder of images whose subfolders are labels.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::dataset::{Dataset, Labelled, check_index};
use super::decode::Decoding;
use super::image::Image;
use super::scan::Scan;
use crate::error::{Error, Result};

/// The settings of an [`ImageFolder`].
///
/// ```no_run
/// use retape_train::data::{FolderOptions, ImageFolder};
///
/// let train = ImageFolder::open("pets/train")?;
/// // The same labels for the same names, even if a class has no test images.
/// let options = FolderOptions { classes: Some(train.classes().to_vec()), empty_classes: true, ..Default::default() };
/// let test = ImageFolder::open_with("pets/test", options)?;
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderOptions {
    /// The names of the classes in the order of their labels; by default those of the subfolders, sorted by name.
    pub classes: Option<Vec<OsString>>,
    /// Whether a class may have no images; not by default.
    pub empty_classes: bool,
    /// How files become images.
    pub decoding: Decoding,
}

/// The JPEG and PNG files below a folder, labelled by its subfolders.
///
/// The subfolders, sorted by name, are classes `0, 1, ..`; the files of a class, in whatever depth, are sorted by path.
/// Files are images if their names end in `.jpg`, `.jpeg` or `.png`, in small or capital letters; the contents decide
/// which of the two they are. Everything else, hidden entries too, is in [`ignored`](ImageFolder::ignored). Links are
/// followed. Opening lists files and reads none.
///
/// Examples are an image, of the size of its file, and its label.
///
/// ```no_run
/// use retape_train::data::augment::{CentreCrop, Pipeline, Resize};
/// use retape_train::data::{Dataset, ImageFolder, Labelled, Loader};
///
/// let folder = ImageFolder::open("pets")?;
/// println!("{} images in {} classes", folder.len(), folder.classes().len());
/// let (train, held_out) = folder.split_by_label(0.1, 7)?;
/// let pipeline = Pipeline::new().then(Resize::shorter_side(72)).then(CentreCrop::new(64, 64));
/// let mut loader = Loader::new(train.augment(7, pipeline), 32)?.shuffled(7);
/// for batch in loader.epoch(0) {
///     let (images, labels) = batch?.data;
///     assert_eq!((&images.shape()[1..], labels.rank()), (&[64, 64, 3][..], 1));
/// }
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<OsString>,
    files: Vec<(PathBuf, i32)>,
    ignored: Vec<PathBuf>,
    decoding: Decoding,
}

impl ImageFolder {
    /// Lists the images below `root`.
    ///
    /// # Errors
    ///
    /// Fails with a path if a folder cannot be read, there is no subfolder, a class has no images, a link leads nowhere,
    /// in a circle or to a folder that is there already, or a name of an image is that of a socket, pipe or device.
    pub fn open(root: impl AsRef<Path>) -> Result<ImageFolder> {
        ImageFolder::open_with(root, FolderOptions::default())
    }

    /// Lists the images below `root`, with options.
    ///
    /// # Errors
    ///
    /// As [`open`](ImageFolder::open); also if a subfolder is none of the classes of the options, or a class is named
    /// twice.
    #[track_caller]
    pub fn open_with(root: impl AsRef<Path>, options: FolderOptions) -> Result<ImageFolder> {
        let root = root.as_ref();
        let mut scan = Scan::default();
        let found = scan.classes(root)?;
        if found.is_empty() {
            return Err(Error::format(root, "has no subfolders, and those are the labels"));
        }
        let classes = match options.classes {
            None => found.clone(),
            Some(classes) => checked_classes(root, &found, classes)?,
        };
        let mut files = vec![];
        for (label, name) in (0..).zip(&classes) {
            let folder = root.join(name);
            let images = if found.contains(name) { scan.images(&folder)? } else { vec![] };
            if images.is_empty() && !options.empty_classes {
                return Err(Error::format(folder, "has no images, no files that end in .jpg, .jpeg or .png"));
            }
            files.extend(images.into_iter().map(|path| (path, label)));
        }
        if files.is_empty() {
            return Err(Error::format(root, "has no images, no files that end in .jpg, .jpeg or .png"));
        }
        Ok(ImageFolder { root: root.to_owned(), classes, files, ignored: scan.ignored, decoding: options.decoding })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The names of the classes; label `i` is the name at `i`.
    pub fn classes(&self) -> &[OsString] {
        &self.classes
    }

    /// The file of example `index`, if there is such an example.
    pub fn path(&self, index: usize) -> Option<&Path> {
        self.files.get(index).map(|(path, _)| path.as_path())
    }

    /// Everything below the folder that is not taken for an image.
    pub fn ignored(&self) -> &[PathBuf] {
        &self.ignored
    }
}

/// The classes asked for, if they hold all that were found.
#[track_caller]
fn checked_classes(root: &Path, found: &[OsString], classes: Vec<OsString>) -> Result<Vec<OsString>> {
    if let Some(name) = found.iter().find(|name| !classes.contains(name)) {
        return Err(Error::format(root.join(name), "is none of the classes asked for"));
    }
    if let Some((_, name)) = classes.iter().enumerate().find(|(at, name)| classes[..*at].contains(name)) {
        return Err(Error::argument(format!("class {} is named twice", name.display())));
    }
    Ok(classes)
}

impl Dataset for ImageFolder {
    type Item = (Image, i32);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<(Image, i32)> {
        check_index(index, self.files.len())?;
        let (path, label) = &self.files[index];
        Ok((self.decoding.read(path)?, *label))
    }
}

impl Labelled for ImageFolder {
    fn label(&self, index: usize) -> Result<i32> {
        check_index(index, self.files.len())?;
        Ok(self.files[index].1)
    }
}
