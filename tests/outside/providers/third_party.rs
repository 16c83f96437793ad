//! The whole server against an independent implementation of a model server, on each wire that it supports.

use holdpoint_testkit::wires::on_each_wire;
use holdpoint_testkit::{Aimock, Entry, Home, JsonFields, Process, RecordedRequest, Speaker, Wire};
use serde_json::{Value, json};

async fn start(wire: Wire) -> (Home, Aimock, Process) {
    let (home, aimock, facts) = (Home::new().await, Aimock::start().await, wire.facts());
    let base_url = aimock.base_url(facts.base_path);
    let server = home.start(facts.provider, facts.foreign.model, &base_url, facts.foreign.options);
    (home, aimock, server)
}

/// All requests to the foreign server, of which these were answered with an error.
fn finish(wire: Wire, aimock: Aimock, refused: &[(usize, u16)]) -> Vec<RecordedRequest> {
    let (requests, foreign) = (aimock.finish(refused), &wire.facts().foreign);
    for requests in &requests {
        let (name, key) = foreign.key;
        assert_eq!(
            (requests.path.as_str(), requests.header(name)),
            (wire.path(foreign.model).as_str(), Some(key))
        );
        let options: Value = serde_json::from_str(foreign.options).unwrap();
        for (name, option) in options.as_object().unwrap() {
            assert_eq!(&requests.body[name], option);
        }
    }
    requests
}

fn user(text: &str) -> Entry {
    Entry::Words { by: Speaker::User, text: text.to_owned() }
}

fn model(text: &str) -> Entry {
    Entry::Words { by: Speaker::Model, text: text.to_owned() }
}

async fn a_held_call_of_a_foreign_model_runs_once_approved_and_the_model_continues(wire: Wire) {
    let (home, aimock, server) = start(wire).await;
    let (old, new) = (home.file("old.txt"), home.file("new.txt"));
    std::fs::write(&old, "old").unwrap();
    std::fs::write(&new, "new").unwrap();
    let client = &server.client;
    let thread = client.thread().await;

    let turn = client.send_message(&thread, "tidy up").await;
    let thoughts = if wire.facts().foreign.thinks { "g" } else { "" };
    assert_eq!(turn.codes(), format!("f{thoughts}0bcbc99a8ed"), "{}", turn.raw);
    if wire.facts().foreign.thinks {
        assert_eq!(turn.joined('g'), "The person wants order; old.txt is old.");
    }
    assert_eq!(turn.text(), "Let me look at the files and remove the old one.");
    let [list, delete] = turn.all('9')[..] else { panic!("{}", turn.raw) };
    assert_eq!((&list["toolName"], &list["args"]), (&json!("list_files"), &json!({})));
    let inputs = json!({ "path": "old.txt" });
    assert_eq!((&delete["toolName"], &delete["args"]), (&json!("delete_file"), &inputs));
    let pieces = turn.all('c').into_iter().filter(|piece| piece["toolCallId"] == delete["toolCallId"]);
    let pieces: Vec<&str> = pieces.map(|piece| piece.text("argsTextDelta")).collect();
    assert_eq!(pieces.concat(), inputs.to_string());
    let listed = turn.one('a');
    assert_eq!(listed["toolCallId"], list["toolCallId"]);
    let names = listed["result"].to_string();
    assert!(names.contains("old.txt") && names.contains("new.txt"), "{names}");
    assert_eq!(turn.pending(), [delete.text("toolCallId")]);
    assert_eq!(turn.one('e')["finishReason"], "tool-calls");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "old", "the call is not approved");

    let approved = client.approve(&turn.pending()[0]).await;
    approved.has(200, "state", "succeeded");
    assert!(!old.exists() && new.exists());

    let done = client.resume(&thread).await;
    assert_eq!(done.codes(), "a8ef0ed");
    assert_eq!(done.text(), "I listed the files and dealt with old.txt. All tidy.");
    assert_eq!(done.one('f'), turn.one('f'), "the same message");
    assert_eq!(done.one('d')["finishReason"], "stop");
    let usage = |input: u64, output: u64| match wire.facts().foreign.counts {
        true => json!({ "promptTokens": input, "completionTokens": output }),
        false => json!({ "promptTokens": 0, "completionTokens": 0 }),
    };
    assert_eq!((&turn.one('d')["usage"], &done.one('d')["usage"]), (&usage(31, 17), &usage(53, 11)));

    let requests = finish(wire, aimock, &[]);
    let [first, second] = &requests[..] else { panic!("{requests:#?}") };
    let mut first = first.conversation();
    first.tools.sort_unstable();
    assert_eq!(first.tools, ["delete_file", "list_files", "read_file", "write_file"]);
    assert_eq!(first.entries, [user("tidy up")]);
    let [question, Entry::Calls { text, calls }, Entry::Answers(answers)] =
        &second.conversation().entries[..]
    else {
        panic!("{second:#?}")
    };
    assert_eq!((question, text), (&user("tidy up"), &turn.text()));
    let calls: Vec<_> = calls.iter().map(|call| (call.tool.as_str(), &call.arguments)).collect();
    assert_eq!(calls, [("list_files", &json!({})), ("delete_file", &inputs)]);
    let [listed, deleted] = &answers[..] else { panic!("{answers:?}") };
    assert!(listed.text.contains("new.txt"), "{listed:?}");
    assert_eq!(approved.body["result"], deleted.text, "the person and the model read the same result");
}
on_each_wire!(a_held_call_of_a_foreign_model_runs_once_approved_and_the_model_continues);

async fn a_foreign_model_reads_a_late_outcome_and_its_earlier_history_is_unchanged(wire: Wire) {
    let (home, aimock, server) = start(wire).await;
    std::fs::write(home.file("old.txt"), "old").unwrap();
    let client = &server.client;
    let thread = client.thread().await;
    let held = client.send_message(&thread, "tidy up").await;
    assert_eq!(
        client.send_message(&thread, "hello").await.text(),
        "Hello there.",
        "the user sends the next message"
    );
    let no = json!({ "toolCallId": held.pending()[0], "isValidated": false, "reason": "I need it." });
    client.validate(&no).await.has_status(200);
    assert_eq!(client.send_message(&thread, "hello").await.text(), "Hello there.");

    let requests = finish(wire, aimock, &[]);
    let [_, meanwhile, late] = &requests[..] else { panic!("{requests:#?}") };
    let [before, after] = [meanwhile, late].map(|requests| requests.conversation().entries);
    let [_, Entry::Calls { .. }, Entry::Answers(answers), silence, question] = &before[..] else {
        panic!("{before:#?}")
    };
    assert_eq!((answers.len(), silence, question), (2, &model("(no reply)"), &user("hello")));
    let (same, new) = after.split_at(before.len());
    assert_eq!(same, before);
    let [output, Entry::Words { by: Speaker::User, text: note }, silence, again] = new else {
        panic!("{new:#?}")
    };
    assert!(note.starts_with("[tool outcome] delete_file, call "), "{note}");
    assert!(note.ends_with("Tool execution rejected by user. Reason: I need it."), "{note}");
    assert_eq!((output, silence, again), (&model("Hello there."), &model("(no reply)"), &user("hello")));

    let messages = |requests: &RecordedRequest| {
        let lists = ["messages", "input", "contents"].iter();
        lists.filter_map(|list| requests.body[list].as_array()).next().unwrap().clone()
    };
    assert!(messages(late).starts_with(&messages(meanwhile)), "{late:#?}");
}
on_each_wire!(a_foreign_model_reads_a_late_outcome_and_its_earlier_history_is_unchanged);

async fn malformed_output_of_a_foreign_model_is_sent_back_in_a_valid_form(wire: Wire) {
    let (_home, aimock, server) = start(wire).await;
    let thread = server.client.thread().await;
    let turn = server.client.send_message(&thread, "mumble").await;
    let [unknown, _] = turn.all('a')[..] else { panic!("{}", turn.raw) };
    assert!(unknown["result"].text("error").contains("no tool named \"no such tool\""), "{unknown}");
    assert_eq!(turn.one('d')["finishReason"], "stop", "{}", turn.raw);
    assert_eq!(server.client.send_message(&thread, "hello").await.text(), "Hello there.");

    // Blank text, a tool name with blanks, a long id used twice and truncated arguments: all of it is valid
    // in the next request.
    let requests = finish(wire, aimock, &[]);
    let [_, second, third] = &requests[..] else { panic!("{requests:#?}") };
    let [question, Entry::Calls { calls, .. }, Entry::Answers(_)] = &second.conversation().entries[..] else {
        panic!("{second:#?}")
    };
    assert_eq!(question, &user("mumble"));
    assert!(calls.iter().all(|call| call.arguments == json!({})), "{calls:?}");
    assert_eq!(third.conversation().entries.len(), 5);
}
on_each_wire!(malformed_output_of_a_foreign_model_is_sent_back_in_a_valid_form);

async fn text_of_a_foreign_model_is_streamed_and_sent_back_in_the_next_turn(wire: Wire) {
    let (_home, aimock, server) = start(wire).await;
    let thread = server.client.thread().await;
    for _ in 0..2 {
        let turn = server.client.send_message(&thread, "hello").await;
        assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0ed", "Hello there."));
        assert_eq!(turn.one('e')["finishReason"], "stop");
    }
    let requests = finish(wire, aimock, &[]);
    let [first, second] = &requests[..] else { panic!("{requests:#?}") };
    assert_eq!(first.conversation().entries, [user("hello")]);
    assert_eq!(second.conversation().entries, [user("hello"), model("Hello there."), user("hello")]);
}
on_each_wire!(text_of_a_foreign_model_is_streamed_and_sent_back_in_the_next_turn);

async fn a_foreign_server_that_refuses_truncates_or_garbles_its_answer_fails_only_that_turn(wire: Wire) {
    let (_home, aimock, server) = start(wire).await;
    let client = &server.client;
    // The nonsense has the content type JSON, which only the wires with lines of JSON accept.
    let nonsense = if !wire.facts().is_sse { "upstream_malformed" } else { "upstream_error" };
    let failures = [
        ("what is forbidden", "f3", "upstream_error", ""),
        ("break off", "f03", "upstream_malformed", "It was"),
        ("talk nonsense", "f3", nonsense, ""),
    ];
    for (words, codes, code, output) in failures {
        let thread = client.thread().await;
        let turn = client.send_message(&thread, words).await;
        assert_eq!((turn.status, turn.codes().as_str()), (200, codes), "{}", turn.raw);
        assert!(turn.error().starts_with(&format!("{code}: ")), "{}", turn.raw);
        assert!(turn.text().starts_with(output), "the streamed text is kept: {}", turn.raw);
        assert_eq!(client.send_message(&thread, "hello").await.text(), "Hello there.");
    }
    // No request is retried, and a broken answer is not sent.
    let requests = finish(wire, aimock, &[(0, 400)]);
    let messages: Vec<_> = requests.iter().map(|requests| requests.conversation().entries).collect();
    let failed = |words: &str| [vec![user(words)], vec![user(words), model("(no reply)"), user("hello")]];
    let expected = failures.map(|(words, ..)| failed(words));
    assert_eq!(messages, expected.into_iter().flatten().collect::<Vec<_>>());
}
on_each_wire!(a_foreign_server_that_refuses_truncates_or_garbles_its_answer_fails_only_that_turn);

async fn a_busy_foreign_server_is_retried_after_its_retry_after(wire: Wire) {
    let (_home, aimock, server) = start(wire).await;
    let thread = server.client.thread().await;
    let started = std::time::Instant::now();
    let turn = server.client.send_message(&thread, "hurry").await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0ed", "Here I am."));
    assert!(started.elapsed() >= std::time::Duration::from_secs(1), "it said one second");
    let requests = finish(wire, aimock, &[(0, 429)]);
    let bodies: Vec<&Value> = requests.iter().map(|requests| &requests.body).collect();
    assert_eq!(bodies.len(), 2);
    assert_eq!(bodies[0], bodies[1], "the same question");
}
on_each_wire!(a_busy_foreign_server_is_retried_after_its_retry_after);
