//! Refusals of forms that cannot be derived, told at the field itself and with what to write instead.
//!
//! A macro sees names and not types, so this is about forms only. Which types are trees, and why others are none, the
//! compiler says of the derived code.

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

/// Refuses types that borrow, also inside the containers that are trees: the compiler would ask for lifetimes first.
pub(crate) fn field_type(ty: &Type) -> Result<()> {
    match ty {
        Type::Reference(_) | Type::Ptr(_) => Err(Error::new_spanned(ty, BORROWED)),
        Type::Array(array) => field_type(&array.elem),
        Type::Paren(inner) => field_type(&inner.elem),
        Type::Group(inner) => field_type(&inner.elem),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(field_type),
        Type::Path(path) => path.path.segments.last().map_or(Ok(()), |last| arguments(&last.arguments)),
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
