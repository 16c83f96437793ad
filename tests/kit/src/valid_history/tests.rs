use super::faults::{Cut, Double, Is, Swap};
use super::*;

#[test]
fn the_same_conversation_is_read_from_each_wire() {
    let words = |by, text: &str| Entry::Words { by, text: text.to_owned() };
    let calls = |text: &str, ids: &[&str]| {
        let call = |id: &&str| Call {
            id: Some((*id).to_owned()),
            tool: "look".to_owned(),
            arguments: json!({ "at": 1 }),
        };
        Entry::Calls { text: text.to_owned(), calls: ids.iter().map(call).collect() }
    };
    for wire in WIRES {
        let path = &wire.path("some-model");
        // On the wires that repeat the tool in an answer, the answer names it.
        let tool = wire.facts().answers_name_tools.then(|| "look".to_owned());
        let answers = |ids: &[&str]| {
            let answer = |id: &&str| Answer {
                id: Some((*id).to_owned()),
                tool: tool.clone(),
                text: "seen".to_owned(),
            };
            Entry::Answers(ids.iter().map(answer).collect())
        };
        let entries = vec![
            words(Speaker::System, "be kind"),
            words(Speaker::User, "go"),
            calls("I look.", &["a", "b"]),
            answers(&["a", "b"]),
            calls("", &["c"]),
            answers(&["c"]),
            words(Speaker::Model, "done"),
            words(Speaker::User, "go"),
        ];
        let expected = Conversation { entries, tools: vec!["look".to_owned()] };
        assert_eq!(conversation(path, &wire.valid_body()), Ok(expected), "{path}");
    }
    assert_eq!(valid_request("/v1/models", &json!({})), Err("/v1/models is the path of no wire".to_owned()));
}

#[test]
fn each_fault_of_a_request_is_found() {
    for wire in WIRES {
        let (path, faults) = (&wire.path("some-model"), wire.faults());
        assert!(!faults.is_empty(), "{wire:?}");
        for (pointer, wrong, expected) in faults {
            let mut body = wire.valid_body();
            let found = body.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not in {path}"));
            match (wrong, found) {
                (Is(value), found) => *found = value,
                (Cut(at), Value::Array(list)) => drop(list.remove(at)),
                (Double(at), Value::Array(list)) => list.insert(at, list[at].clone()),
                (Swap(one, other), Value::Array(list)) => list.swap(one, other),
                _ => panic!("{pointer} is no list in {path}"),
            }
            let found = valid_request(path, &body).expect_err(expected);
            assert!(found.contains(expected), "{found:?} and not {expected:?} for {body:#}");
        }
    }
}

#[test]
fn each_rule_of_a_strict_server_finds_its_breach() {
    let words = |by| Entry::Words { by, text: "hm".to_owned() };
    let calls = || Entry::Calls { text: String::new(), calls: Vec::new() };
    let (user, model, system) =
        (|| words(Speaker::User), || words(Speaker::Model), || words(Speaker::System));
    let breaches: [Vec<Entry>; rules::RULES.len()] = [
        vec![user(), calls(), Entry::Answers(Vec::new()), user()],
        vec![user(), user()],
        vec![user(), model(), calls(), Entry::Answers(Vec::new())],
        vec![system(), system(), user()],
        vec![user(), calls(), Entry::Answers(Vec::new())],
    ];
    for (nth, (entries, rule)) in breaches.into_iter().zip(&rules::RULES).enumerate() {
        let tools = if nth == 4 { Vec::new() } else { vec!["look".to_owned()] };
        let breach = Conversation { entries, tools };
        for wire in WIRES {
            let found = rules::refusal(*wire, &breach);
            let expected = (rule.on)(*wire).then_some(rule.refusal);
            assert_eq!(found.as_deref().and_then(|found| found.split(" (").next()), expected, "{wire:?}");
        }
    }
    for (id, right) in [("a1B2c3D4e", true), ("a1B2c3D4", false), ("a1B2c3D4e5", false), ("a1B2-3D4e", false)]
    {
        assert_eq!(rules::is_id_for_all(id), right, "{id}");
    }
}

#[test]
fn some_wires_are_valid_without_ids() {
    fn forget_ids(value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(forget_ids),
            Value::Object(fields) => {
                fields.retain(|name, _| name != "id" && name != "tool_call_id");
                fields.values_mut().for_each(forget_ids);
            }
            _ => {}
        }
    }
    let mut wires = 0;
    for wire in WIRES.iter().filter(|wire| !wire.facts().calls_need_ids) {
        let (path, mut body) = (&wire.path("some-model"), wire.valid_body());
        wires += 1;
        forget_ids(&mut body);
        assert_eq!(valid_request(path, &body), Ok(()), "{path}");
    }
    assert!(wires > 0);
}

#[test]
fn an_unknown_path_is_refused() {
    assert_eq!(valid_request("/v1/models", &json!({})), Err("/v1/models is the path of no wire".to_owned()));
}
