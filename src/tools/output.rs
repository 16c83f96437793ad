//! What a tool of a type gives, as JSON.

use crate::domain::output::{DEPTH_MAX, not_json, too_deep};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;
use std::any::Any;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::thread;

/// The stack on which a deep output is dropped. Only what is used of it takes memory.
const LARGE_STACK: usize = 256 * 1024 * 1024;

/// The output as JSON, or words that say why it is missing. A `Value` comes back as it is: it can be measured, and taken
/// apart, without recursion.
pub(super) fn as_json<O: Serialize + Send + 'static>(output: O) -> Value {
    let mut output = Some(output);
    if let Some(value) = (&mut output as &mut dyn Any).downcast_mut::<Option<Value>>() {
        return value.take().unwrap_or_default();
    }
    let mut measuring = serde_json::Serializer::with_formatter(io::sink(), Levels(0));
    match output.serialize(&mut measuring) {
        Ok(()) => serde_json::to_value(&output).unwrap_or_else(|error| Value::String(not_json(&error))),
        // The one thing that fails in writing to nowhere.
        Err(error) if error.is_io() => {
            drop_deep(output);
            Value::String(too_deep())
        }
        Err(error) => Value::String(not_json(&error)),
    }
}

/// Drops what may be nested deeper than the stack of this thread is for. Without a thread it is not dropped at all.
fn drop_deep<O: Send + 'static>(deep: O) {
    let deep = ManuallyDrop::new(deep);
    let dropping = thread::Builder::new().stack_size(LARGE_STACK);
    if let Err(error) = dropping.spawn(move || drop(ManuallyDrop::into_inner(deep))) {
        tracing::error!(%error, "an output that is too deep could not be dropped");
    }
}

/// Counts levels, and fails at the first that is too many.
struct Levels(usize);

impl Levels {
    fn begin(&mut self) -> io::Result<()> {
        self.0 += 1;
        if self.0 > DEPTH_MAX { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        self.0 -= 1;
        Ok(())
    }
}

impl Formatter for Levels {
    fn begin_array<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.begin()
    }

    fn end_array<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.end()
    }

    fn begin_object<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.begin()
    }

    fn end_object<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.end()
    }
}
