//! The output of a typed tool, as JSON.

use holdpoint_core::output::{DEPTH_MAX, not_json, too_deep};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;
use std::any::Any;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::thread;

/// The stack of the thread that drops a deep output. Only the used part of it takes memory.
const LARGE_STACK: usize = 256 * 1024 * 1024;

/// Returns the output as JSON, or a text that explains why the output is missing. A `Value` is returned
/// unchanged, because its depth can be measured, and the value dropped, without recursion.
pub(super) fn as_json<O: Serialize + Send + 'static>(output: O) -> Value {
    let mut output = Some(output);
    if let Some(value) = (&mut output as &mut dyn Any).downcast_mut::<Option<Value>>() {
        return value.take().unwrap_or_default();
    }
    let mut measuring = serde_json::Serializer::with_formatter(io::sink(), Levels(0));
    match output.serialize(&mut measuring) {
        Ok(()) => serde_json::to_value(&output).unwrap_or_else(|error| Value::String(not_json(&error))),
        // Writing to a sink fails only at the depth limit.
        Err(error) if error.is_io() => {
            drop_deep(output);
            Value::String(too_deep())
        }
        Err(error) => Value::String(not_json(&error)),
    }
}

/// Drops a value that may be too deep for the stack of the current thread. If no thread can be spawned, the
/// value is leaked.
fn drop_deep<O: Send + 'static>(deep: O) {
    let deep = ManuallyDrop::new(deep);
    let dropping = thread::Builder::new().stack_size(LARGE_STACK);
    if let Err(error) = dropping.spawn(move || drop(ManuallyDrop::into_inner(deep))) {
        tracing::error!(%error, "could not drop an output that is too deep");
    }
}

/// A formatter that counts levels and fails at the first level beyond the limit.
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
