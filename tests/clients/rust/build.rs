//! Generates the client from the document that `DOCUMENT` names.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=DOCUMENT");
    let document = env::var("DOCUMENT")?;
    println!("cargo::rerun-if-changed={document}");
    let document = serde_json::from_str(&fs::read_to_string(document)?)?;
    let client = progenitor::Generator::default().generate_tokens(&document)?;
    let client = prettyplease::unparse(&syn::parse2(client)?);
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join("client.rs"), client)?)
}
