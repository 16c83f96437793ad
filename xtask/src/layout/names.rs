//! The words and the paths in a Rust file, for the rules.
//!
//! Comments and strings have no names. Paths, imports and calls in the tokens of a macro count as they do outside.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::mem;

use proc_macro2::{Ident, LineColumn, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprCall, ExprMethodCall, ExprPath, FnArg, ImplItemType, ItemImpl, ItemMod, ItemType,
    ItemUse, Pat, Signature, Token, Type, UseTree, VisRestricted, token,
};

/// A module, as its path from the root of the crate: `["http", "error"]`. The root is the empty path.
pub(super) type Module = Vec<String>;

/// `http/error.rs` is `http::error`, and `http/mod.rs` is `http`.
pub(super) fn module_of(path_in_crate: &str) -> Module {
    let path = path_in_crate.strip_suffix(".rs").unwrap_or(path_in_crate);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// One name at one place. A raw name has no `r#`.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub(super) name: String,
    pub(super) at: LineColumn,
}

/// A path with at least two segments, or an import. The import of a group is one path for each item.
#[derive(Debug)]
pub(super) struct UsedPath {
    pub(super) line: usize,
    /// The module to which `crate`, `self` and `super` lead; without them, the module with the path.
    pub(super) base: Module,
    /// The segments after those words. `*` is the last segment of an import of everything.
    pub(super) rest: Vec<Word>,
    /// Whether the path is compiled for tests alone.
    pub(super) for_tests: bool,
}

/// The names in one file.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) module: Module,
    pub(super) words: Vec<Word>,
    pub(super) paths: Vec<UsedPath>,
    /// The modules that the file declares.
    pub(super) declared: Vec<Word>,
    /// The names that an import or a type alias gives another name.
    pub(super) renamed: Vec<Word>,
    /// The places of the functions whose call has constants as its first two arguments.
    pub(super) constant_calls: BTreeSet<LineColumn>,
    /// The lines of parameters that are a tuple of several.
    pub(super) tuple_parameters: Vec<usize>,
}

impl Names {
    /// Reads the file of `module`.
    pub(super) fn read(module: Module, text: &str) -> syn::Result<Names> {
        let file = syn::parse_file(text)?;
        let names = Names { module: module.clone(), ..Names::default() };
        let mut reader = Reader { names, module, own_type: None, for_tests: false };
        reader.visit_file(&file);
        Ok(reader.names)
    }
}

struct Reader {
    names: Names,
    /// The module at the current place, which can be an inline module of the file.
    module: Module,
    /// The type that `Self` means at the current place.
    own_type: Option<String>,
    for_tests: bool,
}

impl Reader {
    fn add_path(&mut self, mut segments: Vec<Word>) {
        let Some(first) = segments.first_mut() else { return };
        if let Some(own_type) = self.own_type.as_ref().filter(|_| first.name == "Self") {
            first.name.clone_from(own_type);
        }
        let line = first.at.line;
        let from_root = matches!(first.name.as_str(), "crate" | "holdpoint");
        let marked = from_root || first.name == "self";
        let mut base = if from_root { Module::new() } else { self.module.clone() };
        let mut rest = segments.into_iter().skip(usize::from(marked)).peekable();
        while rest.next_if(|segment| segment.name == "super").is_some() {
            base.pop();
        }
        self.names.paths.push(UsedPath { line, base, rest: rest.collect(), for_tests: self.for_tests });
    }

    fn add_import(&mut self, tree: &UseTree, mut before: Vec<Word>) {
        match tree {
            UseTree::Path(path) => {
                before.push(word(&path.ident));
                self.add_import(&path.tree, before);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_import(tree, before.clone()));
            }
            UseTree::Glob(glob) => {
                before.push(Word { name: "*".to_owned(), at: glob.star_token.span.start() });
                self.add_path(before);
            }
            UseTree::Name(name) => {
                before.extend(item(&name.ident, &before));
                self.add_path(before);
            }
            UseTree::Rename(rename) => {
                before.extend(item(&rename.ident, &before));
                if rename.rename != "_" {
                    self.names.renamed.extend(before.last().cloned());
                }
                self.add_path(before);
            }
        }
    }

    fn add_call(&mut self, function: &Ident, arguments: &Punctuated<Expr, Token![,]>) {
        if arguments.iter().take(2).all(is_constant) {
            self.names.constant_calls.insert(function.span().start());
        }
    }

    fn read_tokens(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while !input.is_empty() {
            if let Some(import) = attempt::<ItemUse>(input) {
                self.visit_item_use(&import);
            } else if let Some(module) = attempt::<ItemMod>(input) {
                self.visit_item_mod(&module);
            } else if let Some(block) = attempt::<ItemImpl>(input) {
                self.visit_item_impl(&block);
            } else if let Some(alias) = attempt::<ItemType>(input) {
                self.visit_item_type(&alias);
            } else if let Some(path) = attempt::<ExprPath>(input) {
                self.visit_expr_path(&path);
                if let (Some(function), true) = (path.path.segments.last(), input.peek(token::Paren)) {
                    let arguments = arguments(&input.fork()).ok();
                    arguments.iter().for_each(|arguments| self.add_call(&function.ident, arguments));
                }
            } else if let TokenTree::Group(group) = input.parse()? {
                self.visit_token_stream(&group.stream());
            }
        }
        Ok(())
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.names.words.push(word(ident));
    }

    /// `pub(super)` uses nothing of its parent.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}

    fn visit_signature(&mut self, signature: &'ast Signature) {
        for parameter in &signature.inputs {
            if let FnArg::Typed(typed) = parameter
                && let (Pat::Tuple(tuple), Type::Tuple(_)) = (&*typed.pat, &*typed.ty)
            {
                self.names.tuple_parameters.push(tuple.paren_token.span.open().start().line);
            }
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let for_tests = self.for_tests;
        self.for_tests |= is_for_tests(&module.attrs);
        self.names.declared.push(word(&module.ident));
        self.module.push(word(&module.ident).name);
        visit::visit_item_mod(self, module);
        self.module.pop();
        self.for_tests = for_tests;
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        let for_tests = self.for_tests;
        self.for_tests |= is_for_tests(&import.attrs);
        self.add_import(&import.tree, Vec::new());
        self.for_tests = for_tests;
        visit::visit_item_use(self, import);
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let own_type = type_name(&block.self_ty).map(|word| word.name);
        let outer = mem::replace(&mut self.own_type, own_type);
        visit::visit_item_impl(self, block);
        self.own_type = outer;
    }

    fn visit_item_type(&mut self, alias: &'ast ItemType) {
        self.names.renamed.extend(type_name(&alias.ty));
        visit::visit_item_type(self, alias);
    }

    fn visit_impl_item_type(&mut self, alias: &'ast ImplItemType) {
        self.names.renamed.extend(type_name(&alias.ty));
        visit::visit_impl_item_type(self, alias);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.add_path(words(path).collect());
        }
        visit::visit_path(self, path);
    }

    /// `<Permit as Proof>::committed` is also `Permit::committed`.
    fn visit_expr_path(&mut self, expression: &'ast ExprPath) {
        if let Some(owner) = &expression.qself
            && let Type::Path(owner_type) = &*owner.ty
        {
            let functions = words(&expression.path).skip(owner.position);
            self.add_path(words(&owner_type.path).chain(functions).collect());
        }
        visit::visit_expr_path(self, expression);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(function) = &*call.func
            && let Some(name) = function.path.segments.last()
        {
            self.add_call(&name.ident, &call.args);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.add_call(&call.method, &call.args);
        visit::visit_expr_method_call(self, call);
    }

    /// The tokens of macros and attributes, and syntax that `syn` does not know.
    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        // `$crate` in the definition of a macro is `crate`.
        let is_dollar = |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == '$');
        let tokens = tokens.clone().into_iter().filter(|token| !is_dollar(token)).collect();
        // Each token parses as a token tree, so that this cannot fail.
        let _complete = Parser::parse2(|input: ParseStream<'_>| self.read_tokens(input), tokens);
    }
}

fn word(ident: &Ident) -> Word {
    Word { name: ident.unraw().to_string(), at: ident.span().start() }
}

fn words(path: &syn::Path) -> impl Iterator<Item = Word> {
    path.segments.iter().map(|segment| word(&segment.ident))
}

/// The last segment of an import. In a group, `self` means the path before the group.
fn item(ident: &Ident, before: &[Word]) -> Option<Word> {
    (ident != "self" || before.is_empty()).then(|| word(ident))
}

fn type_name(of: &Type) -> Option<Word> {
    match of {
        Type::Path(of) => words(&of.path).last(),
        _ => None,
    }
}

/// Whether this is compiled for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Whether the expression has the same text in each run. A macro could build a text.
fn is_constant(expression: &Expr) -> bool {
    let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    match expression {
        Expr::Lit(_) => true,
        Expr::Reference(reference) => is_constant(&reference.expr),
        Expr::Path(path) => path.path.get_ident().is_none_or(|name| name.to_string().chars().all(is_upper)),
        _ => false,
    }
}

/// Parses a `T` at the current place, or consumes nothing.
fn attempt<T: Parse>(input: ParseStream<'_>) -> Option<T> {
    let ahead = input.fork();
    let parsed = ahead.parse().ok()?;
    input.advance_to(&ahead);
    Some(parsed)
}

fn arguments(input: ParseStream<'_>) -> syn::Result<Punctuated<Expr, Token![,]>> {
    let content;
    syn::parenthesized!(content in input);
    Punctuated::parse_terminated(&content)
}
