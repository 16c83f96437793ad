//! The memory that one request may use, for bodies of any shape, measured on a separate process.

use holdpoint_testkit::Process;

/// The default limit of a chat body.
const BODY_BYTES: usize = 16 << 20;
/// The memory by which the process may grow during the request.
const GROWTH_KIB: u64 = 64 << 10;

/// A body of the maximum length, filled with these items, separated by commas.
fn filled(begin: &str, item: impl Fn(usize) -> String, end: &str) -> String {
    filled_to(BODY_BYTES, begin, item, end)
}

/// A body of at most this many bytes, filled with these items.
fn filled_to(bytes: usize, begin: &str, item: impl Fn(usize) -> String, end: &str) -> String {
    let mut body = begin.to_owned();
    for n in 0.. {
        let item = item(n);
        if body.len() + item.len() + 1 + end.len() > bytes {
            break;
        }
        if n > 0 {
            body.push(',');
        }
        body.push_str(&item);
    }
    body + end
}

/// A UUID that identifies no call.
fn id(n: usize) -> String {
    format!("01890a5d-ac96-774b-bcce-{n:012x}")
}

/// Posts each body to the chat route.
async fn check(bodies: Vec<(&str, String, u16)>) {
    check_at("/qa/chat_streamed/{thread}", bodies).await;
}

/// Posts each body to a new server. Asserts the status and the memory bound.
async fn check_at(path: &str, bodies: Vec<(&str, String, u16)>) {
    for (name, body, status) in bodies {
        let dir = tempfile::tempdir().unwrap();
        let server = Process::start(dir.path(), &[("HOLDPOINT_LOG__LEVEL", "error")]).await;
        let thread = server.client.thread().await;
        let idle = server.peak_kib();
        let path = server.client.url(&path.replace("{thread}", &thread));
        let post = server.client.http.post(path).header("content-type", "application/json");
        let response = post.body(body).send().await.unwrap();
        let (answered, text) = (response.status().as_u16(), response.text().await.unwrap());
        let peak = server.peak_kib();
        eprintln!("{name}: {} MiB over {} MiB", (peak - idle) >> 10, idle >> 10);
        let beginning: String = text.chars().take(500).collect();
        assert_eq!(answered, status, "{name}: {beginning}");
        assert!(text.len() < 1 << 20, "{name}: an answer of {} bytes", text.len());
        assert!(peak - idle <= GROWTH_KIB, "{name}: {} KiB over {idle} KiB", peak - idle);
    }
}

#[tokio::test]
async fn unread_fields_of_a_body_take_no_memory() {
    let begin = r#"{"content":"hi","x":["#;
    check(vec![
        ("numbers", filled(begin, |_| "0".to_owned(), "]}"), 200),
        ("lists", filled(begin, |_| "[0]".to_owned(), "]}"), 200),
        ("objects", filled(begin, |_| r#"{"":0}"#.to_owned(), "]}"), 200),
        ("keys", filled(r#"{"content":"hi","x":{"#, |n| format!(r#""{n:x}":0"#), "}}"), 200),
        ("a text", format!(r#"{{"content":"hi","x":"{}"}}"#, r"\n".repeat(BODY_BYTES / 2 - 64)), 200),
    ])
    .await;
}

#[tokio::test]
async fn a_history_of_any_shape_takes_little_memory() {
    let begin = r#"{"messages":["#;
    let huge = r"\u00e9".repeat(BODY_BYTES / 6 - 64);
    let last = r#"{"role":"user","content":"hi"}"#;
    let parts = r#"]},{"role":"user","parts":[{"type":"text","text":"hi"}]}]}"#;
    let in_parts = r#"{"messages":[{"role":"assistant","parts":["#;
    let answer = |n: usize| {
        let id = id(n);
        format!(
            r#"{{"type":"tool-x","state":"approval-responded","approval":{{"id":"{id}","approved":false}}}}"#
        )
    };
    check(vec![
        ("a huge message", format!(r#"{begin}{{"role":"user","content":"{huge}"}}]}}"#), 413),
        ("a huge answer", format!(r#"{begin}{{"role":"assistant","content":"{huge}"}},{last}]}}"#), 200),
        (
            "huge parts",
            filled(
                r#"{"messages":[{"role":"user","parts":["#,
                |_| format!(r#"{{"type":"text","text":"{}"}}"#, "x".repeat(1 << 20)),
                "]}]}",
            ),
            413,
        ),
        (
            "small parts",
            filled(
                r#"{"messages":[{"role":"user","parts":["#,
                |_| r#"{"text":"a","type":"text"}"#.to_owned(),
                "]}]}",
            ),
            413,
        ),
        ("other parts", filled(in_parts, |n| format!(r#"{{"output":[{n},[0]]}}"#), parts), 200),
        ("answers", filled(in_parts, answer, parts), 200),
        ("messages", filled(begin, |_| r#"{"role":"user","content":"a"}"#.to_owned(), "]}"), 400),
        ("empty messages", filled(begin, |_| "{}".to_owned(), "]}"), 400),
    ])
    .await;
}

#[tokio::test]
async fn names_of_any_number_and_length_take_little_memory() {
    let begin = r#"{"content":"hi","tool_selection":["#;
    let long = "\u{7f}".repeat(BODY_BYTES - 64);
    check(vec![
        ("one name", filled(begin, |_| r#""list_files""#.to_owned(), "]}"), 200),
        ("names", filled(begin, |n| format!(r#""{n:x}""#), "]}"), 422),
        ("a long name", format!(r#"{begin}"{long}"]}}"#), 422),
        ("a long model", format!(r#"{{"content":"hi","model":"{long}"}}"#), 422),
        ("a long trigger", format!(r#"{{"trigger":"{long}"}}"#), 400),
    ])
    .await;
}

#[tokio::test]
async fn a_body_of_any_other_route_takes_little_memory() {
    let call = id(0);
    let begin = format!(r#"{{"toolCallId":"{call}","isValidated":true,"validatedInputs":{{"x":["#);
    let begin = begin.as_str();
    let of = |item: &'static str| filled_to(256 << 10, begin, move |_| item.to_owned(), "]}}");
    let bodies = vec![
        ("numbers", of("0"), 404),
        ("lists", of("[0]"), 404),
        ("objects", of(r#"{"":0}"#), 404),
        ("empty lists", of("[]"), 404),
    ];
    check_at("/qa/validate_tool", bodies).await;
}
