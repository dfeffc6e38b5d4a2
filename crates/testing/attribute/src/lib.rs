//! The attribute `#[test]` of `carefree-testing`, which says what it is for.

use proc_macro::{Delimiter, Group, Literal, TokenStream, TokenTree};

/// A test that ends its process, and says why, if it hangs.
///
/// `#[test]` as usual, or `#[test(seconds = 600)]` for one that may take longer than others.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let Some(seconds) = seconds(arguments) else {
        return quote("::core::compile_error! { \"write #[test] or #[test(seconds = 600)]\" }");
    };
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let name = tokens.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(keyword), TokenTree::Ident(name)] if keyword.to_string() == "fn" => {
            Some(name.to_string())
        }
        _ => None,
    });
    let (Some(name), Some(TokenTree::Group(body))) = (name, tokens.pop()) else {
        return quote("::core::compile_error! { \"#[test] is for functions\" }");
    };
    let mut out = quote("#[::core::prelude::v1::test]");
    out.extend(tokens);
    // The body keeps its places in the source, for messages and for lints.
    let mut arguments = quote("&::core::concat!");
    let mut path = quote("::core::module_path!(), \"::\",");
    path.extend([TokenTree::from(Literal::string(&name))]);
    arguments.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, path))]);
    arguments.extend(quote(","));
    arguments.extend([TokenTree::from(Literal::u32_suffixed(seconds))]);
    arguments.extend(quote(", ||"));
    arguments.extend([TokenTree::from(body)]);
    let mut call = quote("::carefree_testing::within_limit");
    call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, arguments))]);
    out.extend([TokenTree::from(Group::new(Delimiter::Brace, call))]);
    out
}

/// 0 for none.
fn seconds(arguments: TokenStream) -> Option<u32> {
    let arguments: Vec<TokenTree> = arguments.into_iter().collect();
    match arguments.as_slice() {
        [] => Some(0),
        [TokenTree::Ident(name), TokenTree::Punct(equals), TokenTree::Literal(number)]
            if name.to_string() == "seconds" && equals.as_char() == '=' =>
        {
            number.to_string().parse().ok()
        }
        _ => None,
    }
}

fn quote(text: &str) -> TokenStream {
    text.parse().expect("it is Rust")
}
