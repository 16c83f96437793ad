//! Inputs of the person at the terminal, in place of those that the model proposed.

use super::call::EditPreview;
use super::client::Client;
use super::failure::Failure;
use serde::Serialize;
use serde_json::value::RawValue;
use std::io::Read;
use std::path::Path;

/// The most bytes of a file with inputs. No server takes more.
const BYTES_MAX: u64 = 16 << 20;

/// Inputs of the person at the terminal, and what the tool says about them.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) inputs: Box<RawValue>,
    pub(crate) preview: EditPreview,
}

/// Returns whether the inputs come from standard input, which then answers no question.
pub(crate) fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// Reads the inputs: one JSON object. Its digits stay as they are, and the server checks it.
pub(crate) fn read(file: &Path) -> Result<Box<RawValue>, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--edit: {}: {why}", file.display()));
    let mut text = String::new();
    let read = if is_stdin(file) {
        std::io::stdin().take(BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text))
    };
    read.map_err(|error| wrong(error.to_string()))?;
    let inputs: Box<RawValue> = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("expected the inputs as a JSON object: {error}")))?;
    if !inputs.get().starts_with('{') {
        return Err(wrong("expected the inputs as a JSON object".to_owned()));
    }
    Ok(inputs)
}

/// Asks the server what the call would do with these inputs. The server checks them as for an approval.
pub(crate) async fn preview(client: &Client, id: &str, inputs: Box<RawValue>) -> Result<Edit, Failure> {
    #[derive(Serialize)]
    struct Body<'a> {
        validated_inputs: &'a RawValue,
    }
    let preview: EditPreview = client.preview(id, &Body { validated_inputs: &inputs }).await?;
    Ok(Edit { inputs, preview })
}
