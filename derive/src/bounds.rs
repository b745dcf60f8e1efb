//! Which type parameters must be trees, and which static leaves.
//!
//! A parameter is bound by how it is used: `Tree` if it occurs in a field, `StaticLeaf` if it occurs in a static one,
//! not at all if it only occurs in `PhantomData`. Bounds are on parameters and not on the types of fields, for the
//! latter would make recursive types depend on themselves.

use std::collections::HashSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Data, DeriveInput, Field, GenericParam, Generics, Result, Type, parse_quote};

use crate::check;

/// The generics of a type with the bounds that its fields ask for.
pub(crate) fn with_bounds(input: &DeriveInput) -> Result<Generics> {
    let (mut trees, mut statics) = (HashSet::new(), HashSet::new());
    for field in fields(&input.data) {
        if !is_phantom(&field.ty) {
            let used = if check::is_static(field)? { &mut statics } else { &mut trees };
            names(field.ty.to_token_stream(), used);
        }
    }
    let mut generics = input.generics.clone();
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            let name = parameter.ident.to_string();
            if trees.contains(&name) {
                parameter.bounds.push(parse_quote!(::retape::Tree));
            }
            if statics.contains(&name) {
                parameter.bounds.push(parse_quote!(::retape::StaticLeaf));
            }
        }
    }
    Ok(generics)
}

fn fields(data: &Data) -> Vec<&Field> {
    match data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(data) => data.fields.named.iter().collect(),
    }
}

fn is_phantom(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "PhantomData"),
        _ => false,
    }
}

/// Collects all names in a type.
fn names(tokens: TokenStream, into: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => _ = into.insert(name.to_string()),
            TokenTree::Group(group) => names(group.stream(), into),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
