//! The committed OpenAPI document.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::process;

const DOCUMENT: &str = "openapi/holdpoint.json";

/// Writes the document. The write is the last step and needs complete output, so a failed build leaves no
/// empty document.
pub(crate) fn write(root: &Path) -> Result<()> {
    let document = process::capture(&mut process::cargo(root, &["run", "--quiet", "--", "openapi"]))?;
    ensure!(!document.is_empty(), "`holdpoint openapi` wrote nothing; {DOCUMENT} is left as it was");
    let path = root.join(DOCUMENT);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("could not create {}", parent.display()))?;
    }
    fs::write(&path, document).with_context(|| format!("could not write {}", path.display()))?;
    println!("wrote {DOCUMENT}");
    Ok(())
}
