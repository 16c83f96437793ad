//! Log lines: one line for each event, with any content, and with the fields of the enclosing spans.

use crate::config::LogFormat;
use holdpoint_core::text::visible::push_visible;
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

/// The longest text of one field, in bytes. A longer text is cut and marked.
const TEXT_BYTES_MAX: usize = 1024;
/// Prefixes of fields that are only for traces.
const FOR_TRACES: [&str; 4] = ["otel.", "gen_ai.", "http.", "error.type"];
/// The prefix of the fields in which libraries that log through `log` give their location.
const FROM_LOG: &str = "log.";

/// The layer that writes one line for each event.
pub(super) struct Lines<W> {
    pub(super) format: LogFormat,
    pub(super) writer: W,
}

/// Fields with their names. A list and no map: each span has its few fields in memory as long as its work lasts.
#[derive(Debug, Clone, Default)]
struct Fields(Vec<NamedField>);

#[derive(Debug, Clone)]
struct NamedField {
    name: &'static str,
    value: Value,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        if !FOR_TRACES.iter().any(|prefix| field.name().starts_with(prefix)) {
            self.set(field.name(), value);
        }
    }

    /// Sets a field, in the place of a field of the same name: that of an outer span.
    fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|field| field.name == name) {
            Some(field) => field.value = value,
            None => self.0.push(NamedField { name, value }),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|field| field.name == name)?.value.as_str()
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = Printable::default();
        // The write ends with an error when the text reaches its limit.
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

/// Text that is safe in a line and on a terminal. Invisible characters are spelled out.
#[derive(Default)]
struct Printable(String);

impl Write for Printable {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() >= TEXT_BYTES_MAX {
                self.0.push('…');
                return Err(fmt::Error);
            }
            push_visible(&mut self.0, c);
        }
        Ok(())
    }
}

impl<W> Lines<W> {
    fn line(&self, time: &str, level: &str, target: &str, message: &str, fields: &Fields) -> String {
        match self.format {
            LogFormat::Json => {
                let mut line = Map::new();
                for (name, text) in
                    [("timestamp", time), ("level", level), ("target", target), ("message", message)]
                {
                    line.insert(name.to_owned(), text.into());
                }
                for NamedField { name, value } in &fields.0 {
                    line.entry(*name).or_insert_with(|| value.clone());
                }
                format!("{}\n", Value::Object(line))
            }
            LogFormat::Text => {
                let mut line = format!("{time} {level:>5} {target}: {message}");
                for NamedField { name, value } in &fields.0 {
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

/// Returns whether a text of such characters alone needs no quotes to remain one field.
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
        fields.0.shrink_to_fit();
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
                for NamedField { name, value } in &of_span.0 {
                    fields.set(name, value.clone());
                }
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        let message = fields.text("message").unwrap_or_default().to_owned();
        let target = fields.text("log.target").unwrap_or(metadata.target()).to_owned();
        fields.0.retain(|field| field.name != "message" && !field.name.starts_with(FROM_LOG));
        let mut time = String::new();
        // The line has no time if the clock cannot be formatted.
        let _sent = SystemTime.format_time(&mut Writer::new(&mut time));
        let line = self.line(&time, metadata.level().as_str(), &target, &message, &fields);
        // A failed write of a log line cannot be logged.
        let _written = io::Write::write_all(&mut self.writer.make_writer_for(metadata), line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct KeptLines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for KeptLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the one line that the closure logs.
    fn line(format: LogFormat, log: impl FnOnce()) -> String {
        let kept = KeptLines::default();
        let writer = kept.clone();
        let lines = Lines { format, writer: move || writer.clone() };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with('\n'), "{text}");
        text.trim_end().to_owned()
    }

    const HOSTILE: &str =
        "a\r\nERROR forged: b=\"c\" \u{1b}[31m\u{9b}2J\u{202e}\u{2028}\u{7f}\u{61c}\u{200f}\u{e0041}\u{ad}}{";

    #[test]
    fn h3_a_log_event_is_one_line_without_control_characters() {
        for format in [LogFormat::Json, LogFormat::Text] {
            for text in [HOSTILE.to_owned(), HOSTILE.repeat(50_000)] {
                let line = line(format, || {
                    let _span = tracing::error_span!("turn", tool = text).entered();
                    tracing::error!(%text, path = text, debug = ?text, "{text}");
                });
                let harmful = |c: char| c.is_control() || HOSTILE.contains(c) && !c.is_ascii();
                assert!(!line.contains(harmful), "{line:?}");
                assert!(line.len() < 10_000, "{} bytes", line.len());
                assert!(line.contains("ERROR"), "{line}");
            }
        }
    }

    #[test]
    fn a_json_line_has_the_fields_of_its_spans_and_inner_fields_override_outer_ones() {
        let line = line(LogFormat::Json, || {
            let user = tracing::field::Empty;
            let outer = tracing::error_span!("request", request_id = "r", user, n = 1_u64);
            outer.record("user", "ann");
            let _outer = outer.entered();
            let _inner = tracing::error_span!("turn", run_id = %"t", n = 2_u64, otel.name = "x").entered();
            tracing::info!(level = "forged", yes = true, share = 0.5, below = -1, "said");
        });
        let mut line: Map<String, Value> = serde_json::from_str(&line).unwrap();
        assert!(line.remove("timestamp").unwrap().as_str().unwrap().ends_with('Z'));
        let expected = serde_json::json!({
            "level": "INFO", "target": "holdpoint::telemetry::lines::tests", "message": "said", "request_id": "r",
            "user": "ann", "run_id": "t", "n": 2, "yes": true, "share": 0.5, "below": -1,
        });
        assert_eq!(Value::Object(line), expected);
    }

    #[test]
    fn a_text_line_quotes_values_that_look_like_another_field() {
        let line = line(LogFormat::Text, || {
            tracing::warn!(plain = "a-1.b", odd = "a level=ERROR", empty = "", n = 1, "said");
        });
        let (_, rest) = line.split_once(' ').unwrap();
        let target = "holdpoint::telemetry::lines::tests";
        assert_eq!(rest, format!(" WARN {target}: said plain=a-1.b odd=\"a level=ERROR\" empty=\"\" n=1"));
    }
}
