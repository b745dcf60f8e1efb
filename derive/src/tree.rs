//! The code of an `impl Tree`: `write` and `read` of a struct or enum, field by field.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Fields, Ident, Result};

use crate::{bounds, check};

/// The impl for a struct or enum; or an error that points at what cannot be in a tree, beside an impl that is never
/// compiled to code: without one, every use of the type as a tree would be an error of its own.
pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    implementation(input).unwrap_or_else(|error| {
        let error = error.to_compile_error();
        let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
        let name = &input.ident;
        quote! {
            #error

            #[automatically_derived]
            impl #impl_generics ::retape::Tree for #name #type_generics #where_clause {
                fn write<'__tree>(&'__tree self, _: &mut ::retape::Writer<'__tree>) {
                    ::core::unreachable!()
                }

                fn read(_: &mut ::retape::Reader<'_>) -> ::retape::Result<Self> {
                    ::core::unreachable!()
                }
            }
        }
    })
}

fn implementation(input: &DeriveInput) -> Result<TokenStream> {
    check::attributes(&input.attrs, "a type")?;
    check::lifetimes(&input.generics)?;
    let (write, read) = match &input.data {
        Data::Struct(data) => struct_body(&data.fields)?,
        Data::Enum(data) => enum_body(&input.ident, data)?,
        Data::Union(data) => {
            let message = "a union cannot be a `Tree`: which of its fields is valid is not known; use an enum";
            return Err(syn::Error::new(data.union_token.span, message));
        }
    };
    let generics = bounds::with_bounds(input)?;
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::retape::Tree for #name #type_generics #where_clause {
            #[inline]
            fn write<'__tree>(&'__tree self, to: &mut ::retape::Writer<'__tree>) {
                let _ = &to;
                #write
            }

            fn read(from: &mut ::retape::Reader<'_>) -> ::retape::Result<Self> {
                let _ = &from;
                #read
            }
        }
    })
}

/// The generated code for the fields of a struct or of one variant.
struct Parts {
    /// Takes `self` apart: `{ a: field_0, b: field_1 }`.
    pattern: TokenStream,
    /// Writes the variables that the pattern binds.
    write: TokenStream,
    /// Reads the fields in order and puts them together, as in `pattern`.
    read: TokenStream,
}

fn struct_body(fields: &Fields) -> Result<(TokenStream, TokenStream)> {
    let Parts { pattern, write, read } = parts(fields)?;
    Ok((quote!(let Self #pattern = self; #write), quote!(::core::result::Result::Ok(Self #read))))
}

fn enum_body(name: &Ident, data: &DataEnum) -> Result<(TokenStream, TokenStream)> {
    let (mut writes, mut reads) = (vec![], vec![]);
    for (number, variant) in (0_u64..).zip(&data.variants) {
        check::attributes(&variant.attrs, "a variant")?;
        let ident = &variant.ident;
        let Parts { pattern, write, read } = parts(&variant.fields)?;
        let shown = ident.unraw().to_string();
        writes.push(quote!(Self::#ident #pattern => {
            to.structure(#number, || ::std::string::String::from(#shown));
            #write
        }));
        reads.push(quote!(#number => ::core::result::Result::Ok(Self::#ident #read)));
    }
    let scrutinee = if writes.is_empty() { quote!(*self) } else { quote!(self) };
    let unknown = format!("`{}` has no variant {{number}}", name.unraw());
    Ok((
        quote!(match #scrutinee { #(#writes)* }),
        quote! {
            match from.word()? {
                #(#reads,)*
                number => ::core::result::Result::Err(::retape::Error::Tree(::std::format!(#unknown))),
            }
        },
    ))
}

fn parts(fields: &Fields) -> Result<Parts> {
    let (mut patterns, mut writes, mut reads) = (vec![], vec![], vec![]);
    check::distinct(fields)?;
    for (index, field) in fields.iter().enumerate() {
        let (ty, options) = (&field.ty, check::options(field)?);
        let variable = Ident::new(&format!("field_{index}"), ty.span());
        let step = match &field.ident {
            Some(name) => {
                let text = options.rename.map_or_else(|| name.unraw().to_string(), |rename| rename.value());
                quote!(::retape::Field::Named(#text))
            }
            None => quote!(::retape::Field::Index(#index)),
        };
        // Both halves name the trait in the same words and at the same place: if it does not hold, that is one error.
        let part = if options.is_static {
            quote_spanned!(ty.span()=> <Self as ::retape::HasStaticField<#ty>>)
        } else {
            check::field_type(ty)?;
            quote_spanned!(ty.span()=> <Self as ::retape::HasField<#ty>>)
        };
        let (write, read) = (quote!(#part::write(#variable, to)), quote!(#part::read(from)?));
        let write = quote!(to.part(#step, |to| #write););
        let name = field.ident.as_ref().map(|name| quote!(#name:));
        patterns.push(quote!(#name #variable));
        writes.push(write);
        reads.push(quote!(#name #read));
    }
    let (pattern, read) = match fields {
        Fields::Named(_) => (quote!({ #(#patterns),* }), quote!({ #(#reads),* })),
        Fields::Unnamed(_) => (quote!((#(#patterns),*)), quote!((#(#reads),*))),
        Fields::Unit => (quote!(), quote!()),
    };
    Ok(Parts { pattern, write: quote!(#(#writes)*), read })
}
