//! The OpenAPI document: committed, served and complete.

use holdpoint_testkit::dialects::{TestedDialect, dialects};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The output of `holdpoint openapi` with these options. The command needs no configuration, no database and no
/// folder.
fn printed(options: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    let output = command.arg("openapi").args(options).env_clear().current_dir(&dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "the command creates no file");
    String::from_utf8(output.stdout).unwrap()
}

/// The document with every operation.
fn document() -> Value {
    serde_json::from_str(&printed(&["--full"])).unwrap()
}

/// The document for generators.
fn for_generators() -> Value {
    serde_json::from_str(&printed(&[])).unwrap()
}

/// Every operation by its method and path.
fn operations(document: &Value) -> BTreeMap<String, &Value> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &'static str)| format!("{item} {path}");
    let mut all = BTreeMap::new();
    for (path, item) in paths {
        for method in ["get", "put", "post", "patch", "delete"] {
            if let Some(operation) = item.get(method) {
                all.insert(of_path((path, method)), operation);
            }
        }
    }
    all
}

/// Calls `see` with every value of the document and its path.
fn walk(value: &Value, path: &str, see: &mut impl FnMut(&str, &Value)) {
    see(path, value);
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| walk(value, &format!("{path}/{key}"), see))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, value)| walk(value, &format!("{path}/{n}"), see))
        }
        _ => {}
    }
}

/// The version of the document for generators, and the hash of the words of its enums.
const ENUMS: (&str, &str) = ("0.1.0", "197f0e181dd7eb92344f61b50d44a5afdbf99e82655bd93429228ece44e562a9");

#[test]
fn a_new_word_of_an_enum_is_a_new_version_of_the_document() {
    let document = for_generators();
    let mut enums = BTreeSet::new();
    walk(&document["components"], "#", &mut |path, value| {
        // The alternatives of a body repeat words of its enums.
        let words = value.get("enum").filter(|_| !path.contains("/oneOf/"));
        if let Some(words) = words.and_then(Value::as_array) {
            let words: BTreeSet<String> = words.iter().map(Value::to_string).collect();
            enums.insert(format!("{path}: {}", words.into_iter().collect::<Vec<_>>().join(" ")));
        }
    });
    let enums = enums.into_iter().collect::<Vec<_>>().join("\n");
    let hash: String = Sha256::digest(&enums).iter().map(|byte| format!("{byte:02x}")).collect();
    let version = document["info"].text("version");
    assert!(
        (version, hash.as_str()) == ENUMS,
        "The words of the enums, or the version, have changed. After a release a word that is added to an enum needs a new \
         version (`version` in Cargo.toml), because generated clients refuse words that they do not know. Then set ENUMS \
         to ({version:?}, {hash:?}). The enums are now:\n{enums}"
    );
}

#[test]
fn the_document_names_the_dialects_and_the_formats_that_the_tests_know() {
    let schemas = &document()["components"]["schemas"];
    let words = |of: fn(&TestedDialect) -> &str| dialects().iter().map(of).collect::<Vec<_>>();
    assert_eq!(schemas["Protocol"]["enum"], json!(words(|dialect| &dialect.name)));
    assert_eq!(schemas["Format"]["enum"], json!(words(|dialect| &dialect.format)));
}

#[test]
fn the_committed_documents_match_this_server() {
    for (name, options) in [("holdpoint", [].as_slice()), ("holdpoint-full", &["--full"])] {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("openapi/{name}.json"));
        let committed = std::fs::read_to_string(committed).unwrap_or_default();
        assert!(
            printed(options).trim_end() == committed.trim_end(),
            "openapi/{name}.json is not what this server describes; run: cargo xtask openapi"
        );
    }
}

#[tokio::test]
async fn the_served_document_is_the_printed_one() {
    let app = Embedded::start().await;
    let served = app.client.get("/openapi.json").await;
    assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
    assert_eq!(served.body, for_generators());
    let page = app.client.http.get(app.client.url("/docs")).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("attachStreamById"), "the page has every operation");
}

#[test]
fn only_the_streams_of_pages_are_left_out_for_generators() {
    let (full, document) = (document(), for_generators());
    let (all, generated) = (operations(&full), operations(&document));
    let mut left_out = BTreeSet::new();
    for (route, operation) in &all {
        match generated.get(route) {
            Some(same) => {
                let mut expected = (*operation).clone();
                if let Some(parameters) = expected.get_mut("parameters").and_then(Value::as_array_mut) {
                    parameters.retain(|parameter| parameter["name"] != "format");
                }
                assert_eq!(**same, expected, "{route}");
            }
            None => assert!(left_out.insert(operation.text("operationId")), "{route}"),
        }
    }
    let streams =
        ["attach", "attachById", "attachStream", "attachStreamById", "chat", "chatById", "streamEventsAlias"];
    assert_eq!(left_out, BTreeSet::from(streams));
    let mut used = BTreeSet::new();
    walk(&document, "#", &mut |path, value| {
        let reference = value.as_str().filter(|_| path.ends_with("/$ref"));
        used.extend(reference.and_then(|name| name.rsplit('/').next()).map(str::to_owned));
    });
    let schemas: BTreeSet<String> =
        document["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(schemas, used, "a schema is there because an operation uses it");
}

/// The schemas of the JSON responses of an operation with a status of success.
fn results(operation: &Value) -> BTreeSet<String> {
    let responses = operation["responses"].as_object().unwrap().iter();
    let done = responses.filter(|(status, _)| status.starts_with('2'));
    done.flat_map(|(_, response)| response["content"].as_object().cloned().unwrap_or_default())
        .map(|(content_type, content)| format!("{content_type} {}", content["schema"]))
        .collect()
}

#[test]
fn generators_meet_one_result_for_each_operation_and_no_wrapped_reference() {
    let document = for_generators();
    for (route, operation) in operations(&document) {
        assert!(results(operation).len() <= 1, "{route}: {:?}", results(operation));
    }
    let mut enums = 0;
    walk(&document, "#", &mut |path, value| {
        assert!(!["/allOf", "/anyOf", "/oneOf"].iter().any(|union| path.ends_with(union)), "{path}");
        assert!(!path.ends_with("/links") || !value.to_string().contains("requestBody"), "{path}");
        enums += usize::from(path.ends_with("/enum"));
    });
    assert!(enums > 15, "{enums}");
    let schemas = &document["components"]["schemas"];
    for (schema, field, words) in [
        ("ToolCall", "state", "ToolCallState"),
        ("ToolCall", "risk_level", "RiskLevel"),
        ("Approval", "state", "ToolCallState"),
        ("ErrorDetail", "code", "ErrorCode"),
        ("RunFailure", "code", "RunFailureCode"),
        ("Decision", "surface", "Surface"),
    ] {
        let reference = json!({ "$ref": format!("#/components/schemas/{words}") });
        assert_eq!(schemas[schema]["properties"][field], reference, "{schema}.{field}");
        assert!(schemas[words]["enum"].as_array().is_some_and(|words| words.len() > 2), "{words}");
    }
    // These are classes of Java and types of the generated clients.
    for taken in ["Thread", "RunError", "Error", "Object", "String", "Result", "Option"] {
        assert!(schemas.get(taken).is_none(), "{taken}");
    }
}

#[test]
fn every_operation_parameter_and_property_has_a_description() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    // A property that refers to a schema has the description of that schema: a reference has no text of its own.
    let described = |value: &Value| {
        let target = value["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/schemas/"));
        let text = target.map_or(&value["description"], |name| &schemas[name]["description"]);
        text.as_str().unwrap_or_default().to_owned()
    };
    let check = |place: &str, name: &str, text: &str| {
        let words = |text: &str| {
            let text = text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), " ");
            text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let known = words(&format!("{name} a an the of its is id {}", name.replace('_', " ")));
        assert!(words(text).difference(&known).count() > 0, "{place}: {name}: {text:?}");
    };
    let mut properties = 0;
    for (name, schema) in schemas.as_object().unwrap() {
        check("schema", name, schema["description"].as_str().unwrap_or_default());
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            properties += 1;
            check(name, field, &described(property));
        }
    }
    assert!(properties > 150, "{properties}");
    for (route, operation) in operations(&document) {
        check(&route, "description", operation["description"].as_str().unwrap_or_default());
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            check(&route, parameter.text("name"), &described(parameter));
        }
    }
}

#[test]
fn every_operation_has_a_unique_name_and_a_summary() {
    let document = document();
    let operations = operations(&document);
    assert!(operations.len() >= 13, "{operations:#?}");
    let mut names = BTreeSet::new();
    for (route, operation) in operations {
        let name = operation["operationId"].as_str().unwrap_or_else(|| panic!("{route}: no operationId"));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{route}: {name}");
        assert!(names.insert(name), "{route}: {name} is there twice");
        assert!(operation["summary"].as_str().is_some_and(|it| !it.is_empty()), "{route}: no summary");
        assert!(operation["tags"].as_array().is_some_and(|it| it.len() == 1), "{route}: no one tag");
    }
}

#[test]
fn every_operation_documents_its_failures_with_the_error_schema() {
    let document = document();
    let shape = json!({ "$ref": "#/components/schemas/ErrorBody" });
    for (route, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{route}");
        for status in ["400", "401", "403", "404", "405", "413", "415", "429", "500", "503"] {
            assert!(responses.contains_key(status), "{route}: no {status}");
        }
        for (status, response) in responses.iter().filter(|(status, _)| !status.starts_with('2')) {
            let content = response["content"].as_object().unwrap();
            assert_eq!(content.keys().collect::<Vec<_>>(), ["application/json"], "{route} {status}");
            assert_eq!(content["application/json"]["schema"], shape, "{route} {status}");
        }
    }
    let error = &document["components"]["schemas"]["ErrorDetail"];
    assert_eq!(error["required"], json!(["code", "message"]));
}

#[test]
fn every_operation_but_a_report_requires_a_token() {
    let document = document();
    let scheme = &document["components"]["securitySchemes"]["bearer"];
    assert_eq!((&scheme["type"], &scheme["scheme"]), (&json!("http"), &json!("bearer")));
    for (route, operation) in operations(&document) {
        // A report is authorized by its URL and its signature.
        let needs_none = operation["operationId"] == "reportResult";
        let token = if needs_none { json!([]) } else { json!([{ "bearer": [] }]) };
        assert_eq!(operation["security"], token, "{route}");
        assert!(operation["responses"]["401"]["headers"].get("www-authenticate").is_some(), "{route}");
    }
}

#[test]
fn every_path_parameter_is_declared_and_every_reference_resolves() {
    let document = document();
    for (route, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let declared: BTreeSet<&str> = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| parameter.text("name"))
            .collect();
        let used = route.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
        assert_eq!(declared, used, "{route}");
    }
    let mut references = 0;
    walk(&document, "#", &mut |path, value| {
        if let Some(target) = value.as_str().filter(|_| path.ends_with("/$ref")) {
            references += 1;
            let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{path}: {target}"));
            assert!(document.pointer(pointer).is_some(), "{path}: {target} is not there");
        }
    });
    assert!(references > 100, "{references}");
}

/// Every schema of a request body, with the operation that takes it.
fn posted(document: &Value) -> BTreeMap<String, String> {
    let reference = "/requestBody/content/application~1json/schema/$ref";
    let of = |(route, operation): (String, &Value)| {
        let name = operation.pointer(reference)?.as_str()?.rsplit('/').next()?.to_owned();
        Some((name, route))
    };
    operations(document).into_iter().filter_map(of).collect()
}

#[test]
fn only_validated_and_request_fields_are_nullable() {
    let document = document();
    assert_eq!(document["openapi"], "3.0.0", "OpenAPI 3.0 expresses null with nullable");
    let mut nullable = Vec::new();
    walk(&document, "#", &mut |path, value| {
        let is_word = path.rsplit_once("/enum/").is_some_and(|(field, _)| {
            document.pointer(&format!("{}/nullable", &field[1..])) == Some(&Value::Bool(true))
        });
        assert!(!value.is_null() || is_word, "{path} is null");
        assert!(!(path.ends_with("/type") && value.is_array()), "{path}: a list of types is of 3.1");
        if path.ends_with("/nullable") && *value == true {
            nullable.push(path.to_owned());
        }
    });
    let posted = posted(&document);
    let is_posted =
        |path: &String| posted.keys().any(|name| path.starts_with(&format!("#/components/schemas/{name}/")));
    nullable.retain(|path| !is_posted(path));
    let validated = |schema: &str| format!("#/components/schemas/{schema}/properties/validated/nullable");
    assert_eq!(nullable, ["Approval", "ApprovalDetail", "ToolCall"].map(validated));
}

#[test]
fn paths_are_listed_once_and_the_servers_are_the_root_and_api() {
    let document = document();
    assert_eq!(document["servers"], json!([{ "url": "/" }, { "url": "/api" }]));
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.keys().all(|path| !path.starts_with("/api")), "{:?}", paths.keys());
}

#[test]
fn the_document_declares_which_bodies_allow_no_other_field() {
    let document = document();
    let posted = posted(&document);
    assert!(posted.len() >= 5, "{posted:?}");
    for (name, route) in posted {
        let schema = &document["components"]["schemas"][&name];
        let closed = schema["additionalProperties"] == false;
        assert_eq!(closed, !route.contains("/qa/chat_streamed"), "{name}");
    }
}

#[tokio::test]
async fn the_examples_of_the_document_can_be_posted() {
    let app = Embedded::start().await;
    let document = document();
    let mut tried = 0;
    for (route, operation) in operations(&document) {
        let Some(body) = operation.pointer("/requestBody/content/application~1json") else { continue };
        let (method, path) = route.split_once(' ').unwrap();
        let thread = app.client.thread().await;
        let path = path.replace("{thread_id}", &thread).replace("{session_id}", &thread);
        let method = method.to_uppercase().parse().unwrap();
        let request = app.client.http.request(method, app.client.url(&path)).json(&body["example"]);
        let answer = app.client.send(request).await;
        // The call id in the example does not exist.
        let decides = [
            "/qa/validate_tool",
            "/approve",
            "/reject",
            "/approvals/{tool_call_id}",
            "/{tool_call_id}/preview",
            "/resolve",
            "/extend",
            "/delegate",
            "/renew",
            "/settle",
            "/tools/{name}/accept",
            "/result",
            "/answer",
            // No message has the link in the example.
            "/links/open",
        ];
        let expected: &[u16] = match path.as_str() {
            _ if decides.iter().any(|end| path.ends_with(end)) => &[404],
            // This server has no worker tool.
            _ if path.ends_with("/claim") => &[422],
            _ => &[200, 201],
        };
        assert!(expected.contains(&answer.status), "{route}: {}", answer.status);
        tried += 1;
    }
    assert!(tried >= 5, "{tried}");
}

#[tokio::test]
async fn an_unknown_query_parameter_is_refused_and_a_documented_one_is_known() {
    let app = Embedded::start().await;
    let document = document();
    let mut refused = 0;
    for (route, operation) in operations(&document) {
        if operation["operationId"] == "reportResult" {
            // Its parameters are checked after its URL.
            continue;
        }
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace(['{', '}'], "");
        let names = operation["parameters"].as_array().into_iter().flatten();
        let names = names.filter(|parameter| parameter["in"] == "query");
        let known: Vec<&str> = names.map(|parameter| parameter.text("name")).collect();
        let method: reqwest::Method = method.to_uppercase().parse().unwrap();
        let message = async |method: reqwest::Method, path: String| {
            let request = app.client.http.request(method, app.client.url(&path));
            let answer = app.client.send(request).await;
            (answer.status, answer.message().to_owned())
        };
        let is_chat = path.starts_with("/qa/");
        for under in ["", "/api"] {
            let first = known.first().map_or(String::new(), |name| format!("{name}=1&"));
            let (status, reported) = message(method.clone(), format!("{under}{path}?{first}limit=1")).await;
            let expected = match known.as_slice() {
                [] => "query: unknown parameter \"limit\": expected none".to_owned(),
                known => format!("query: unknown parameter \"limit\": expected one of {}", known.join(", ")),
            };
            assert_eq!(
                (status, reported == expected),
                (if is_chat { status } else { 400 }, !is_chat),
                "{route}: {reported}"
            );
            refused += 1;
        }
        // An event stream without an end is not asked.
        for name in known.iter().filter(|name| !matches!(**name, "ticket" | "after")) {
            let (_, reported) = message(method.clone(), format!("{path}?{name}=%00")).await;
            assert!(!reported.contains("unknown parameter"), "{route} {name}: {reported}");
        }
    }
    assert!(refused > 60, "{refused}");
    let head = app.client.http.head(app.client.url("/threads?limit=1"));
    app.client.send(head).await.has_status(400);
    for open in
        ["/healthz?x=1", "/openapi.json?x=1", "/docs?x=1", "/qa/models?x=1", "/threads?", "/threads?&"]
    {
        assert_eq!(app.client.get(open).await.status, 200, "{open}");
    }
    let socket = app.client.get("/ws?x=1").await;
    assert_eq!(
        (socket.status, socket.message()),
        (400, "query: unknown parameter \"x\": expected one of ticket")
    );
}

#[test]
fn links_name_existing_operations_parameters_and_headers() {
    let document = document();
    let operations = operations(&document);
    let by_id = |id: &Value| operations.values().find(|operation| operation["operationId"] == *id);
    let mut links = 0;
    for (route, operation) in &operations {
        for response in operation["responses"].as_object().unwrap().values() {
            for link in response["links"].as_object().into_iter().flat_map(|all| all.values()) {
                links += 1;
                let to = by_id(&link["operationId"]).unwrap_or_else(|| panic!("{route}: {link}"));
                let takes = to["parameters"].as_array().cloned().unwrap_or_default();
                for name in link["parameters"].as_object().into_iter().flat_map(|all| all.keys()) {
                    assert!(takes.iter().any(|parameter| parameter["name"] == **name), "{route}: {link}");
                }
                for value in link["parameters"].as_object().into_iter().flat_map(|all| all.values()) {
                    if let Some(header) = value.as_str().unwrap().strip_prefix("$response.header.") {
                        assert!(response["headers"][header].is_object(), "{route}: {header}");
                    }
                }
            }
        }
    }
    assert!(links >= 10, "{links}");
}

#[tokio::test]
async fn an_unsupported_method_gets_405_and_the_list_of_supported_methods() {
    let app = Embedded::start().await;
    let document = document();
    let mut resources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for route in operations(&document).keys() {
        let (method, path) = route.split_once(' ').unwrap();
        resources.entry(path.to_owned()).or_default().push(method.to_uppercase());
    }
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs"] {
        resources.insert(path.to_owned(), vec!["GET".to_owned()]);
    }
    let mut refused = 0;
    for (path, methods) in &mut resources {
        if methods.contains(&"GET".to_owned()) && !path.starts_with("/qa/chat_streamed") {
            methods.push("HEAD".to_owned());
        }
        methods.sort();
        for method in ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "TRACE"] {
            if methods.iter().any(|known| known == method) {
                continue;
            }
            let under: &[&str] = if path.contains('{') { &["", "/api"] } else { &[""] };
            for under in under {
                let path = format!("{under}{path}").replace("{name}", "list_files");
                let path = path.replace(['{', '}'], "");
                let request = app.client.http.request(method.parse().unwrap(), app.client.url(&path));
                let answer = app.client.send(request).await;
                assert_eq!(answer.status, 405, "{method} {path}");
                let mut allowed: Vec<&str> = answer.header("allow").unwrap_or_default().split(", ").collect();
                allowed.sort_unstable();
                assert_eq!(allowed, *methods, "{method} {path}");
                refused += 1;
            }
        }
    }
    assert!(refused > 80, "{refused}");
}
