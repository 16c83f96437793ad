//! The table of providers in `docs/configuration.md`, made of the wires of `holdpoint-models`.
//!
//! A row is the constant `WIRE` of a file, in the order of the list `WIRES`. The comment of the constant is the request.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use syn::{Expr, ExprStruct, Item, ItemConst, Lit};

use super::source::{comment, parse, read, replaced};
use crate::layout;

const PAGE: &str = "docs/configuration.md";
/// The folder of the files of wires.
const FOLDER: &str = "crates/holdpoint-models/src/remote/";
const HEADER: &str =
    "| `provider` | request | default of `base_url` | header with the key |\n|---|---|---|---|\n";

/// Writes the table into the page.
pub(super) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), rendered(root)?).with_context(|| format!("could not write {PAGE}"))
}

/// Checks that the page has the table of the code.
pub(super) fn check(root: &Path) -> Result<()> {
    let is_current = read(root, PAGE)? == rendered(root)?;
    ensure!(is_current, "{PAGE} has other providers than the code; run: cargo xtask docs --write");
    Ok(())
}

/// Returns the page with the table of the code.
fn rendered(root: &Path) -> Result<String> {
    let mut rows = BTreeMap::new();
    for path in layout::listed_files(root)? {
        let Some(module) = path.strip_prefix(FOLDER).and_then(|file| file.strip_suffix(".rs")) else {
            continue;
        };
        if let Some(wire) = constant(&parse(root, &path)?, "WIRE") {
            let row = row(wire).with_context(|| format!("the constant WIRE of {path}"))?;
            rows.insert(module.to_owned(), row);
        }
    }
    let all = parse(root, &format!("{FOLDER}mod.rs"))?;
    let order = listed(constant(&all, "WIRES").context("there is no list WIRES")?)?;
    replaced(&read(root, PAGE)?, "wires", &format!("{HEADER}{}", in_order(rows, &order)?))
}

/// The rows in the order of the list, which names each file once.
fn in_order(mut rows: BTreeMap<String, String>, order: &[String]) -> Result<String> {
    let mut table = String::new();
    for module in order {
        table.push_str(&rows.remove(module).with_context(|| format!("{module} has no constant WIRE"))?);
    }
    match rows.into_keys().next() {
        Some(module) => bail!("WIRES does not name the wire {module}"),
        None => Ok(table),
    }
}

fn constant<'a>(file: &'a syn::File, name: &str) -> Option<&'a ItemConst> {
    file.items.iter().find_map(|item| match item {
        Item::Const(it) if it.ident == name => Some(it),
        _ => None,
    })
}

/// The modules of a list such as `[openai::WIRE, ollama::WIRE]`.
fn listed(list: &ItemConst) -> Result<Vec<String>> {
    let Expr::Array(list) = &*list.expr else { bail!("WIRES is no list") };
    let module = |wire: &Expr| match wire {
        Expr::Path(wire) => wire.path.segments.first().map(|module| module.ident.to_string()),
        _ => None,
    };
    list.elems.iter().map(|wire| module(wire).context("an entry of WIRES is no path")).collect()
}

/// The row of a wire.
fn row(wire: &ItemConst) -> Result<String> {
    let fields = structure(&wire.expr)?;
    let provider = structure(field(fields, "provider")?)?;
    let name = text(field(provider, "name")?)?;
    let address = match field(provider, "default_base_url")? {
        Expr::Call(some) => {
            format!("`{}`", text(some.args.first().context("expected Some with an address")?)?)
        }
        _ => "none".to_owned(),
    };
    let Expr::Tuple(key) = field(fields, "key_header")? else { bail!("key_header is no pair") };
    let (Some(header), Some(scheme)) = (key.elems.first(), key.elems.get(1)) else {
        bail!("key_header is no pair");
    };
    let (header, scheme) = (text(header)?, text(scheme)?);
    let header = if scheme.is_empty() { header } else { format!("{header}: {}", scheme.trim()) };
    let request = comment(&wire.attrs).join(" ");
    let request = request.strip_suffix('.').filter(|request| request.starts_with("`{base_url}"));
    let request =
        request.context("expected a comment that begins with `{base_url}/…` and ends with a full stop")?;
    Ok(format!("| `{name}` | {request} | {address} | `{header}` |\n"))
}

fn structure(expr: &Expr) -> Result<&ExprStruct> {
    match expr {
        Expr::Struct(structure) => Ok(structure),
        _ => bail!("expected a struct with its fields"),
    }
}

fn field<'a>(structure: &'a ExprStruct, name: &str) -> Result<&'a Expr> {
    let named = structure.fields.iter().find(|field| match &field.member {
        syn::Member::Named(member) => member == name,
        syn::Member::Unnamed(_) => false,
    });
    Ok(&named.with_context(|| format!("there is no field {name}"))?.expr)
}

fn text(expr: &Expr) -> Result<String> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Ok(text.value()),
            _ => bail!("expected a text"),
        },
        _ => bail!("expected a text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        /// `{base_url}/api`: A,
        /// and others.
        const WIRE: Wire = Wire {
            provider: Provider { name: "a", default_base_url: Some("http://a.example") },
            key_header: ("authorization", "Bearer "),
            body,
        };
    "#;

    fn row_of(file: &str) -> Result<String> {
        row(constant(&syn::parse_file(file).unwrap(), "WIRE").unwrap())
    }

    #[test]
    fn a_row_is_made_of_the_constant_of_a_wire() {
        let row =
            "| `a` | `{base_url}/api`: A, and others | `http://a.example` | `authorization: Bearer` |\n";
        assert_eq!(row_of(FILE).unwrap(), row);
        let other = FILE.replace("\"Bearer \"", "\"\"").replace("Some(\"http://a.example\")", "None");
        assert_eq!(
            row_of(&other).unwrap(),
            "| `a` | `{base_url}/api`: A, and others | none | `authorization` |\n"
        );
    }

    #[test]
    fn a_wire_that_cannot_be_read_is_a_fault() {
        for (from, to) in [
            ("and others.", "and others"),
            ("`{base_url}/api`", "The API"),
            ("name: \"a\"", "name: NAME"),
            ("Provider { name", "Provider { other"),
            ("(\"authorization\", \"Bearer \")", "KEY"),
        ] {
            assert!(FILE.contains(from));
            assert!(row_of(&FILE.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn the_list_names_each_wire_once() {
        let rows = || BTreeMap::from([("a".to_owned(), "A".to_owned()), ("b".to_owned(), "B".to_owned())]);
        let list = |text: &str| listed(constant(&syn::parse_file(text).unwrap(), "WIRES").unwrap()).unwrap();
        let order = list("const WIRES: [Wire; 2] = [b::WIRE, a::WIRE];");
        assert_eq!(in_order(rows(), &order).unwrap(), "BA");
        let fault = |text: &str| in_order(rows(), &list(text)).unwrap_err().to_string();
        assert!(fault("const WIRES: [Wire; 1] = [b::WIRE];").contains("the wire a"));
        assert!(fault("const WIRES: [Wire; 3] = [a::WIRE, b::WIRE, c::WIRE];").contains("c has no"));
    }
}
