//! Shapes: extents per axis, outermost first, row-major.
//!
//! Guarantees nothing about size, except that no count wraps; allocations ask [`Shape::checked_len`].

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

/// The extents of a tensor, outermost axis first; no axes for a scalar.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; INLINE]>);

/// Shapes of at most so many axes take no memory of their own.
const INLINE: usize = 4;

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Shape {
        // Results are given their shapes on every call, most of them short ones: four moves instead of a loop.
        let Shape(extents) = self;
        let mut short = [0; INLINE];
        match short.get_mut(..extents.len()) {
            Some(copy) => {
                copy.copy_from_slice(extents);
                Shape(SmallVec::from_buf_and_len(short, extents.len()))
            }
            None => Shape(extents.clone()),
        }
    }
}

impl Shape {
    /// The shape with these extents.
    pub fn new(extents: &[usize]) -> Shape {
        Shape(SmallVec::from_slice(extents))
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements, if it fits `usize`.
    pub fn checked_len(&self) -> Option<usize> {
        if self.0.contains(&0) {
            return Some(0);
        }
        self.0.iter().try_fold(1_usize, |n, &d| n.checked_mul(d))
    }

    /// The number of elements; `usize::MAX` if it does not fit, which shapes of existing tensors always do.
    ///
    /// ```
    /// # use retape_runtime::Shape;
    /// assert_eq!(Shape::new(&[2, 3]).n_elements(), 6);
    /// assert_eq!(Shape::new(&[1 << 40, 1 << 40]).n_elements(), usize::MAX);
    /// assert_eq!(Shape::new(&[1 << 40, 1 << 40, 0]).n_elements(), 0);
    /// ```
    pub fn n_elements(&self) -> usize {
        self.checked_len().unwrap_or(usize::MAX)
    }

    /// The row-major strides, in elements; `usize::MAX` for those that do not fit.
    pub fn strides(&self) -> SmallVec<[usize; 4]> {
        let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(1, self.rank());
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(self.0[axis]);
        }
        strides
    }

    /// The extents, mutable.
    pub fn extents_mut(&mut self) -> &mut SmallVec<[usize; 4]> {
        &mut self.0
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, extent) in self.0.iter().enumerate() {
            write!(f, "{}{extent}", if axis == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(extents: I) -> Shape {
        Shape(extents.into_iter().collect())
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}

impl From<&[usize]> for Shape {
    fn from(extents: &[usize]) -> Shape {
        Shape::new(extents)
    }
}

impl From<Vec<usize>> for Shape {
    fn from(extents: Vec<usize>) -> Shape {
        Shape(SmallVec::from_vec(extents))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Shape {
        Shape::new(&extents)
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(extents: &[usize; N]) -> Shape {
        Shape::new(extents)
    }
}

impl From<usize> for Shape {
    fn from(extent: usize) -> Shape {
        Shape::new(&[extent])
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Shape {
        Shape::default()
    }
}
