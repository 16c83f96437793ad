//! Parts of a user message that no model can be given, such as files.

use crate::http::body::partial_json::{FieldValue, Kept, Reader};
use crate::http::body::posted_text::{Bounds, kept};
use serde::de::SeqAccess;

/// Length after which the type of a part is cut, in characters.
const TYPE_SHOWN: usize = 64;

/// A part of a user message that no model can be given.
#[derive(Debug)]
pub(in crate::http) struct UnreadPart {
    /// The path of the part in its message.
    pub(in crate::http) path: String,
    /// The type of the part, or why it has none.
    pub(in crate::http) kind: String,
    pub(in crate::http) media_type: Option<String>,
}

impl UnreadPart {
    /// A part of another form than the parts of a page.
    pub(in crate::http) fn malformed(path: String, why: &str) -> Self {
        Self { path, kind: why.to_owned(), media_type: None }
    }
}

/// The first of the `experimental_attachments` of a page of AI SDK 4.
#[derive(Debug)]
pub(in crate::http) struct Attached(pub(in crate::http) Option<UnreadPart>);

/// The type of a part, or a media type.
#[derive(Debug)]
pub(in crate::http) struct TypeName(pub(in crate::http) String);

/// A file that a page of AI SDK 4 attaches.
#[derive(Debug, Default)]
struct AttachedFile {
    media_type: FieldValue<TypeName>,
}

impl Kept for Attached {
    type With = Bounds;

    fn of_list<'de, A: SeqAccess<'de>>(
        items: &mut A,
        reader: &mut Reader<'_, Bounds>,
    ) -> Result<Option<Self>, A::Error> {
        let Some(item) = reader.item::<AttachedFile, A>(items)? else { return Ok(Some(Self(None))) };
        reader.skip_rest(items)?;
        let media_type = item.is().and_then(|file| file.media_type.is()).map(|name| name.0);
        let path = "experimental_attachments[0]".to_owned();
        Ok(Some(Self(Some(UnreadPart { path, kind: "file".to_owned(), media_type }))))
    }
}

kept! { text TypeName(text) => Some(Self(text.chars().take(TYPE_SHOWN).collect())) }

kept! {
    object AttachedFile {
        "contentType" => media_type,
    }
}
