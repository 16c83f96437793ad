//! The types of the npm package that the OpenAPI document has.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::openapi::FULL_DOCUMENT;
use crate::process::capture;
use crate::tooling;

/// The types, as openapi-typescript writes them.
const TYPES: &str = "packages/page/src/openapi.ts";
/// The folder with openapi-typescript, and the script that runs it.
const HERE: &str = "tests/clients";
const SCRIPT: &str = "tests/clients/page_types.mjs";

/// Writes the types of the committed document.
pub(crate) fn write(root: &Path) -> Result<()> {
    tooling::require_node()?;
    tooling::install_node_project(root, HERE)?;
    fs::write(root.join(TYPES), types(root)?).with_context(|| format!("could not write {TYPES}"))?;
    println!("wrote {TYPES}");
    Ok(())
}

/// Checks that the package has the types of the committed document. The programs of [`HERE`] are installed.
pub(crate) fn check(root: &Path) -> Result<()> {
    let committed =
        fs::read_to_string(root.join(TYPES)).with_context(|| format!("could not read {TYPES}"))?;
    let is_current = committed == types(root)?;
    ensure!(is_current, "{TYPES} has other types than {FULL_DOCUMENT}; run: cargo xtask openapi");
    Ok(())
}

fn types(root: &Path) -> Result<String> {
    let types = capture(Command::new("node").args([SCRIPT, FULL_DOCUMENT]).current_dir(root))?;
    String::from_utf8(types).context("the types are UTF-8")
}
