//! What the log says about the tools of a request.

use super::*;
use std::io;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Returns the lines that two requests with these tools log.
fn logged(wire: Wire, names: &[String]) -> Vec<String> {
    let tool = |name: &String| {
        let (name, description) = (name.clone(), String::new());
        Arc::new(ToolDefinition { name, description, input_schema: json!({ "type": "object" }) })
    };
    let tools = names.iter().map(tool).collect();
    let request = ModelRequest { system: None, messages: Vec::new(), tools, tool_choice: ToolChoice::Auto };
    let remote = remote(wire, "http://127.0.0.1:1/v1", "", &json!({})).unwrap();
    let kept = CapturedLog::default();
    let lines = tracing_subscriber::fmt().with_writer(kept.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(lines, || {
        for _ in 0..2 {
            drop(remote.stream(&request));
        }
    });
    let text = String::from_utf8(kept.0.lock().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn more_tools_than_a_server_takes_are_named_once() {
    let names: Vec<_> = (0..513).map(|n| format!("t{n}")).collect();
    assert!(WIRES.iter().any(|wire| wire.tools.tools_max.is_some()));
    for wire in WIRES {
        let Some(most) = wire.tools.tools_max else {
            assert_eq!(logged(wire, &names), [] as [&str; 0], "{wire:?}");
            continue;
        };
        let lines = logged(wire, &names[..=most]);
        let [line] = &lines[..] else { panic!("{wire:?}: {lines:#?}") };
        let says = ["takes fewer tools", "WARN", "`tools` of `[[mcp]]`"];
        assert!(says.iter().all(|words| line.contains(words)), "{line}");
        assert!(line.contains(&format!("most={most}")), "{line}");
        assert!(line.contains(&format!("count={}", most + 1)), "{line}");
        assert_eq!(logged(wire, &names[..most]), [] as [&str; 0], "{wire:?}");
    }
}

#[test]
fn a_tool_that_a_server_cannot_get_is_named_once() {
    let names = ["3d", "_3d", "look"].map(str::to_owned);
    for wire in WIRES {
        let lines = logged(wire, &names);
        if !wire.tools.accepts_name("3d") {
            let [line] = &lines[..] else { panic!("{lines:#?}") };
            assert!(line.contains("refuses the name of a tool") && line.contains("tool=\"3d\""), "{line}");
        } else {
            assert_eq!(lines, [] as [&str; 0], "{wire:?}");
        }
        assert_eq!(logged(wire, &names[..1]), [] as [&str; 0], "{wire:?}: it has another name there");
    }
}
