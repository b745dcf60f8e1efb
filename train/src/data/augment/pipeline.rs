//! One change of an image, and several in a row, each with random numbers of its own.

use std::fmt;
use std::sync::Arc;

use retape::data::Random;

use crate::data::image::Image;
use crate::data::keyed::ExampleRandom;
use crate::error::Result;

/// A change of an image by random numbers.
///
/// The result depends on the image and the numbers alone.
///
/// ```
/// use retape::data::Random;
/// use retape_train::Result;
/// use retape_train::data::Image;
/// use retape_train::data::augment::{Augment, Pipeline, Reflection};
///
/// /// Keeps one channel.
/// struct OneChannel;
///
/// impl Augment for OneChannel {
///     fn name(&self) -> &str {
///         "one channel"
///     }
///
///     fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
///         let [height, width, channels] = image.shape();
///         let kept = random.below(channels);
///         let values = image.into_u8().pixels().clone();
///         let retape_train::data::Pixels::U8(values) = values else { unreachable!("bytes were asked for") };
///         Image::from_u8(values.chunks(channels).map(|pixel| pixel[kept]).collect(), [height, width, 1])
///     }
/// }
///
/// let pipeline = Pipeline::new().then(OneChannel).then(Reflection::horizontal());
/// # let _ = pipeline;
/// ```
pub trait Augment: Send + Sync {
    /// The name of the choice; part of the key of its random numbers in a [`Pipeline`].
    fn name(&self) -> &str;

    /// Changes an image.
    ///
    /// # Errors
    ///
    /// Fails if the image is too small or has a wrong number of channels.
    fn apply(&self, image: Image, random: &mut Random) -> Result<Image>;
}

/// Changes of an image in a row.
///
/// Each change draws from the stream of its name, a repeated one from that of its name and its number (`rotation.2`);
/// so a change that is added or taken away leaves the choices of the others as they are.
///
/// ```
/// use retape_train::data::augment::{Border, ColourJitter, Normalisation, Pipeline, RandomCrop, Reflection};
/// use retape_train::data::{ExampleRandom, Image};
///
/// let pipeline = Pipeline::new()
///     .then(RandomCrop::new(32, 32).padding(4, Border::Reflect))
///     .then(Reflection::horizontal())
///     .then(ColourJitter::new().brightness(0.2).contrast(0.2))
///     .then_fn("noise", |image, random| {
///         let shape = image.shape();
///         let retape_train::data::Pixels::F32(mut values) = image.into_f32().into_pixels() else {
///             unreachable!("floats were asked for")
///         };
///         values.iter_mut().for_each(|value| *value += 0.01 * random.bell() as f32);
///         Image::from_f32(values, shape)
///     })
///     .then(Normalisation::CIFAR10);
/// let image = Image::from_u8(vec![128; 32 * 32 * 3], [32, 32, 3])?;
/// let augmented = pipeline.apply(image, &ExampleRandom::new(7, 0, 1234))?;
/// assert_eq!(augmented.shape(), [32, 32, 3]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Pipeline {
    stages: Vec<Stage>,
}

#[derive(Clone)]
struct Stage {
    /// The name of the stream that the change draws from.
    stream: String,
    augment: Arc<dyn Augment>,
}

impl Pipeline {
    /// Changes nothing.
    pub fn new() -> Pipeline {
        Pipeline::default()
    }

    /// Changes the image further.
    pub fn then(mut self, augment: impl Augment + 'static) -> Pipeline {
        let name = augment.name();
        let n_before = self.stages.iter().filter(|stage| stage.augment.name() == name).count();
        let stream = if n_before == 0 { name.to_owned() } else { format!("{name}.{}", n_before + 1) };
        self.stages.push(Stage { stream, augment: Arc::new(augment) });
        self
    }

    /// Changes the image further by a function, which draws from the stream called `name`.
    pub fn then_fn<F>(self, name: impl Into<String>, function: F) -> Pipeline
    where
        F: Fn(Image, &mut Random) -> Result<Image> + Send + Sync + 'static,
    {
        self.then(Named { name: name.into(), function })
    }

    /// Applies all changes in order.
    ///
    /// # Errors
    ///
    /// Fails with the first error of a change.
    pub fn apply(&self, image: Image, random: &ExampleRandom) -> Result<Image> {
        self.stages.iter().try_fold(image, |image, stage| {
            let mut stream = random.stream(&stage.stream);
            stage.augment.apply(image, &mut stream)
        })
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| &stage.stream)).finish()
    }
}

/// A function as a change.
struct Named<F> {
    name: String,
    function: F,
}

impl<F> Augment for Named<F>
where
    F: Fn(Image, &mut Random) -> Result<Image> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        (self.function)(image, random)
    }
}
