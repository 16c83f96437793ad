//! Secret inputs: the properties that a tool's schema marks with `writeOnly` or `format: password`, and their mask.
//!
//! People read inputs through [`SecretPaths::shown`], which puts [`MASK`] in the place of each secret. The tool, the
//! model, the policy and the hashes have the inputs as they are.

use crate::json::pointer;
use crate::tool::input::Input;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet};

/// In place of a secret, whatever its type and length.
pub const MASK: &str = "•••";

/// Maximum number of steps of a path. A schema that refers to itself has no end: below this depth a value is secret
/// as a whole, if the schema has a secret there.
const STEPS_MAX: usize = 16;
/// Maximum number of paths of a tool. The inputs of a tool with more are secret as a whole.
const PATHS_MAX: usize = 256;
/// Maximum number of schemas that are read to find the paths of a tool.
const SCHEMAS_MAX: usize = 4096;

/// One step from a value to a value inside it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PathStep {
    /// The property of this name, or the item of this number.
    Key(String),
    /// Each property or item.
    Each,
}

/// The places of the secrets in the inputs of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretPaths(Vec<Vec<PathStep>>);

/// Inputs as people read them: each secret is [`MASK`].
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ShownInput(Input);

/// A change of the inputs by an approver, for the model. People read this text too, so secrets are masked in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// The proposed inputs.
    pub from: ShownInput,
    /// The inputs that run.
    pub to: ShownInput,
}

impl ShownInput {
    /// Returns the inputs.
    pub fn as_input(&self) -> &Input {
        &self.0
    }

    /// Returns the inputs.
    pub fn into_input(self) -> Input {
        self.0
    }
}

impl SecretPaths {
    /// Returns the places of the secrets in inputs with this schema.
    pub fn of_schema(schema: &Value) -> Self {
        if !mentions_secret(schema) {
            return Self::default();
        }
        let mut finder = SecretFinder { root: schema, found: BTreeSet::new(), left: SCHEMAS_MAX };
        finder.find(schema, &mut Vec::new(), &mut Vec::new());
        // The inputs are an object, so all its properties are secret if the whole is.
        let everything = finder.found.len() > PATHS_MAX || finder.found.contains(&Vec::new());
        if everything { Self::everything() } else { Self(finder.found.into_iter().collect()) }
    }

    /// All inputs are secret.
    pub fn everything() -> Self {
        Self(vec![vec![PathStep::Each]])
    }

    /// Whether no input is secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the inputs with a mask in place of each secret. A `null` stays.
    pub fn shown(&self, input: &Input) -> ShownInput {
        let mut shown = input.clone();
        for path in &self.0 {
            each_in(&mut shown, path, &mut |value| {
                if !value.is_null() {
                    *value = Value::from(MASK);
                }
            });
        }
        ShownInput(shown)
    }

    /// Returns the JSON pointers of the secrets in these inputs.
    pub fn pointers(&self, input: &Input) -> Vec<String> {
        let mut found = BTreeSet::new();
        for path in &self.0 {
            pointers_in(input.iter().map(|(key, value)| (key.clone(), value)), path, "", &mut found);
        }
        found.into_iter().collect()
    }

    /// Whether these inputs have a secret.
    pub fn are_in(&self, input: &Input) -> bool {
        !self.is_empty() && !self.pointers(input).is_empty()
    }

    /// Returns edited inputs with the proposed value in place of each mask at the place of a secret. A mask elsewhere is
    /// a text.
    ///
    /// # Errors
    /// Returns the pointer of a mask without a proposed value: there is none at that place, or a list around it has
    /// another length, so that the places in it do not correspond.
    pub fn unmasked(&self, edited: &Input, proposed: &Input) -> Result<Input, String> {
        let mut whole = edited.clone();
        // Values are taken from `edited`, so that a restored value is not read as a mask again.
        for at in self.pointers(edited) {
            let is_mask = pointer::find(edited, &at).and_then(Value::as_str) == Some(MASK);
            if !is_mask {
                continue;
            }
            let before = pointer::find(proposed, &at).filter(|_| has_same_lists(edited, proposed, &at));
            match (before, pointer::find_mut(&mut whole, &at)) {
                (Some(before), Some(place)) => *place = before.clone(),
                _ => return Err(at),
            }
        }
        Ok(whole)
    }

    /// Returns the patterns as JSON, for a row: lists of keys, with `null` for each property or item. `None` without
    /// secrets.
    pub fn to_json(&self) -> Option<String> {
        let step = |step: &PathStep| match step {
            PathStep::Key(key) => Value::from(key.as_str()),
            PathStep::Each => Value::Null,
        };
        let path = |path: &Vec<PathStep>| path.iter().map(step).collect::<Value>();
        (!self.is_empty()).then(|| self.0.iter().map(path).collect::<Value>().to_string())
    }

    /// Reads the patterns of a row. If they cannot be read, all inputs are secret.
    pub fn of_json(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::default() };
        let step = |key: Option<String>| key.map_or(PathStep::Each, PathStep::Key);
        let path = |path: Vec<Option<String>>| path.into_iter().map(step).collect();
        match serde_json::from_str::<Vec<Vec<Option<String>>>>(text) {
            Ok(paths) => Self(paths.into_iter().map(path).collect()),
            Err(_) => Self::everything(),
        }
    }

    /// Returns the patterns as texts for people: JSON pointers, with `*` for each property or item.
    pub fn patterns(&self) -> Vec<String> {
        let step = |at: String, step: &PathStep| match step {
            PathStep::Key(key) => pointer::join(&at, key),
            PathStep::Each => format!("{at}/*"),
        };
        self.0.iter().map(|path| path.iter().fold(String::new(), step)).collect()
    }
}

/// Changes each value at the path inside an object.
fn each_in(fields: &mut Map<String, Value>, path: &[PathStep], change: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else { return };
    match first {
        PathStep::Key(key) => fields.get_mut(key).into_iter().for_each(|it| each_at(it, rest, change)),
        PathStep::Each => fields.values_mut().for_each(|it| each_at(it, rest, change)),
    }
}

/// Changes each value at the path from this value.
fn each_at(value: &mut Value, path: &[PathStep], change: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else { return change(value) };
    match value {
        Value::Object(fields) => each_in(fields, path, change),
        Value::Array(items) => match first {
            PathStep::Key(key) => {
                let of_key = items.iter_mut().enumerate().filter(|(n, _)| n.to_string() == *key);
                of_key.for_each(|(_, it)| each_at(it, rest, change));
            }
            PathStep::Each => items.iter_mut().for_each(|it| each_at(it, rest, change)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Collects the pointers of the values at the path inside these entries of a value. A `null` is no secret.
fn pointers_in<'v>(
    entries: impl Iterator<Item = (String, &'v Value)>,
    path: &[PathStep],
    parent: &str,
    found: &mut BTreeSet<String>,
) {
    let Some((first, rest)) = path.split_first() else { return };
    for (key, value) in entries {
        if matches!(first, PathStep::Key(wanted) if *wanted != key) {
            continue;
        }
        let at = pointer::join(parent, &key);
        match value {
            Value::Null => {}
            _ if rest.is_empty() => {
                found.insert(at);
            }
            Value::Object(fields) => {
                let entries: Vec<_> = fields.iter().map(|(key, value)| (key.clone(), value)).collect();
                pointers_in(entries.into_iter(), rest, &at, found);
            }
            Value::Array(items) => {
                let entries: Vec<_> = items.iter().enumerate().map(|(n, it)| (n.to_string(), it)).collect();
                pointers_in(entries.into_iter(), rest, &at, found);
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Whether each list on the way to the pointer has the same length in both inputs.
fn has_same_lists(edited: &Input, proposed: &Input, at: &str) -> bool {
    let parents = at.match_indices('/').filter_map(|(end, _)| at.get(..end)).filter(|it| !it.is_empty());
    let mut lists = parents.map(|parent| (pointer::find(edited, parent), pointer::find(proposed, parent)));
    lists.all(|found| match found {
        (Some(Value::Array(edited)), Some(Value::Array(proposed))) => edited.len() == proposed.len(),
        (Some(Value::Array(_)), _) | (_, Some(Value::Array(_))) => false,
        _ => true,
    })
}

fn marks_secret(schema: &Map<String, Value>) -> bool {
    let is_password = schema.get("format").and_then(Value::as_str) == Some("password");
    is_password || schema.get("writeOnly") == Some(&Value::Bool(true))
}

/// Whether the schema is a document of its own.
fn is_embedded(schema: &Map<String, Value>) -> bool {
    schema.get("$id").is_some_and(Value::is_string)
}

/// Whether a schema marks anything anywhere in it.
fn mentions_secret(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => marks_secret(fields) || fields.values().any(mentions_secret),
        Value::Array(items) => items.iter().any(mentions_secret),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Where the schemas under a keyword apply.
enum KeywordPlace {
    /// At the place of the schema itself.
    Here,
    /// At one step below it.
    Below(PathStep),
}

/// Finds the paths of a schema.
struct SecretFinder<'s> {
    root: &'s Value,
    found: BTreeSet<Vec<PathStep>>,
    /// The number of schemas that may still be read.
    left: usize,
}

impl<'s> SecretFinder<'s> {
    /// Adds the paths of the secrets in values of this schema, which are at this path. `here` are the schemas that are
    /// being read at the same path.
    fn find(&mut self, schema: &'s Value, at: &mut Vec<PathStep>, here: &mut Vec<&'s Value>) {
        let Value::Object(fields) = schema else { return };
        if here.iter().any(|it| std::ptr::eq(*it, schema)) {
            return;
        }
        // The references inside of an embedded document are not those of this one.
        if marks_secret(fields) || is_embedded(fields) && !std::ptr::eq(schema, self.root) {
            self.found.insert(at.clone());
            return;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || at.len() >= STEPS_MAX || self.found.len() > PATHS_MAX {
            if self.reaches_secret(schema) {
                self.found.insert(at.clone());
            }
            return;
        }
        here.push(schema);
        for (place, part) in parts(fields) {
            match place {
                KeywordPlace::Here => self.find(part, at, here),
                KeywordPlace::Below(step) => {
                    at.push(step);
                    self.find(part, at, &mut Vec::new());
                    at.pop();
                }
            }
        }
        for target in references(fields) {
            match self.referred(target) {
                Some(part) => self.find(part, at, here),
                // What is not found may mark anything.
                None => {
                    self.found.insert(at.clone());
                }
            }
        }
        here.pop();
    }

    /// Whether a value of this schema, or a value inside it, may be secret.
    fn reaches_secret(&self, schema: &'s Value) -> bool {
        let (mut seen, mut open) = (HashSet::new(), vec![schema]);
        while let Some(schema) = open.pop() {
            let Value::Object(fields) = schema else { continue };
            if !seen.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            if marks_secret(fields) || is_embedded(fields) && !std::ptr::eq(schema, self.root) {
                return true;
            }
            open.extend(parts(fields).map(|(_, part)| part));
            for target in references(fields) {
                let Some(part) = self.referred(target) else { return true };
                open.push(part);
            }
        }
        false
    }

    /// Returns the schema at a reference inside the document.
    fn referred(&self, target: &str) -> Option<&'s Value> {
        let at = target.strip_prefix('#')?;
        self.root.pointer(at)
    }
}

fn references(fields: &Map<String, Value>) -> impl Iterator<Item = &str> {
    ["$ref", "$dynamicRef", "$recursiveRef"].into_iter().filter_map(|key| fields.get(key)?.as_str())
}

/// Returns the schemas inside a schema, with their places. A keyword whose values apply to some properties only counts
/// for all of them.
fn parts(fields: &Map<String, Value>) -> impl Iterator<Item = (KeywordPlace, &Value)> {
    fields.iter().flat_map(|(keyword, value)| {
        let numbered = |n: usize| KeywordPlace::Below(PathStep::Key(n.to_string()));
        let each = || KeywordPlace::Below(PathStep::Each);
        let found: Vec<(KeywordPlace, &Value)> = match (keyword.as_str(), value) {
            ("properties", Value::Object(named)) => {
                let below = |name: &String| KeywordPlace::Below(PathStep::Key(name.clone()));
                named.iter().map(|(name, part)| (below(name), part)).collect()
            }
            ("patternProperties", Value::Object(named)) => named.values().map(|it| (each(), it)).collect(),
            ("prefixItems" | "items", Value::Array(items)) => {
                items.iter().enumerate().map(|(n, part)| (numbered(n), part)).collect()
            }
            (
                "items"
                | "contains"
                | "additionalItems"
                | "unevaluatedItems"
                | "additionalProperties"
                | "unevaluatedProperties",
                part,
            ) => vec![(each(), part)],
            ("allOf" | "anyOf" | "oneOf", Value::Array(items)) => {
                items.iter().map(|it| (KeywordPlace::Here, it)).collect()
            }
            ("if" | "then" | "else" | "not", part) => vec![(KeywordPlace::Here, part)],
            ("dependentSchemas" | "dependencies", Value::Object(named)) => {
                named.values().map(|it| (KeywordPlace::Here, it)).collect()
            }
            _ => Vec::new(),
        };
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(properties: Value) -> SecretPaths {
        SecretPaths::of_schema(&json!({ "type": "object", "properties": properties }))
    }

    fn input(value: Value) -> Input {
        value.as_object().unwrap().clone()
    }

    fn shown(paths: &SecretPaths, value: Value) -> Value {
        json!(paths.shown(&input(value)))
    }

    #[test]
    fn every_keyword_that_leads_to_a_mark_leads_to_a_path() {
        let secret = || json!({ "type": "string", "format": "password" });
        for (properties, expected) in [
            (json!({ "a": secret() }), vec!["/a"]),
            (json!({ "a": { "writeOnly": true } }), vec!["/a"]),
            (json!({ "a": { "writeOnly": false }, "format": { "const": "password" } }), vec![]),
            (json!({ "a/b~": { "properties": { "c": secret() } } }), vec!["/a~1b~0/c"]),
            (json!({ "*": secret() }), vec!["/*"]),
            (json!({ "a": { "items": { "properties": { "b": secret() } } } }), vec!["/a/*/b"]),
            (json!({ "a": { "prefixItems": [{}, secret()] } }), vec!["/a/1"]),
            (json!({ "a": { "items": [{}, secret()], "additionalItems": secret() } }), vec!["/a/1", "/a/*"]),
            (json!({ "a": { "additionalProperties": secret() } }), vec!["/a/*"]),
            (json!({ "a": { "patternProperties": { "^s": secret() } } }), vec!["/a/*"]),
            (json!({ "a": { "unevaluatedProperties": secret() } }), vec!["/a/*"]),
            (json!({ "a": { "allOf": [{ "anyOf": [{ "oneOf": [secret()] }] }] } }), vec!["/a"]),
            (json!({ "a": { "if": {}, "then": { "properties": { "b": secret() } } } }), vec!["/a/b"]),
            (json!({ "a": { "else": { "dependentSchemas": { "x": secret() } } } }), vec!["/a"]),
        ] {
            assert_eq!(paths(properties.clone()).patterns(), expected, "{properties}");
        }
    }

    #[test]
    fn references_are_followed_and_what_is_not_found_or_too_deep_is_secret() {
        let of = |schema: Value| SecretPaths::of_schema(&schema).patterns();
        let defs = json!({ "pin": { "writeOnly": true }, "free": {}, "loop": { "$ref": "#/$defs/loop" } });
        let refers = |target: &str| of(json!({ "properties": { "a": { "$ref": target } }, "$defs": defs }));
        assert_eq!(refers("#/$defs/pin"), ["/a"]);
        assert_eq!(refers("#/$defs/free"), [""; 0]);
        assert_eq!(refers("#/$defs/loop"), [""; 0]);
        assert_eq!(refers("#/$defs/gone"), ["/a"]);
        assert_eq!(refers("https://other.example/schema"), ["/a"]);
        let embedded = json!({ "$id": "https://other.example/s", "$ref": "#/$defs/free" });
        assert_eq!(of(json!({ "properties": { "a": embedded }, "$defs": defs })), ["/a"]);
        // A tree: the secret of each node, and below the bound everything.
        let tree = json!({
            "properties": {
                "pin": { "writeOnly": true }, "name": {}, "next": { "$ref": "#" },
                "plain": { "$ref": "#/$defs/plain" },
            },
            "$defs": { "plain": { "properties": { "more": { "$ref": "#/$defs/plain" } } } },
        });
        let paths = SecretPaths::of_schema(&tree);
        let mut value = json!({ "pin": 1, "name": "n" });
        for _ in 0..40 {
            value = json!({ "pin": 1, "name": "n", "next": value, "plain": { "more": { "more": {} } } });
        }
        let shown = shown(&paths, value);
        assert!(!shown.to_string().contains('1'), "{shown}");
        assert_eq!((&shown["name"], &shown["next"]["next"]["name"]), (&json!("n"), &json!("n")));
        assert_eq!(shown["plain"], json!({ "more": { "more": {} } }));
    }

    #[test]
    fn a_schema_with_too_many_paths_makes_all_inputs_secret_in_a_short_time() {
        let two = |next: &str| json!({ "properties": { "l": { "$ref": next }, "r": { "$ref": next } } });
        let mut defs = Map::new();
        for n in 0..40 {
            defs.insert(format!("d{n}"), two(&format!("#/$defs/d{}", n + 1)));
        }
        defs.insert("d40".to_owned(), json!({ "format": "password" }));
        let paths = SecretPaths::of_schema(&json!({ "$ref": "#/$defs/d0", "$defs": defs }));
        assert_eq!(paths.patterns(), ["/*"]);
        let whole = SecretPaths::of_schema(&json!({ "type": "object", "writeOnly": true }));
        assert_eq!(whole.patterns(), ["/*"]);
    }

    #[test]
    fn a_mask_has_neither_the_type_nor_the_length_of_its_value_and_null_stays() {
        let paths = paths(json!({
            "s": { "writeOnly": true }, "l": { "items": { "properties": { "p": { "writeOnly": true } } } },
            "m": { "additionalProperties": { "writeOnly": true } },
        }));
        let value = json!({ "s": { "deep": [1, 2] }, "l": [{ "p": 7, "q": 7 }, {}, { "p": null }, 3],
                            "m": { "a": true, "b": "" }, "x": "s" });
        let expected = json!({ "s": MASK, "l": [{ "p": MASK, "q": 7 }, {}, { "p": null }, 3],
                               "m": { "a": MASK, "b": MASK }, "x": "s" });
        assert_eq!(shown(&paths, value.clone()), expected);
        assert_eq!(paths.pointers(&input(value)), ["/l/0/p", "/m/a", "/m/b", "/s"]);
        assert_eq!(SecretPaths::of_json(paths.to_json().as_deref()), paths);
        assert_eq!(SecretPaths::of_json(Some("[[1]]")), SecretPaths::everything());
        assert_eq!(SecretPaths::default().to_json(), None);
    }

    #[test]
    fn a_mask_in_an_edit_leaves_the_proposed_value_where_places_correspond() {
        let paths = paths(json!({
            "s": { "writeOnly": true }, "t": {},
            "l": { "items": { "properties": { "p": { "writeOnly": true } } } },
        }));
        let proposed =
            input(json!({ "s": { "k": 1 }, "t": "x", "l": [{ "p": "one" }, { "p": "two", "q": 1 }] }));
        let unmasked = |edit: Value| paths.unmasked(&input(edit), &proposed).map(Value::Object);
        let edit = json!({ "s": MASK, "t": MASK, "l": [{ "p": "new" }, { "p": MASK, "q": 2 }] });
        let expected = json!({ "s": { "k": 1 }, "t": MASK, "l": [{ "p": "new" }, { "p": "two", "q": 2 }] });
        assert_eq!(unmasked(edit), Ok(expected));
        assert_eq!(unmasked(json!({ "l": [{ "p": MASK }] })), Err("/l/0/p".to_owned()), "a shorter list");
        assert_eq!(unmasked(json!({ "l": [{ "p": "a" }] })), Ok(json!({ "l": [{ "p": "a" }] })));
        let none = paths.unmasked(&input(json!({ "s": MASK })), &Input::new());
        assert_eq!(none, Err("/s".to_owned()));
    }
}
