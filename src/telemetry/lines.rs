//! Log lines: one for each event, whatever is in it, with the fields of the spans it happened in.

use crate::config::LogFormat;
use serde_json::{Map, Value};
use std::fmt::{self, Write};
use std::io;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Longest text of one field, in bytes; the rest is left out and marked.
const TEXT_BYTES_MAX: usize = 1024;
/// Fields that only traces have a use for.
const FOR_TRACES: [&str; 4] = ["otel.", "gen_ai.", "http.", "error.type"];
/// What libraries that speak to `log` say of where they are.
const FROM_LOG: &str = "log.";

/// Writes a line for each event.
pub(super) struct Lines<W> {
    pub(super) format: LogFormat,
    pub(super) writer: W,
}

/// Fields by their names. The same name further in stands for the one further out.
#[derive(Debug, Clone, Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        if !FOR_TRACES.iter().any(|prefix| field.name().starts_with(prefix)) {
            self.0.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = Printable::default();
        // It is an error when there is enough.
        let _cut = write!(text, "{value:?}");
        self.put(field, text.0.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// Text that harms no line and no terminal: what cannot be printed is spelt.
#[derive(Default)]
struct Printable(String);

impl Write for Printable {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() >= TEXT_BYTES_MAX {
                self.0.push('…');
                return Err(fmt::Error);
            }
            let harmful = c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if harmful {
                self.0.extend(c.escape_default());
            } else {
                self.0.push(c);
            }
        }
        Ok(())
    }
}

impl<W> Lines<W> {
    fn line(
        &self,
        time: &str,
        level: &str,
        target: &str,
        message: &str,
        fields: &Map<String, Value>,
    ) -> String {
        match self.format {
            LogFormat::Json => {
                let mut line = Map::new();
                for (name, text) in
                    [("timestamp", time), ("level", level), ("target", target), ("message", message)]
                {
                    line.insert(name.to_owned(), text.into());
                }
                for (name, value) in fields {
                    line.entry(name.clone()).or_insert_with(|| value.clone());
                }
                format!("{}\n", Value::Object(line))
            }
            LogFormat::Text => {
                let mut line = format!("{time} {level:>5} {target}: {message}");
                for (name, value) in fields {
                    let plain = value.as_str().filter(|text| !text.is_empty() && text.chars().all(is_plain));
                    let _infallible = match plain {
                        Some(text) => write!(line, " {name}={text}"),
                        None => write!(line, " {name}={value}"),
                    };
                }
                line.push('\n');
                line
            }
        }
    }
}

/// Whether a text with nothing else in it cannot be taken for more than one field.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/')
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.0.extend(of_span.0.clone());
            }
        }
        event.record(&mut fields);
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let message = text(fields.0.shift_remove("message"));
        let metadata = event.metadata();
        let target =
            fields.0.get("log.target").and_then(Value::as_str).unwrap_or(metadata.target()).to_owned();
        fields.0.retain(|name, _| !name.starts_with(FROM_LOG));
        let mut time = String::new();
        // A clock that cannot be told leaves the time out.
        let _told = SystemTime.format_time(&mut Writer::new(&mut time));
        let line = self.line(&time, metadata.level().as_str(), &target, &message, &fields.0);
        // There is nowhere to say that there is nowhere to say anything.
        let _written = io::Write::write_all(&mut self.writer.make_writer_for(metadata), line.as_bytes());
    }
}
