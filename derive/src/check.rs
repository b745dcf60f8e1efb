//! Refusals of forms that cannot be derived, told at the field itself and with what to write instead.
//!
//! A macro sees names and not types, so this is about forms only. Which types are trees, and why others are none, the
//! compiler says of the derived code.

use std::collections::HashSet;

use syn::ext::IdentExt;
use syn::{
    Attribute, Error, Field, Fields, GenericArgument, GenericParam, Generics, LitStr, PathArguments, Result, Type,
    TypeParamBound, TypeTraitObject,
};

/// The words of `#[tree(..)]` on a field.
#[derive(Default)]
pub(crate) struct Options {
    /// Whether the field is a static leaf.
    pub(crate) is_static: bool,
    /// The name of the field in paths and files, if it is another one.
    pub(crate) rename: Option<LitStr>,
}

/// Reads what is said of a field.
pub(crate) fn options(field: &Field) -> Result<Options> {
    let mut options = Options::default();
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("tree")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("static") {
                options.is_static = true;
                return Ok(());
            }
            if !meta.path.is_ident("rename") {
                return Err(meta.error("the things to say here are `static` and `rename = \"..\"`"));
            }
            if options.rename.is_some() {
                return Err(meta.error("a field has one other name, and this is the second"));
            }
            let name: LitStr = meta.value()?.parse()?;
            let text = name.value();
            if text.is_empty() || text.contains(['.', '"']) {
                let message = "a name is not empty and has no dot and no quote: dots join the names of nested fields";
                return Err(Error::new(name.span(), message));
            }
            if field.ident.is_none() {
                return Err(Error::new(name.span(), "a field without a name is called by its position"));
            }
            options.rename = Some(name);
            Ok(())
        })?;
    }
    Ok(options)
}

/// Refuses two fields of one name.
pub(crate) fn distinct(fields: &Fields) -> Result<()> {
    let mut seen = HashSet::new();
    // Rust itself refuses two fields of one name, so a clash is the work of a `rename`: it is told there.
    let (mut renamed, mut plain) = (vec![], vec![]);
    for field in fields {
        match options(field)?.rename {
            Some(name) => renamed.push(name),
            None => plain.extend(field.ident.as_ref().map(|name| name.unraw().to_string())),
        }
    }
    seen.extend(plain);
    for name in renamed {
        if !seen.insert(name.value()) {
            return Err(Error::new(name.span(), "another field has this name"));
        }
    }
    Ok(())
}

/// Refuses `#[tree(..)]` anywhere but on a field.
pub(crate) fn attributes(attributes: &[Attribute], place: &str) -> Result<()> {
    match attributes.iter().find(|attribute| attribute.path().is_ident("tree")) {
        Some(attribute) => {
            Err(Error::new_spanned(attribute, format!("`#[tree(..)]` belongs on a field, not on {place}")))
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

const FUNCTION: &str =
    "a function cannot be part of a `Tree`: use an enum of those that there are, or let the closure capture it";

/// Refuses types that borrow, also inside the containers that are trees: the compiler would ask for lifetimes first.
/// Refuses functions too, of which the compiler would say that they could be derived.
pub(crate) fn field_type(ty: &Type) -> Result<()> {
    part(ty, true)
}

/// The generic types whose arguments are parts of them, as far as a macro can see.
const CONTAINERS: [&str; 3] = ["Option", "Box", "Vec"];

/// [`field_type`], of a part of a field; `owns` if what it has is part of the tree and no marker of a type.
fn part(ty: &Type, owns: bool) -> Result<()> {
    match ty {
        Type::Reference(reference) => Err(Error::new_spanned(ty, borrowed(&reference.elem))),
        Type::Ptr(_) => Err(Error::new_spanned(ty, BORROWED)),
        Type::BareFn(_) if owns => Err(Error::new_spanned(ty, FUNCTION)),
        Type::TraitObject(object) if owns && is_function(object) => Err(Error::new_spanned(ty, FUNCTION)),
        Type::Array(array) => part(&array.elem, owns),
        Type::Paren(inner) => part(&inner.elem, owns),
        Type::Group(inner) => part(&inner.elem, owns),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(|ty| part(ty, owns)),
        Type::Path(path) => match path.path.segments.last() {
            Some(last) if last.ident != "PhantomData" => {
                arguments(&last.arguments, owns && CONTAINERS.iter().any(|name| last.ident == name))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The reason for a reference, with the type that owns what it refers to.
fn borrowed(to: &Type) -> &'static str {
    match to {
        Type::Path(path) if path.path.is_ident("str") => {
            "a `Tree` owns its parts, since it is also built anew: use `String` for `&str`"
        }
        Type::Slice(_) => "a `Tree` owns its parts, since it is also built anew: use a `Vec` for a slice",
        _ => BORROWED,
    }
}

fn is_function(object: &TypeTraitObject) -> bool {
    object.bounds.iter().any(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| {
            matches!(last.arguments, PathArguments::Parenthesized(_)) // as only those of `Fn`, `FnMut` and `FnOnce` are
        }),
        _ => false,
    })
}

fn arguments(arguments: &PathArguments, owns: bool) -> Result<()> {
    let PathArguments::AngleBracketed(list) = arguments else { return Ok(()) };
    for argument in &list.args {
        if let GenericArgument::Type(ty) = argument {
            part(ty, owns)?;
        }
    }
    Ok(())
}
