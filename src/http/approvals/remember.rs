//! What an approval covers beyond its call, as requested and as given.

use crate::approvals::Remembered;
use crate::http::body::described::{described, inline};
use crate::http::body::formats::{Hash, Id, Time};
use crate::http::body::strict::ExactNumber;
use crate::http::failure::error::ApiError;
use crate::http::failure::error_code::ErrorCode;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::grant::{GrantRequest, RequestedInputs, ShownGrant};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::tool::input_bounds::{Bound, BoundTest, Folder, InputBounds, Origin, WrongBounds};
use poem_openapi::registry::MetaSchema;
use poem_openapi::types::ParseError;
use poem_openapi::{Enum, Object};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Maximum number of waiting calls that one approval may name.
const WAITING_MAX: usize = 50;
/// Maximum number of uses.
const USES_MAX: u32 = 1_000_000;

/// What an approval covers beyond its call: `"session"`, or an object that says it in facts.
#[derive(Debug)]
pub(in crate::http) enum RememberBody {
    /// All later calls of the tool, and the waiting calls among them.
    Session,
    /// What the object says.
    Scope(Box<RememberScope>),
}

/// What an approval covers beyond its call, as the approver was shown it. Later calls of the tool in the session run
/// without a question if their inputs are covered. Either `inputs` or `when` is required.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RememberScope {
    #[serde(default, deserialize_with = "not_null")]
    inputs: Option<RememberInputs>,
    /// Only inputs that meet all of these conditions. The inputs that the approval runs have to meet them. Each value in
    /// the inputs has to be that of a condition, or of `free`.
    #[oai(validator(max_items = 50))]
    #[serde(default, deserialize_with = "not_null")]
    when: Option<Vec<GrantCondition>>,
    /// With `when`: the arguments that may have any value, as JSON pointers (RFC 6901).
    #[oai(validator(max_items = 50))]
    #[serde(default, deserialize_with = "not_null")]
    free: Option<Vec<String>>,
    /// The time from which no call is covered, by the clock of the database. Absent: until it is revoked.
    #[serde(default, deserialize_with = "not_null")]
    until: Option<Time>,
    /// How many later calls are covered. Absent: any number.
    #[oai(validator(minimum(value = "1"), maximum(value = "1000000")))]
    #[serde(default, deserialize_with = "not_null")]
    uses: Option<u32>,
    /// Waiting calls that are approved with this one, if they are covered and have not changed since they were shown: for
    /// each its id, and its `input_hash` as shown. At most 50. They do not count as uses.
    #[serde(default, deserialize_with = "not_null")]
    waiting: Option<HashMap<String, Hash>>,
}

/// Reads a field that may be absent. Null is not absent here: an approval does not cover more than its request says.
fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Which inputs of later calls are covered: `equal` only those that the approval runs, `any` all, unless the server
/// remembers equal inputs only.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum RememberInputs {
    /// Any inputs.
    Any,
    /// The inputs that the approval runs.
    Equal,
}

/// A condition on an argument: `argument` and exactly one test. An argument that is absent or has another JSON type does
/// not meet it.
#[derive(Debug, Clone, Default, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct GrantCondition {
    /// The argument, as a JSON pointer (RFC 6901) into the inputs.
    argument: String,
    /// A greater number than this one.
    #[serde(default, deserialize_with = "not_null")]
    above: Option<ExactNumber>,
    /// A smaller number than this one.
    #[serde(default, deserialize_with = "not_null")]
    below: Option<ExactNumber>,
    /// This value.
    equal: Option<Value>,
    /// One of these values.
    #[oai(validator(max_items = 50))]
    #[serde(default, deserialize_with = "not_null")]
    r#in: Option<Vec<Value>>,
    /// A path below this folder, without `..` and without characters that some programs decode or expand.
    #[serde(default, deserialize_with = "not_null")]
    under: Option<String>,
    /// An address of this origin, such as `https://api.example.com`.
    #[serde(default, deserialize_with = "not_null")]
    origin: Option<String>,
}

/// What an approval covers beyond its call, as the server remembers it. Absent if the request remembered nothing now.
#[derive(Debug, Object)]
#[oai(rename = "RememberedApproval")]
pub(in crate::http) struct RememberedView {
    /// The id of the grant, to revoke it.
    grant: Id,
    /// The waiting calls that were approved with this one.
    approved: Vec<Id>,
    /// The waiting calls of the request that were not: they have changed since they were shown, are not covered, or do not
    /// wait any more.
    left: Vec<Id>,
}

impl RememberedView {
    pub(in crate::http) fn of(remembered: &Remembered) -> Self {
        let ids = |calls: &[ToolCallId]| calls.iter().map(Id::of).collect();
        Self {
            grant: Id::of(remembered.grant),
            approved: ids(&remembered.approved),
            left: ids(&remembered.left),
        }
    }
}

impl RememberBody {
    pub(in crate::http) fn request(&self) -> Result<GrantRequest, ApiError> {
        match self {
            Self::Session => Ok(GrantRequest::Session),
            Self::Scope(scope) => {
                let wrong = |WrongBounds { place, expected }| {
                    let message = format!("remember{place}: expected {expected}");
                    ApiError::unprocessable(ErrorCode::NotRemembered, message)
                };
                Ok(GrantRequest::Shown(scope.shown().map_err(wrong)?))
            }
        }
    }
}

fn wrong<T>(place: impl Into<String>, expected: impl Into<String>) -> Result<T, WrongBounds> {
    Err(WrongBounds { place: place.into(), expected: expected.into() })
}

impl RememberScope {
    fn shown(&self) -> Result<ShownGrant, WrongBounds> {
        let inputs = match (self.inputs, &self.when) {
            (Some(_), Some(_)) | (None, None) => return wrong("", "either inputs or when"),
            (Some(_), None) if self.free.is_some() => return wrong(".free", "it with when"),
            (Some(RememberInputs::Any), None) => RequestedInputs::Any,
            (Some(RememberInputs::Equal), None) => RequestedInputs::Equal,
            (None, Some(when)) => {
                let bounds = when.iter().enumerate().map(|(n, condition)| condition.bound(n));
                let free = self.free.clone().unwrap_or_default();
                RequestedInputs::Within(InputBounds::new(bounds.collect::<Result<_, _>>()?, free)?)
            }
        };
        let until = match &self.until {
            Some(text) => match Timestamp::of_rfc3339(text) {
                Some(until) => Some(until),
                None => return wrong(".until", "a time as RFC 3339 writes it"),
            },
            None => None,
        };
        if self.uses.is_some_and(|uses| !(1..=USES_MAX).contains(&uses)) {
            return wrong(".uses", format!("1 to {USES_MAX}"));
        }
        // In an order that does not change, so that the calls are approved in the order of their ids.
        let named: BTreeMap<&String, &Hash> = self.waiting.iter().flatten().collect();
        if named.len() > WAITING_MAX {
            return wrong(".waiting", format!("at most {WAITING_MAX} calls"));
        }
        let mut waiting = Vec::with_capacity(named.len());
        for (id, hash) in named {
            match id.parse() {
                Ok(call) => waiting.push((call, hash.to_string())),
                Err(_) => return wrong(".waiting", "the ids of calls, each with its input_hash"),
            }
        }
        Ok(ShownGrant { inputs, until, uses: self.uses, waiting })
    }
}

impl GrantCondition {
    pub(in crate::http) fn of(Bound { argument, test }: &Bound) -> Self {
        let mut condition = Self { argument: argument.clone(), ..Self::default() };
        match test {
            BoundTest::Above(than) => condition.above = Some(ExactNumber(than.clone())),
            BoundTest::Below(than) => condition.below = Some(ExactNumber(than.clone())),
            BoundTest::Equal(value) => condition.equal = Some(value.clone()),
            BoundTest::In(values) => condition.r#in = Some(values.clone()),
            BoundTest::Under(folder) => condition.under = Some(folder.path().to_owned()),
            BoundTest::Origin(origin) => condition.origin = Some(origin.text().to_owned()),
        }
        condition
    }

    fn bound(&self, n: usize) -> Result<Bound, WrongBounds> {
        let Self { argument, above, below, equal, r#in, under, origin } = self.clone();
        let mut tests = [
            above.map(|than| Ok(BoundTest::Above(than.0))),
            below.map(|than| Ok(BoundTest::Below(than.0))),
            equal.map(|value| Ok(BoundTest::Equal(value))),
            r#in.map(|values| Ok(BoundTest::In(values))),
            under.map(|path| match Folder::new(&path) {
                Some(folder) => Ok(BoundTest::Under(folder)),
                None => {
                    wrong(format!(".when[{n}].under"), "the path of a folder, without .. and not the root")
                }
            }),
            origin.map(|text| match Origin::new(&text) {
                Some(origin) => Ok(BoundTest::Origin(origin)),
                None => wrong(format!(".when[{n}].origin"), "an origin, such as https://api.example.com"),
            }),
        ]
        .into_iter()
        .flatten();
        match (tests.next(), tests.next()) {
            (Some(test), None) => Ok(Bound { argument, test: test? }),
            _ => wrong(format!(".when[{n}]"), "exactly one of above, below, equal, in, under, origin"),
        }
    }
}

impl<'de> Deserialize<'de> for RememberBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrObject;

        impl<'de> Visitor<'de> for WordOrObject {
            type Value = RememberBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`session` or an object")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<RememberBody, E> {
                match word {
                    "session" => Ok(RememberBody::Session),
                    other => Err(E::unknown_variant(other, &["session"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<RememberBody, A::Error> {
                let scope = RememberScope::deserialize(MapAccessDeserializer::new(fields))?;
                Ok(RememberBody::Scope(Box::new(scope)))
            }
        }

        deserializer.deserialize_any(WordOrObject)
    }
}

described! {
    RememberBody {
        name: RememberScope::name(),
        schema: {
            // A reference cannot be nullable, so null is one of the words.
            let words = MetaSchema {
                enum_items: vec![json!("session"), Value::Null],
                nullable: true,
                ..MetaSchema::new("string")
            };
            inline(MetaSchema { any_of: vec![inline(words), RememberScope::schema_ref()], ..MetaSchema::ANY })
        },
        register: |registry| RememberScope::register(registry),
        parse: |value| serde_json::from_value(value.unwrap_or_default()).map_err(ParseError::custom),
        json: |body| match body {
            Self::Session => Some(json!("session")),
            Self::Scope(scope) => scope.to_json(),
        },
    }
}
