//! The committed OpenAPI documents.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::process;

/// The document for generators. The server serves it at `/openapi.json`.
pub(crate) const DOCUMENT: &str = "openapi/holdpoint.json";
/// The document with every operation.
pub(crate) const FULL_DOCUMENT: &str = "openapi/holdpoint-full.json";

/// Writes both documents. Each write needs complete output, so a failed build leaves no empty document.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, options) in [(DOCUMENT, [].as_slice()), (FULL_DOCUMENT, &["--full"])] {
        let mut command = process::cargo(root, &["run", "--quiet", "--", "openapi"]);
        let document = process::capture(command.args(options))?;
        ensure!(!document.is_empty(), "`holdpoint openapi` wrote nothing; {path} is left as it was");
        fs::write(root.join(path), document).with_context(|| format!("could not write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}
