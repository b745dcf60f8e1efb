//! The tensor: concrete bytes, or a value on a tape, or the first error of a formula.
//!
//! A [`Tensor`] is a cheap, immutable, shared handle. Methods never panic on ill-typed arguments: they return a
//! *poisoned* tensor that carries the first error with the caller's line, and every method that leaves the world of
//! tensors (`to_vec`, `item`, a call of an accelerated function) returns that error.

mod create;
mod display;
mod memory;
#[cfg(feature = "ndarray")]
mod ndarray;
mod raw;

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use retape_runtime::{Buffer, DType, Device, DeviceBuffer, Element, Shape};

pub(crate) use memory::{Memory, gpu};

use crate::error::{Caller, Error, Result, ill_typed};
use crate::method::{method, reported};
use crate::types::{TensorType, ValueId};

/// An immutable, n-dimensional array of one dtype; a handle that is cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    Concrete(Arc<Concrete>),
    Traced(Arc<Traced>),
    Poisoned(Arc<Error>),
}

/// Dense row-major bytes with their type.
#[derive(Debug)]
pub(crate) struct Concrete {
    ty: TensorType,
    bytes: TensorBytes,
}

/// The bytes of a concrete tensor.
#[derive(Debug)]
enum TensorBytes {
    Own(Memory),
    /// Those of another one, which owns them.
    Of(Arc<Concrete>),
}

impl Concrete {
    pub(crate) fn ty(&self) -> &TensorType {
        &self.ty
    }

    #[inline]
    fn memory(&self) -> &Memory {
        match &self.bytes {
            TensorBytes::Own(memory) => memory,
            TensorBytes::Of(owner) => owner.memory(),
        }
    }

    /// The tensor that owns the bytes: this one, or the one that it is a view of.
    pub(crate) fn owner(self: &Arc<Concrete>) -> &Arc<Concrete> {
        match &self.bytes {
            TensorBytes::Own(_) => self,
            TensorBytes::Of(owner) => owner,
        }
    }

    /// Lets `look` read the elements in main memory; a copy of those on a GPU is not kept.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let len = self.ty.n_elements() * self.ty.dtype.size();
        self.memory().read(|bytes| look(&bytes[..len]))
    }

    /// The bytes in main memory; those on a GPU are waited for and copied, once.
    pub(crate) fn bytes(&self) -> Result<&Buffer> {
        self.memory().on_host()
    }

    /// The bytes, if they are in main memory.
    #[inline]
    pub(crate) fn host_bytes(&self) -> Option<&Buffer> {
        self.memory().as_host()
    }

    /// The bytes, if they are on a GPU.
    pub(crate) fn device_bytes(&self) -> Option<&DeviceBuffer> {
        self.memory().as_device()
    }

    /// A tensor with a copy of the elements on a device.
    pub(crate) fn copied_to(&self, device: Device) -> Result<Tensor> {
        Ok(Tensor::concrete(self.ty.clone(), self.memory().copied_to(device)?))
    }

    /// A tensor with a copy of some of the elements, which are in row-major order, where they are.
    pub(crate) fn cut(&self, elements: Range<usize>, shape: Shape) -> Result<Tensor> {
        let size = self.ty.dtype.size();
        let bytes = self.memory().cut(elements.start * size..elements.end * size)?;
        Ok(Tensor::concrete(TensorType { dtype: self.ty.dtype, shape }, bytes))
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.memory().len()
    }

    pub(crate) fn device(&self) -> Device {
        self.memory().device()
    }
}

/// The tape that records a traced tensor, as far as tensors know it; the module `tape` knows the rest.
pub(crate) trait Recording: Any + fmt::Debug + Send + Sync {
    /// Marks the trace as failed and returns the poisoned tensor; the first error stays.
    fn fail(&self, error: Error) -> Tensor;

    /// Whether the trace has ended.
    fn is_finished(&self) -> bool;
}

/// A value on a tape.
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    pub(crate) recording: Arc<dyn Recording>,
    pub(crate) id: ValueId,
    pub(crate) ty: TensorType,
    /// Where it will be.
    pub(crate) device: Device,
}

impl Tensor {
    /// A concrete tensor over bytes that hold at least its elements.
    pub(crate) fn concrete(ty: TensorType, bytes: impl Into<Memory>) -> Tensor {
        let bytes = bytes.into();
        debug_assert!(ty.checked_bytes().is_some_and(|n| n <= bytes.len()), "{ty} in {} bytes", bytes.len());
        Tensor { repr: Repr::Concrete(Arc::new(Concrete { ty, bytes: TensorBytes::Own(bytes) })) }
    }

    /// A concrete tensor over the bytes of another one, which hold at least its elements.
    pub(crate) fn concrete_over(ty: TensorType, other: &Arc<Concrete>) -> Tensor {
        debug_assert!(ty.checked_bytes().is_some_and(|n| n <= other.n_bytes()), "{ty} over {}", other.ty);
        let bytes = TensorBytes::Of(Arc::clone(other.owner()));
        Tensor { repr: Repr::Concrete(Arc::new(Concrete { ty, bytes })) }
    }

    pub(crate) fn traced(traced: Traced) -> Tensor {
        Tensor { repr: Repr::Traced(Arc::new(traced)) }
    }

    pub(crate) fn poisoned(error: Error) -> Tensor {
        Tensor::poisoned_shared(error.shared())
    }

    pub(crate) fn poisoned_shared(error: Arc<Error>) -> Tensor {
        Tensor { repr: Repr::Poisoned(error) }
    }

    pub(crate) fn as_concrete(&self) -> Option<&Arc<Concrete>> {
        match &self.repr {
            Repr::Concrete(concrete) => Some(concrete),
            Repr::Traced(_) | Repr::Poisoned(_) => None,
        }
    }

    /// The bytes, if no other handle or view shares them.
    ///
    /// # Errors
    ///
    /// Gives the tensor back if one does, or if it has no bytes.
    pub(crate) fn into_memory(self) -> std::result::Result<Memory, Tensor> {
        let concrete = match self.repr {
            Repr::Concrete(concrete) => concrete,
            repr @ (Repr::Traced(_) | Repr::Poisoned(_)) => return Err(Tensor { repr }),
        };
        let shared = |concrete| Tensor { repr: Repr::Concrete(concrete) };
        let Concrete { ty, bytes } = Arc::try_unwrap(concrete).map_err(shared)?;
        match bytes {
            TensorBytes::Own(memory) => Ok(memory),
            TensorBytes::Of(owner) => match Arc::try_unwrap(owner) {
                Ok(Concrete { bytes: TensorBytes::Own(memory), .. }) => Ok(memory),
                Ok(owner) => Err(shared(Arc::new(Concrete { ty, bytes: TensorBytes::Of(Arc::new(owner)) }))),
                Err(owner) => Err(shared(Arc::new(Concrete { ty, bytes: TensorBytes::Of(owner) }))),
            },
        }
    }

    pub(crate) fn as_traced(&self) -> Option<&Traced> {
        match &self.repr {
            Repr::Traced(traced) => Some(traced),
            Repr::Concrete(_) | Repr::Poisoned(_) => None,
        }
    }

    /// The error that this tensor carries, if it is poisoned.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let sum = Tensor::ones([2]) + Tensor::ones([3]);
    /// assert!(sum.error().is_some_and(|e| e.to_string().contains("do not broadcast")));
    /// assert!(Tensor::ones([2]).error().is_none());
    /// ```
    pub fn error(&self) -> Option<&Error> {
        match &self.repr {
            Repr::Poisoned(error) => Some(error),
            Repr::Concrete(_) | Repr::Traced(_) => None,
        }
    }

    pub(crate) fn shared_error(&self) -> Option<&Arc<Error>> {
        match &self.repr {
            Repr::Poisoned(error) => Some(error),
            Repr::Concrete(_) | Repr::Traced(_) => None,
        }
    }

    /// The dtype and shape; none if the tensor is poisoned.
    pub(crate) fn ty(&self) -> Option<&TensorType> {
        match &self.repr {
            Repr::Concrete(concrete) => Some(&concrete.ty),
            Repr::Traced(traced) => Some(&traced.ty),
            Repr::Poisoned(_) => None,
        }
    }

    /// The extents, outermost axis first; empty for a scalar and for a poisoned tensor.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[1.0_f32, 2.0, 3.0]]).shape(), [1, 3]);
    /// ```
    pub fn shape(&self) -> &[usize] {
        self.ty().map_or(&[], |ty| &ty.shape)
    }

    /// The number of axes.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).rank(), 2);
    /// ```
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The number of elements.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).n_elements(), 6);
    /// ```
    pub fn n_elements(&self) -> usize {
        self.ty().map_or(1, TensorType::n_elements)
    }

    /// The dtype; `f32` for a poisoned tensor.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// assert_eq!(Tensor::from([1_u8, 2]).dtype(), DType::U8);
    /// ```
    pub fn dtype(&self) -> DType {
        self.ty().map_or(DType::F32, |ty| ty.dtype)
    }

    /// The device that holds the elements, or will hold them if the tensor is being traced.
    ///
    /// ```
    /// # use retape::{Device, Tensor};
    /// assert_eq!(Tensor::zeros([2]).device(), Device::Cpu);
    /// ```
    #[inline]
    pub fn device(&self) -> Device {
        match &self.repr {
            Repr::Concrete(concrete) => concrete.device(),
            Repr::Traced(traced) => traced.device,
            Repr::Poisoned(_) => Device::Cpu,
        }
    }

    /// The same elements on a device; the tensor itself if it is there.
    ///
    /// Copies to a GPU are queued and not waited for. Copies to main memory wait for the work that makes the elements;
    /// the tensor keeps such a copy, so that it is made once.
    ///
    /// A traced tensor is where its trace runs and cannot be moved; the result is then poisoned, as it is if the device
    /// has no room.
    ///
    /// ```
    /// # use retape::{Device, Tensor};
    /// let x = Tensor::from([1.0_f32, 2.0]);
    /// assert_eq!(x.to(Device::Cpu).to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn to(&self, device: impl Borrow<Device>) -> Tensor {
        let (at, device) = (Location::caller(), *device.borrow());
        if self.device() == device || self.error().is_some() {
            return self.clone();
        }
        match self.as_concrete() {
            Some(concrete) => {
                // A missing device is a mistake in this line; a device without room is not.
                let error = |error: Error| match error {
                    Error::Device(missing @ retape_runtime::Error::Unusable { .. }) => {
                        ill_typed("to", missing.to_string(), at)
                    }
                    other => other.of_op("to", at),
                };
                concrete.copied_to(device).unwrap_or_else(|e| Tensor::poisoned(error(e)))
            }
            None => {
                let from = self.device();
                let message = format!("a traced tensor cannot go from {from} to {device}; move it outside the closure");
                let error = ill_typed("to", message, at);
                self.as_traced()
                    .map_or_else(|| Tensor::poisoned(error.clone()), |traced| traced.recording.fail(error.clone()))
            }
        }
    }

    /// Whether the tensor is being traced and so has no elements yet.
    ///
    /// ```
    /// # use retape::{Tensor, accelerate};
    /// let seen = accelerate(|x: &Tensor| {
    ///     assert!(x.is_traced());
    ///     x.clone()
    /// });
    /// assert!(!seen.call(Tensor::ones([1]))?.is_traced());
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn is_traced(&self) -> bool {
        self.as_traced().is_some()
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    ///
    /// Fails if the tensor is poisoned (with the error it carries), is being traced, or holds another dtype than `T`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let at = Location::caller();
        let concrete = self.value_for("to_vec", at)?;
        if concrete.ty.dtype != T::DTYPE {
            let message = format!("the tensor is {}, not {}; cast it first", concrete.ty, T::DTYPE);
            return Err(ill_typed("to_vec", message, at));
        }
        let read = || Ok(concrete.bytes()?.to_vec::<T>()?);
        let mut values = read().map_err(|error: Error| error.of_op("to_vec", at))?;
        values.truncate(concrete.ty.n_elements());
        Ok(values)
    }

    /// The one element of a tensor that has just one.
    ///
    /// # Errors
    ///
    /// As [`to_vec`](Tensor::to_vec); also if the tensor does not have exactly one element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[7_i32]]).item::<i32>()?, 7);
    /// assert!(Tensor::from([1_i32, 2]).item::<i32>().is_err());
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let (at, _method) = (Location::caller(), method("item"));
        let ty = self.value_for("item", at)?.ty();
        if ty.n_elements() != 1 {
            return Err(ill_typed("item", format!("{ty} does not have exactly one element"), at));
        }
        Ok(self.to_vec::<T>()?[0])
    }

    /// The concrete tensor, for a method that needs values.
    pub(crate) fn value_for(&self, op: &'static str, at: Caller) -> Result<&Arc<Concrete>> {
        match &self.repr {
            Repr::Concrete(concrete) => Ok(concrete),
            Repr::Poisoned(error) => Err(Error::clone(error)),
            Repr::Traced(traced) => {
                let (op, at) = reported(op, at);
                let error = if traced.recording.is_finished() {
                    let message = "a traced tensor was read after its trace had ended; return it from the closure";
                    Error::Escaped { op, message, at, call: None }
                } else {
                    let remedy = "use `select` to choose between values, pass a static argument to steer the trace, \
                                  or return the tensor and read it outside";
                    Error::Traced { op, remedy, at, call: None }
                };
                traced.recording.fail(error.clone());
                Err(error)
            }
        }
    }
}
