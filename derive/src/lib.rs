//! `#[derive(Tree)]`: flattens and rebuilds structured arguments and results.
#![forbid(unsafe_code)]

mod bounds;
mod check;
mod tree;

use proc_macro::TokenStream;

/// Makes a struct or enum of tensors, static values and other trees a `retape::Tree`.
///
/// The fields are written in their order; an enum first writes which variant it is, as a static value. Type parameters
/// must be trees themselves. A field marked `#[tree(static)]` is not a tree but a `StaticLeaf`, such as an `f32` that
/// never changes. `#[tree(rename = "weight")]` gives a field another name in paths and files.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    tree::derive(&input).into()
}
