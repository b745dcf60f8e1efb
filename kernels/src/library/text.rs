//! Text form of library kernels: `name{field=value,...}`, printed by `Display` and read back by `parse`.
//!
//! The macro `descriptor!` declares a descriptor once, with its fields; equality, hash, printing, parsing and `verify`
//! follow from the declaration. Guarantees `parse(print(x)) == x` for a valid descriptor; `parse` gives `None` for any
//! other text and for a descriptor that its own `check` refuses, and never panics.

use std::fmt;

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

/// A value that may stand in a field of a descriptor.
pub(crate) trait Field: Sized {
    /// Prints the value without commas outside brackets.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads what `print` printed.
    fn read(text: &str) -> Option<Self>;
}

macro_rules! plain_fields {
    ($($t:ty)*) => {$(
        impl Field for $t {
            fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

plain_fields! { usize u32 bool }

impl Field for DType {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }

    fn read(text: &str) -> Option<Self> {
        DType::from_name(text)
    }
}

/// Written as value and dtype, `0.5 f32`.
impl Field for Scalar {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {}", self.dtype.name())
    }

    fn read(text: &str) -> Option<Self> {
        let (value, dtype) = text.split_once(' ')?;
        Scalar::parse(value, DType::from_name(dtype)?)
    }
}

impl<T: Field, const N: usize> Field for [T; N] {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_list(self, f)
    }

    fn read(text: &str) -> Option<Self> {
        read_list(text).collect::<Option<Vec<T>>>()?.try_into().ok()
    }
}

macro_rules! list_fields {
    ($($list:ty)*) => {$(
        impl<T: Field> Field for $list {
            fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print_list(self, f)
            }
            fn read(text: &str) -> Option<Self> {
                read_list(text).collect()
            }
        }
    )*};
}

list_fields! { SmallVec<[T; 4]> Vec<T> }

fn print_list<T: Field>(items: &[T], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("[")?;
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        item.print(f)?;
    }
    f.write_str("]")
}

/// The items of a list; one that is nothing if the text is no list.
fn read_list<T: Field>(text: &str) -> impl Iterator<Item = Option<T>> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let items = inner.map(split);
    let is_list = items.is_some();
    (!is_list).then_some(None).into_iter().chain(items.unwrap_or_default().into_iter().map(T::read))
}

/// Splits at the commas that stand outside brackets; the empty text has no items.
pub(crate) fn split(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    let (mut items, mut depth, mut start) = (Vec::new(), 0_i64, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b',' if depth == 0 => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    items
}

/// The values in `name{field=value,...}` if the name and all fields are as expected, in order.
pub(crate) fn values<'t>(text: &'t str, name: &str, fields: &[&str]) -> Option<Vec<&'t str>> {
    let body = text.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
    let items = split(body);
    if items.len() != fields.len() {
        return None;
    }
    items.into_iter().zip(fields).map(|(item, field)| item.strip_prefix(field)?.strip_prefix('=')).collect()
}

/// Declares a descriptor: a plain struct with its name in text, `Display`, `parse` and `verify`.
///
/// The type must have a method `check(&self) -> Checked`, which says what is wrong with the numbers in it. All other
/// methods rely on that check; `inputs` and `outputs` must neither panic nor wrap without it.
macro_rules! descriptor {
    (
        $(#[$doc:meta])*
        $type:ident $name:literal { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $type { $($(#[$field_doc])* pub $field: $field_type,)* }

        impl $type {
            /// The name in the text form.
            pub const NAME: &'static str = $name;

            /// Reads what `Display` printed; `None` if the text is anything else or the descriptor is not valid.
            pub fn parse(text: &str) -> Option<Self> {
                let values = $crate::library::text::values(text, $name, &[$(stringify!($field)),*])?;
                let mut values = values.into_iter();
                let it = $type { $($field: $crate::library::text::Field::read(values.next()?)?,)* };
                it.is_valid().then_some(it)
            }

            /// Checks that the descriptor describes a function: that its numbers are allowed and its sizes can be
            /// counted.
            ///
            /// # Errors
            ///
            /// Fails with the descriptor and the number that does not fit.
            pub fn verify(&self) -> Result<(), $crate::ir::VerifyError> {
                self.check().map_err(|message| $crate::ir::VerifyError { at: self.to_string(), message })
            }

            /// Whether the descriptor describes a function.
            pub fn is_valid(&self) -> bool {
                self.check().is_ok()
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut separator = concat!($name, "{");
                $(
                    write!(f, "{separator}{}=", stringify!($field))?;
                    $crate::library::text::Field::print(&self.$field, f)?;
                    separator = ",";
                )*
                let _ = separator;
                f.write_str("}")
            }
        }
    };
}

/// Declares a closed set of named alternatives that may stand in a field.
macro_rules! alternatives {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl $type {
            /// All of them, in declaration order.
            pub const ALL: &'static [$type] = &[$($type::$variant,)*];

            /// The name in the text form.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $text,)* }
            }
        }

        impl $crate::library::text::Field for $type {
            fn print(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }

            fn read(text: &str) -> Option<Self> {
                $type::ALL.iter().copied().find(|x| x.name() == text)
            }
        }
    };
}

pub(crate) use {alternatives, descriptor};

#[cfg(test)]
mod tests {
    use crate::library::{Library, Sort};
    use retape_runtime::DType;

    #[test]
    fn text_forms_read_back() {
        let text = "pool2d{dtype=f32,batch=1,height=4,width=5,channels=2,window=[2,3],stride=[1,2],\
                    padding=[[0,1],[2,3]],kind=max,pass=max_gather}";
        assert_eq!(Library::parse(text).map(|kernel| kernel.to_string()).as_deref(), Some(text));
        let sort = Sort { dtype: DType::I64, outer: 2, len: 3, inner: 0, descending: true, kept: 2 };
        assert_eq!(sort.to_string(), "sort{dtype=i64,outer=2,len=3,inner=0,descending=true,kept=2}");
        assert_eq!(Sort::parse(&sort.to_string()).as_ref(), Some(&sort));
        assert_eq!(Library::from(sort).name(), "sort");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "philox",
            "philox{}",
            "philox{len=}",
            "philox{len=-1}",
            "philox{len=1",
            "philox{len=1}}",
            "philox{len=1,len=1}",
            "philox{size=1}",
            "philox{len=18446744073709551615}",
            "sort{dtype=f16,outer=1,len=1,inner=1,descending=true}",
            "sort{dtype=f32,outer=1,len=1,inner=1,descending=2}",
            "sort{outer=1,dtype=f32,len=1,inner=1,descending=true}",
            "sort{dtype=f32,outer=4294967296,len=65536,inner=65536,descending=true}",
            "cast_half{from=f32,to=f64,len=1}",
            "pool2d{dtype=f32,batch=1,height=4,width=5,channels=2,window=[2],stride=[1,2],\
             padding=[[0,1],[2,3]],kind=max,pass=forward}",
            "pool2d{dtype=f32,batch=1,height=4,width=5,channels=2,window=[2,0],stride=[1,2],\
             padding=[[0,1],[2,3]],kind=max,pass=forward}",
            "pool2d{dtype=f32,batch=1,height=4,width=5,channels=2,window=[2,3],stride=[1,2],\
             padding=[[0,1],[2,3]],kind=sum,pass=max_gather}",
            "unknown{len=1}",
        ] {
            assert_eq!(Library::parse(text), None, "{text}");
        }
    }
}
