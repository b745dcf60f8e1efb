//! What cannot be in a tree, told at the field itself and with what to write instead.
//!
//! A macro sees names, not types: an alias of `f32` gets past these checks and is refused by the compiler, for it is
//! no `Tree`.

use syn::{Attribute, Error, Field, GenericArgument, GenericParam, Generics, PathArguments, Result, Type};

/// Whether a field is marked `#[tree(static)]`.
pub(crate) fn is_static(field: &Field) -> Result<bool> {
    let mut found = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("tree")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("static") {
                return Err(meta.error("the one thing to say here is `static`"));
            }
            found = true;
            Ok(())
        })?;
    }
    Ok(found)
}

/// Refuses `#[tree(..)]` anywhere but on a field.
pub(crate) fn attributes(attributes: &[Attribute], place: &str) -> Result<()> {
    match attributes.iter().find(|attribute| attribute.path().is_ident("tree")) {
        Some(attribute) => {
            Err(Error::new_spanned(attribute, format!("`#[tree(static)]` belongs on a field, not on {place}")))
        }
        None => Ok(()),
    }
}

/// Refuses types that borrow.
pub(crate) fn lifetimes(generics: &Generics) -> Result<()> {
    for parameter in &generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) => return Err(Error::new_spanned(lifetime, BORROWED)),
            GenericParam::Type(_) | GenericParam::Const(_) => {}
        }
    }
    Ok(())
}

const BORROWED: &str = "a `Tree` owns its parts, since it is also built anew; a `Tensor` is a cheap handle to clone";
const FLOAT: &str = "a float that changes is an input: use `Tensor`; one that never changes: `Static<f32>` or \
                     `#[tree(static)]`";
const UNORDERED: &str = "a `Tree` has its leaves in one order, which this does not: use `BTreeMap`";

/// Refuses types that are known not to be trees, also inside the containers that are.
pub(crate) fn field_type(ty: &Type) -> Result<()> {
    match ty {
        Type::Reference(_) | Type::Ptr(_) => Err(Error::new_spanned(ty, BORROWED)),
        Type::Array(array) => field_type(&array.elem),
        Type::Paren(inner) => field_type(&inner.elem),
        Type::Group(inner) => field_type(&inner.elem),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(field_type),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Ok(()) };
            match last.ident.to_string().as_str() {
                "f32" | "f64" => Err(Error::new_spanned(ty, FLOAT)),
                "HashMap" | "HashSet" => Err(Error::new_spanned(ty, UNORDERED)),
                "Vec" | "Option" | "Box" | "BTreeMap" => arguments(&last.arguments),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn arguments(arguments: &PathArguments) -> Result<()> {
    let PathArguments::AngleBracketed(list) = arguments else { return Ok(()) };
    for argument in &list.args {
        if let GenericArgument::Type(ty) = argument {
            field_type(ty)?;
        }
    }
    Ok(())
}
