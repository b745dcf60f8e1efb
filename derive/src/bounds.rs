//! Which type parameters must be trees, and which static leaves.
//!
//! A parameter is bound by how it is used: `Tree` if it occurs in a field, `StaticLeaf` if it occurs in a static one or
//! in `Static`, not at all if it only occurs in `PhantomData`. Bounds are on parameters and not on the types of fields, for the
//! latter would make recursive types depend on themselves.

use std::collections::HashSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Data, DeriveInput, Field, GenericArgument, GenericParam, Generics, PathArguments, PathSegment, Result, Type,
    parse_quote,
};

use crate::check;

/// The generics of a type with the bounds that its fields ask for.
pub(crate) fn with_bounds(input: &DeriveInput) -> Result<Generics> {
    let mut uses = Uses::default();
    for field in fields(&input.data) {
        match check::options(field)?.is_static {
            true => names(field.ty.to_token_stream(), &mut uses.statics),
            false => uses.of_tree(&field.ty),
        }
    }
    let mut generics = input.generics.clone();
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            let name = parameter.ident.to_string();
            if uses.trees.contains(&name) {
                parameter.bounds.push(parse_quote!(::retape::Tree));
            }
            if uses.statics.contains(&name) {
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

/// The names that occur in types, by what is asked of them; those of no parameter do no harm.
#[derive(Default)]
struct Uses {
    trees: HashSet<String>,
    statics: HashSet<String>,
}

impl Uses {
    /// Notes the names in the type of a field that is a tree.
    fn of_tree(&mut self, ty: &Type) {
        match ty {
            Type::Array(array) => self.of_tree(&array.elem),
            Type::Tuple(tuple) => tuple.elems.iter().for_each(|part| self.of_tree(part)),
            Type::Path(path) => path.path.segments.iter().for_each(|segment| self.of_segment(segment)),
            _ => names(ty.to_token_stream(), &mut self.trees),
        }
    }

    fn of_segment(&mut self, segment: &PathSegment) {
        if segment.ident == "PhantomData" {
            return;
        }
        if segment.ident == "Static" {
            return names(segment.arguments.to_token_stream(), &mut self.statics);
        }
        self.trees.insert(segment.ident.to_string());
        if let PathArguments::AngleBracketed(list) = &segment.arguments {
            for argument in &list.args {
                match argument {
                    GenericArgument::Type(ty) => self.of_tree(ty),
                    other => names(other.to_token_stream(), &mut self.trees),
                }
            }
        }
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
