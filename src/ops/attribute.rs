//! Attributes of ops: values that print into the graph text and read back.

use retape_runtime::{DType, Scalar, Shape};
use smallvec::SmallVec;

use crate::types::TensorType;

/// A value that an op carries besides its arguments.
pub trait Attribute: Sized {
    /// The text form; without `{`, `}`, `;` and, outside square brackets, without `,`.
    fn print(&self) -> String;

    /// Reads what `print` wrote.
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! plain {
    ($($t:ty),*) => {$(
        impl Attribute for $t {
            fn print(&self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

plain!(usize, u32, i64, bool);

impl Attribute for DType {
    fn print(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        DType::from_name(text)
    }
}

impl Attribute for Shape {
    fn print(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        crate::types::parse_shape(text)
    }
}

impl Attribute for TensorType {
    fn print(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        crate::types::parse_type(text)
    }
}

/// Written as value and dtype, `0.5 f32`.
impl Attribute for Scalar {
    fn print(&self) -> String {
        format!("{self} {}", self.dtype)
    }

    fn parse(text: &str) -> Option<Self> {
        let (value, dtype) = text.split_once(' ')?;
        Scalar::parse(value, DType::from_name(dtype)?)
    }
}

/// Written as nested lists, `[1, [2, 3]]`.
impl<T: Attribute> Attribute for SmallVec<[T; 4]> {
    fn print(&self) -> String {
        print_list(self)
    }

    fn parse(text: &str) -> Option<Self> {
        parse_list(text)?.into_iter().map(|part| T::parse(part)).collect()
    }
}

impl<T: Attribute, const N: usize> Attribute for [T; N] {
    fn print(&self) -> String {
        print_list(self)
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Option<Vec<T>> = parse_list(text)?.into_iter().map(|part| T::parse(part)).collect();
        parts?.try_into().ok()
    }
}

fn print_list<T: Attribute>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(Attribute::print).collect();
    format!("[{}]", items.join(", "))
}

fn parse_list(text: &str) -> Option<Vec<&str>> {
    split_fields(text.trim().strip_prefix('[')?.strip_suffix(']')?)
}

/// Splits at commas outside square brackets and trims; `None` if brackets do not match.
pub(crate) fn split_fields(text: &str) -> Option<Vec<&str>> {
    let mut parts = vec![];
    let (mut depth, mut start) = (0_usize, 0);
    for (position, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(text[start..position].trim());
                start = position + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() || !parts.is_empty() {
        parts.push(last);
    }
    (depth == 0).then_some(parts)
}

/// An op's attributes as text and back; the `attributes!` macro implements it.
pub trait Attributes: Sized {
    /// `name=value` pairs, joined by commas; empty for none.
    fn print_attributes(&self) -> String;

    /// Reads what `print_attributes` wrote.
    fn parse_attributes(text: &str) -> Option<Self>;
}

/// Implements [`Attributes`] for ops, by the names of their fields.
macro_rules! attributes {
    ($($op:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::ops::attribute::Attributes for $op {
            fn print_attributes(&self) -> String {
                let fields: &[String] = &[$(
                    format!(concat!(stringify!($field), "={}"), $crate::ops::attribute::Attribute::print(&self.$field)),
                )*];
                fields.join(", ")
            }

            fn parse_attributes(text: &str) -> Option<Self> {
                let mut fields = $crate::ops::attribute::split_fields(text)?.into_iter();
                let op = $op {$(
                    $field: $crate::ops::attribute::Attribute::parse(
                        fields.next()?.strip_prefix(concat!(stringify!($field), "="))?,
                    )?,
                )*};
                fields.next().is_none().then_some(op)
            }
        }
    )*};
}

pub(crate) use attributes;
