//! The tables of callers and of routes in `docs/http.md`, made of the files of routes.
//!
//! A route is a method of an `#[OpenApi]` block, and its callers are in the constant `ACCESS` of the same file. So a
//! route without a row there is a fault, and so is a row without a route.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use syn::{Attribute, Expr, ImplItem, Item, ItemConst, ItemEnum, ItemImpl, Lit};

use super::source::{comment, parse, read, replaced};
use crate::layout;

const PAGE: &str = "docs/http.md";
/// The folder of the files of routes.
const ROUTES: &str = "src/http/";
/// The file with the kinds of callers.
const CALLERS: &str = "src/http/access.rs";

/// One operation of a file of routes.
#[derive(Debug)]
struct Route {
    id: String,
    method: String,
    path: String,
    /// The first line of its comment.
    summary: String,
}

/// A kind of callers, as the comment of its variant describes it.
struct CallerKind {
    variant: String,
    name: String,
    definition: String,
}

/// Writes the tables into the page.
pub(super) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), rendered(root)?).with_context(|| format!("could not write {PAGE}"))
}

/// Checks that the page has the tables of the code.
pub(super) fn check(root: &Path) -> Result<()> {
    let page = read(root, PAGE)?;
    ensure!(
        page == rendered(root)?,
        "{PAGE} has other routes or callers than the code; run: cargo xtask docs --write"
    );
    Ok(())
}

/// Returns the page with the tables of the code.
fn rendered(root: &Path) -> Result<String> {
    let kinds = caller_kinds(&parse(root, CALLERS)?)?;
    let mut rows = BTreeMap::new();
    for path in layout::listed_files(root)? {
        if path.starts_with(ROUTES) && path.ends_with(".rs") {
            let file = parse(root, &path)?;
            rows.extend(
                rows_of(&file, &kinds).with_context(|| format!("could not read the routes of {path}"))?,
            );
        }
    }
    ensure!(!rows.is_empty(), "no file in {ROUTES} has a route");
    let callers: String =
        kinds.iter().map(|kind| format!("| {} | {} |\n", kind.name, kind.definition)).collect();
    let routes: String = rows.into_values().collect();
    let page = read(root, PAGE)?;
    let page = replaced(&page, "callers", &format!("| caller | definition |\n|---|---|\n{callers}"))?;
    replaced(&page, "routes", &format!("| route | callers | purpose |\n|---|---|---|\n{routes}"))
}

/// The rows of the routes of a file, by path and method.
fn rows_of(file: &syn::File, kinds: &[CallerKind]) -> Result<BTreeMap<(String, String), String>> {
    let mut routes = Vec::new();
    let mut access = BTreeMap::new();
    for item in &file.items {
        match item {
            Item::Impl(item) if has_attribute(&item.attrs, "OpenApi") => routes.extend(routes_of(item)?),
            Item::Const(item)
                if item.ident == "ACCESS"
                    && matches!(&*item.ty, syn::Type::Path(ty) if ty.path.is_ident("Access")) =>
            {
                access = access_of(item)?;
            }
            _ => {}
        }
    }
    let mut rows = BTreeMap::new();
    for route in routes {
        let callers = access.remove(&route.id);
        let callers = callers.with_context(|| format!("ACCESS of the file has no row for {}", route.id))?;
        let mut names = Vec::new();
        for caller in &callers {
            let kind = kinds
                .iter()
                .find(|kind| kind.variant == *caller)
                .with_context(|| format!("there are no callers {caller}"))?;
            names.push(kind.name.as_str());
        }
        let Route { method, path, summary, .. } = route;
        let row = format!("| `{method} {path}` | {} | {summary} |\n", names.join(", "));
        rows.insert((path, method), row);
    }
    match access.into_keys().next() {
        Some(id) => bail!("ACCESS names {id}, which is no operation of the file"),
        None => Ok(rows),
    }
}

/// The routes of an `#[OpenApi]` block.
fn routes_of(item: &ItemImpl) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for item in &item.items {
        let ImplItem::Fn(method) = item else { continue };
        let Some(attribute) = method.attrs.iter().find(|attribute| attribute.path().is_ident("oai")) else {
            continue;
        };
        let mut words = BTreeMap::new();
        attribute.parse_nested_meta(|meta| {
            let value: syn::LitStr = meta.value()?.parse()?;
            words.extend(meta.path.get_ident().map(|name| (name.to_string(), value.value())));
            Ok(())
        })?;
        let mut word = |name: &str| {
            let what = || format!("the operation {} has no {name}", method.sig.ident);
            words.remove(name).with_context(what)
        };
        let summary = comment(&method.attrs).first().cloned().unwrap_or_default();
        routes.push(Route {
            id: word("operation_id")?,
            method: word("method")?.to_uppercase(),
            path: template(&word("path")?),
            summary,
        });
    }
    Ok(routes)
}

/// `/threads/:thread_id` is `/threads/{thread_id}` for clients.
fn template(path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment.strip_prefix(':') {
        Some(name) => format!("{{{name}}}"),
        None => segment.to_owned(),
    });
    segments.collect::<Vec<_>>().join("/")
}

/// The callers of each operation in an `ACCESS`.
fn access_of(item: &ItemConst) -> Result<BTreeMap<String, Vec<String>>> {
    let mut access = BTreeMap::new();
    for row in elements(&item.expr).context("ACCESS is no list")? {
        let Expr::Tuple(row) = row else { bail!("a row of ACCESS is no pair") };
        let (Some(Expr::Lit(id)), Some(callers)) = (row.elems.first(), row.elems.get(1)) else {
            bail!("a row of ACCESS is no id with its callers");
        };
        let Lit::Str(id) = &id.lit else { bail!("an id in ACCESS is no text") };
        let mut names = Vec::new();
        for caller in elements(callers).context("the callers of a row are no list")? {
            let Expr::Path(caller) = caller else { bail!("a caller in ACCESS is no name") };
            names.extend(caller.path.segments.last().map(|last| last.ident.to_string()));
        }
        ensure!(!names.is_empty(), "{} has no callers", id.value());
        ensure!(access.insert(id.value(), names).is_none(), "ACCESS names {} twice", id.value());
    }
    Ok(access)
}

/// The elements of `&[…]`.
fn elements(expr: &Expr) -> Option<impl Iterator<Item = &Expr>> {
    let Expr::Reference(reference) = expr else { return None };
    let Expr::Array(array) = &*reference.expr else { return None };
    Some(array.elems.iter())
}

/// The kinds of callers, in the order of their declaration.
fn caller_kinds(file: &syn::File) -> Result<Vec<CallerKind>> {
    let kinds = file.items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == "CallerKind" => Some(item),
        _ => None,
    });
    let ItemEnum { variants, .. } = kinds.with_context(|| format!("{CALLERS} has no enum CallerKind"))?;
    let mut all = Vec::new();
    for variant in variants {
        let comment = comment(&variant.attrs).join(" ");
        let (name, definition) = comment
            .split_once(": ")
            .with_context(|| format!("the comment of {} is no name with its definition", variant.ident))?;
        let variant = variant.ident.to_string();
        all.push(CallerKind { variant, name: name.to_owned(), definition: definition.to_owned() });
    }
    let names: BTreeSet<&str> = all.iter().map(|kind| kind.name.as_str()).collect();
    ensure!(names.len() == all.len(), "two kinds of callers have one name");
    Ok(all)
}

fn has_attribute(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES_FILE: &str = r#"
        const ACCESS: Access = &[("read", &[Owner, CallerKind::Operator])];
        #[OpenApi(tag = "Tag::X")]
        impl Things {
            /// Read a thing
            ///
            /// At length.
            #[oai(path = "/things/:id", method = "get", operation_id = "read")]
            async fn read(&self) {}
            fn helper(&self) {}
        }
    "#;

    fn rows(file: &str) -> Result<Vec<String>> {
        let kinds = "enum CallerKind { /// owner: who\n/// made it\nOwner, /// operator: runs it\nOperator }";
        let kinds = caller_kinds(&syn::parse_file(kinds).unwrap()).unwrap();
        assert_eq!(kinds[0].definition, "who made it");
        Ok(rows_of(&syn::parse_file(file).unwrap(), &kinds)?.into_values().collect())
    }

    #[test]
    fn a_route_has_the_callers_of_its_row() {
        assert_eq!(rows(ROUTES_FILE).unwrap(), ["| `GET /things/{id}` | owner, operator | Read a thing |\n"]);
    }

    #[test]
    fn a_route_without_a_row_and_a_row_without_a_route_are_faults() {
        for (from, to) in [
            ("(\"read\", &[Owner, CallerKind::Operator])", ""),
            ("operation_id = \"read\"", "operation_id = \"other\""),
            ("CallerKind::Operator", "CallerKind::Stranger"),
            ("&[Owner, CallerKind::Operator]", "&[]"),
            ("(\"read\"", "(\"read\", &[Owner]), (\"read\""),
        ] {
            assert!(ROUTES_FILE.contains(from));
            assert!(rows(&ROUTES_FILE.replace(from, to)).is_err(), "{to}");
        }
    }
}
