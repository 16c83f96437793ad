use super::*;
use crate::remote::anthropic::TOOLS as ANTHROPIC;
use crate::remote::gemini::TOOLS as GEMINI;
use crate::remote::openai::TOOLS as OPENAI;
use crate::remote::{WIRES, Wire};

/// The names of the wires, each with what its servers accept.
fn rules() -> [(&'static str, &'static SchemaRules); WIRES.len()] {
    WIRES.map(|wire: Wire| (wire.as_str(), wire.tools))
}

fn tool(input_schema: Value) -> ToolDefinition {
    ToolDefinition { name: "t".to_owned(), description: "Does it.".to_owned(), input_schema }
}

/// What a server of the wire says against the schema of a tool, in its published words.
fn refusal(wire: &str, schema: &Value) -> Option<String> {
    let root = schema.as_object().unwrap();
    if root.get("type") != Some(&json!("object")) || NOT_AT_ROOT.iter().any(|key| root.contains_key(*key)) {
        return Some("schema must have type 'object' and not have 'oneOf' at the top level".to_owned());
    }
    if !root.get("properties").is_some_and(Value::is_object) {
        return Some("object schema missing properties".to_owned());
    }
    if wire == "gemini" && depth(&mut root.clone()) > 5 {
        return Some("exceeds the maximum allowed nesting depth".to_owned());
    }
    part_refusal(wire, schema, schema)
}

fn is_listed(value: &Value) -> bool {
    value.is_number() || value.as_str().is_some_and(|text| !text.is_empty())
}

/// The number of schemas within each other.
fn depth(schema: &mut Map<String, Value>) -> usize {
    1 + parts(schema).into_iter().map(depth).max().unwrap_or(0)
}

fn part_refusal(wire: &str, root: &Value, schema: &Value) -> Option<String> {
    let Value::Object(fields) = schema else { return Some(format!("{schema} is no object")) };
    if is_list(fields) && !fields.contains_key("items") {
        return Some("array schema missing items".to_owned());
    }
    for (key, value) in fields {
        if NEVER.contains(&key.as_str()) || (value.is_null() && key != "default") {
            return Some(format!("unknown keyword {key}"));
        }
        if key == "items" && value.is_array() || key.starts_with("exclusiveM") && value.is_boolean() {
            return Some("it must match JSON Schema draft 2020-12".to_owned());
        }
        if wire == "gemini" && !GEMINI.keywords.unwrap().contains(&key.as_str()) {
            return Some(format!("Unknown name {key:?}"));
        }
        match (key.as_str(), value) {
            ("$ref", _) if matches!(wire, "gemini" | "ollama") => return Some("a reference".to_owned()),
            ("enum", Value::Array(values)) if wire == "gemini" && !values.iter().all(is_listed) => {
                return Some("enum: cannot be empty".to_owned());
            }
            ("required", Value::Array(names)) if wire == "gemini" => {
                let properties = fields.get("properties").and_then(Value::as_object);
                let is_there =
                    |name: &Value| properties.is_some_and(|it| it.contains_key(name.as_str().unwrap()));
                if !names.iter().all(is_there) {
                    return Some("required: property is not defined".to_owned());
                }
            }
            ("$ref", Value::String(at)) => {
                let target = root.pointer(at.strip_prefix('#').unwrap());
                if at.contains('%') || target.is_none() {
                    return Some(format!("{at} cannot be resolved"));
                }
            }
            ("properties", Value::Object(named)) => {
                for (name, schema) in named {
                    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
                    if wire == "anthropic" && !name.chars().all(plain) {
                        return Some("Property keys should match pattern".to_owned());
                    }
                    if let Some(why) = part_refusal(wire, root, schema) {
                        return Some(why);
                    }
                }
            }
            (key, Value::Object(_)) if SCHEMA.contains(&key) => {
                if let Some(why) = part_refusal(wire, root, value) {
                    return Some(why);
                }
            }
            (key, Value::Array(schemas)) if LIST.contains(&key) => {
                if let Some(why) = schemas.iter().find_map(|schema| part_refusal(wire, root, schema)) {
                    return Some(why);
                }
            }
            (key, Value::Object(named)) if NAMED.contains(&key) => {
                if let Some(why) = named.values().find_map(|schema| part_refusal(wire, root, schema)) {
                    return Some(why);
                }
            }
            _ => {}
        }
    }
    None
}

/// A list of lists, this often.
fn nested(times: usize) -> Value {
    (0..times).fold(json!({ "type": "string" }), |within, _| json!({ "type": "array", "items": within }))
}

#[test]
fn a_schema_that_every_server_accepts_is_sent_as_it_is() {
    let plain = json!({ "type": "object", "title": "Inputs", "properties": {
            "path": { "type": "string", "description": "A path." },
            "tags": { "type": "array", "items": { "type": "string" } },
            "mode": { "anyOf": [{ "type": "string", "enum": ["a", "b"] }, { "type": "null" }], "default": null },
        }, "required": ["path"], "additionalProperties": false });
    for (wire, rules) in rules() {
        let tool = tool(plain.clone());
        let function = rules.tool(&tool);
        assert_eq!(function.parameters, plain, "{wire}");
        assert_eq!(function.description, "Does it.", "{wire}");
    }
}

#[test]
fn every_server_accepts_what_it_gets_of_the_schemas_that_servers_list() {
    let tree = json!({ "type": "object", "properties": { "left": { "$ref": "#/$defs/T" },
        "list": { "type": "array", "items": { "$ref": "#/$defs/T" } } } });
    for schema in [
        json!({}),
        json!({ "type": "object" }),
        json!({ "type": ["object", "null"], "required": null }),
        json!({ "type": "object", "properties": { "issue": { "type": "integer" }, "pr": { "type": "integer" } },
            "anyOf": [{ "required": ["issue"] }, { "required": ["pr"] }] }),
        json!({ "anyOf": [{ "type": "object", "properties": { "a": { "type": "array" } }, "required": ["a"] },
            { "$ref": "#/$defs/B" }], "$defs": { "B": { "type": "object", "properties": { "b": true } } } }),
        json!({ "type": "object", "allOf": [{ "if": { "properties": { "a": { "const": 1 } } }, "then": { "required": ["b"] } }],
            "properties": { "a": { "const": 1 }, "b": false } }),
        json!({ "type": "object", "properties": { "targets": { "type": "array" }, "both": { "type": ["array", "null"] } } }),
        json!({ "type": "object", "properties": { "$filter": { "type": "string" }, "a b": { "type": "array" } },
            "required": ["$filter"], "additionalProperties": false }),
        json!({ "$schema": "https://unknown.example/schema", "$id": "https://a.example/", "$comment": "c", "type": "object",
            "properties": { "id": { "$id": "#/properties/id", "type": "string" }, "$id": { "type": "string" } } }),
        json!({ "$ref": "#/$defs/T", "$defs": { "T": tree } }),
        json!({ "type": "object", "properties": { "root": { "$ref": "#" } } }),
        json!({ "type": "object", "properties": { "r": { "$ref": "#/definitions/Record%3Cstring%2Cany%3E" } },
            "definitions": { "Record<string,any>": { "type": "object", "additionalProperties": {} } } }),
        json!({ "type": "object", "properties": { "pair": { "type": "array", "items": [{ "type": "string" }, {}],
            "additionalItems": false }, "n": { "minimum": 1, "exclusiveMinimum": true, "exclusiveMaximum": false } } }),
        json!({ "type": "object", "properties": { "o": { "anyOf": [{ "not": {} }, { "type": "string", "pattern": "^a" }] } } }),
        json!({ "type": "object", "properties": { "e": { "type": "string", "example": null, "minLength": 3 } } }),
        json!({ "type": "object", "properties": { "p": { "type": "object", "patternProperties": { "^x": { "type": "array" } } } } }),
        json!({ "type": "object", "properties": { "a": nested(6) } }),
        json!({ "type": "object", "properties": { "a": { "type": ["string", "null"], "enum": ["x", "", null] }, "b": { "const": true } } }),
        json!({ "type": "object", "required": ["a", "b"], "anyOf": [{ "properties": { "a": {} } }],
            "properties": { "c": { "type": "object", "anyOf": [{ "required": ["d"] }, { "required": ["e"] }] } } }),
        json!({ "type": "object", "properties": { "a": { "type": "array", "maxItems": 1000, "items": {} } } }),
    ] {
        for (wire, rules) in rules() {
            let tool = tool(schema.clone());
            let function = rules.tool(&tool);
            let why = refusal(wire, &function.parameters);
            assert_eq!(why, None, "{wire}: {schema}\nsent: {}", function.parameters);
            assert_eq!(rules.tool(&tool).parameters.to_string(), function.parameters.to_string());
        }
    }
}

#[test]
fn what_a_server_refuses_is_said_in_words() {
    let conditions = json!([{ "required": ["issue"] }, { "required": ["pr"] }]);
    let either = tool(json!({ "type": "object", "anyOf": conditions }));
    for (wire, rules) in rules() {
        let said = format!("Does it.\n\n{OF_INPUTS} {{\"anyOf\":{conditions}}}");
        assert_eq!(rules.tool(&either).description, said, "{wire}");
    }
    let filter = tool(json!({ "type": "object", "properties": { "$filter": { "type": "string" } },
        "required": ["$filter"], "additionalProperties": false }));
    let function = ANTHROPIC.tool(&filter);
    assert_eq!(function.parameters, json!({ "type": "object", "properties": {}, "required": [] }));
    assert!(
        function
            .description
            .ends_with(r#"{"properties":{"$filter":{"type":"string"}},"required":["$filter"]}"#),
        "{}",
        function.description
    );
    assert_eq!(OPENAI.tool(&filter).description, "Does it.");
    let short = tool(
        json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "^a", "description": "A." } } }),
    );
    assert_eq!(
        GEMINI.tool(&short).parameters["properties"]["a"]["description"],
        format!("A.\n{OF_VALUE} {{\"pattern\":\"^a\"}}")
    );
    assert!(GEMINI.accepts_name("_3d") && !GEMINI.accepts_name("3d"));
}

#[test]
fn references_without_end_and_schemas_without_measure_are_sent_short() {
    let node = json!({ "type": "object", "properties": { "next": { "$ref": "#/$defs/N" } } });
    let list = tool(
        json!({ "type": "object", "properties": { "first": { "$ref": "#/$defs/N" } }, "$defs": { "N": node } }),
    );
    assert_eq!(OPENAI.tool(&list).parameters, list.input_schema);
    let again = json!({ "type": "object", "description": "N, as above" });
    assert_eq!(
        GEMINI.tool(&list).parameters,
        json!({ "type": "object", "properties": { "first": { "type": "object", "properties": { "next": again } } } })
    );
    let twice = |n: usize| json!({ "anyOf": [{ "$ref": format!("#/$defs/{n}") }, { "$ref": format!("#/$defs/{n}") }] });
    let mut defs: Map<String, Value> = (0..60).map(|n| (n.to_string(), twice(n + 1))).collect();
    defs.insert("60".to_owned(), json!({}));
    let bomb =
        tool(json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/0" } }, "$defs": defs }));
    for (_, rules) in rules() {
        assert!(rules.tool(&bomb).parameters.to_string().len() < 1 << 20);
    }
    let enums = tool(json!({ "type": "object", "enum": vec!["x".repeat(100); 1_000] }));
    assert!(OPENAI.tool(&enums).description.len() < WORDS_BYTES_MAX + 200);
}

#[test]
fn what_is_deeper_than_the_server_accepts_is_said_in_words() {
    let lists = |times: usize| tool(json!({ "type": "object", "properties": { "a": nested(times) } }));
    for (wire, rules) in rules() {
        let (flat, deep) = (lists(3), lists(4));
        assert_eq!(rules.tool(&flat).parameters, flat.input_schema, "{wire}");
        assert_eq!(rules.tool(&deep).parameters == deep.input_schema, wire != "gemini", "{wire}");
    }
    let words = |it: &str| format!("{OF_VALUE} {it}");
    let last = |sent: &Value| sent.pointer("/properties/a/items/items/items").unwrap().clone();
    let list = GEMINI.tool(&lists(4)).parameters;
    let expected = words(r#"{"type":"array","items":{"type":"string"}}"#);
    assert_eq!(last(&list), json!({ "description": expected }), "a list needs its items");

    let object = json!({ "type": "object", "title": "T", "description": "D.", "required": ["k"], "additionalProperties": false,
        "properties": { "k": { "type": "string" } } });
    let around = (0..3).fold(object, |within, _| json!({ "type": "array", "items": within }));
    let sent = GEMINI.tool(&tool(json!({ "type": "object", "properties": { "a": around } }))).parameters;
    let expected =
        words(r#"{"required":["k"],"additionalProperties":false,"properties":{"k":{"type":"string"}}}"#);
    assert_eq!(
        last(&sent),
        json!({ "type": "object", "title": "T", "description": format!("D.\n{expected}") })
    );
}

#[test]
fn values_bounds_and_names_that_the_server_refuses_are_said_in_words() {
    let odd = tool(json!({ "type": "object", "required": ["a", "gone"], "properties": {
        "a": { "enum": ["x", null] }, "b": { "enum": ["x", 1] }, "c": { "const": true },
        "d": { "type": "array", "minItems": 1, "maxItems": 9, "items": {} } } }));
    for (wire, rules) in rules() {
        let sent = rules.tool(&odd);
        if wire != "gemini" {
            assert_eq!((&sent.parameters, &*sent.description), (&odd.input_schema, "Does it."), "{wire}");
            continue;
        }
        let words = |it: &str| json!(format!("{OF_VALUE} {it}"));
        let expected = json!({ "type": "object", "required": ["a"], "properties": {
            "a": { "description": words(r#"{"enum":["x",null]}"#) }, "b": { "enum": ["x", 1] },
            "c": { "description": words(r#"{"const":true}"#) },
            "d": { "type": "array", "items": {}, "description": words(r#"{"minItems":1,"maxItems":9}"#) } } });
        assert_eq!(sent.parameters, expected);
        assert_eq!(sent.description, format!("Does it.\n\n{OF_INPUTS} {{\"required\":[\"gone\"]}}"));
    }
}
