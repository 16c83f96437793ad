//! Bounds of inputs: the conditions under which a remembered approval covers a call, in the form of a rule's, but read
//! strictly.
//!
//! A rule only tightens, so a condition that cannot be evaluated holds there. Bounds let calls run, so here it does
//! not: an argument that is absent, has another JSON type or cannot be read in one way only is outside the bounds. So
//! is a value that no bound and no free argument names.

use crate::json::canonical::{canonical_json, compare_numbers, same};
use crate::json::pointer;
use crate::tool::input::Input;
use serde_json::{Number, Value};
use url::Url;

/// Maximum number of conditions, and of free arguments.
const BOUNDS_MAX: usize = 50;
/// Maximum length of all arguments and values together, in bytes.
const BYTES_MAX: usize = 16 * 1024;

/// The conditions that inputs have to meet, and the arguments that may have any value.
#[derive(Debug, Clone, PartialEq)]
pub struct InputBounds {
    when: Vec<Bound>,
    free: Vec<String>,
}

/// A condition on one argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// The argument: a JSON pointer (RFC 6901) into the inputs.
    pub argument: String,
    /// The test of the argument.
    pub test: BoundTest,
}

/// A test of an argument.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundTest {
    /// The argument is a greater number.
    Above(Number),
    /// The argument is a smaller number.
    Below(Number),
    /// The argument is this value.
    Equal(Value),
    /// The argument is a value of the list.
    In(Vec<Value>),
    /// The argument is a path below this folder.
    Under(Folder),
    /// The argument is an address of this origin.
    Origin(Origin),
}

/// A folder, as the parts of its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(String);

/// An origin (RFC 6454) of the schemes http and https, such as `https://api.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// The reason why bounds are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongBounds {
    /// The place in the bounds, such as `.when[0].argument`.
    pub place: String,
    /// What was expected there.
    pub expected: String,
}

impl WrongBounds {
    fn new(place: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place: place.into(), expected: expected.into() }
    }
}

impl InputBounds {
    /// Creates bounds.
    pub fn new(when: Vec<Bound>, free: Vec<String>) -> Result<Self, WrongBounds> {
        for (place, count) in [(".when", when.len()), (".free", free.len())] {
            if count > BOUNDS_MAX {
                return Err(WrongBounds::new(place, format!("at most {BOUNDS_MAX}")));
            }
        }
        let of_when =
            when.iter().enumerate().map(|(n, bound)| (format!(".when[{n}].argument"), &bound.argument));
        let of_free = free.iter().enumerate().map(|(n, argument)| (format!(".free[{n}]"), argument));
        for (place, argument) in of_when.chain(of_free) {
            if !argument.starts_with('/') {
                return Err(WrongBounds::new(place, "a JSON pointer that begins with /"));
            }
        }
        let bytes = when.iter().map(Bound::bytes).chain(free.iter().map(String::len)).sum::<usize>();
        if bytes > BYTES_MAX {
            return Err(WrongBounds::new(".when", format!("conditions of at most {BYTES_MAX} bytes")));
        }
        Ok(Self { when, free })
    }

    /// Returns the conditions.
    pub fn when(&self) -> &[Bound] {
        &self.when
    }

    /// Returns the arguments that may have any value, as JSON pointers.
    pub fn free(&self) -> &[String] {
        &self.free
    }

    /// Whether inputs are within the bounds.
    pub fn contain(&self, input: &Input) -> bool {
        self.check(input).is_ok()
    }

    /// Checks that inputs are within the bounds, and that no condition is about a secret: people read the conditions.
    /// `shown` are the inputs as people read them.
    pub fn check_shown(&self, input: &Input, shown: &Input) -> Result<(), WrongBounds> {
        for (n, Bound { argument, .. }) in self.when.iter().enumerate() {
            if pointer::find(input, argument) != pointer::find(shown, argument) {
                return Err(WrongBounds::new(
                    format!(".when[{n}]"),
                    format!("{argument}, which is secret, in free"),
                ));
            }
        }
        self.check(input)
    }

    /// Checks that inputs are within the bounds.
    fn check(&self, input: &Input) -> Result<(), WrongBounds> {
        for (n, Bound { argument, test }) in self.when.iter().enumerate() {
            if !pointer::find(input, argument).is_some_and(|found| test.holds(found)) {
                return Err(WrongBounds::new(
                    format!(".when[{n}]"),
                    "a condition that the inputs of the call meet",
                ));
            }
        }
        let mut outside = None;
        for (key, value) in input {
            self.find_outside(&pointer::join("", key), value, &mut outside);
        }
        match outside {
            Some(argument) => {
                Err(WrongBounds::new(".when", format!("a condition on {argument}, or {argument} in free")))
            }
            None => Ok(()),
        }
    }

    /// Finds the first value that neither a condition nor a free argument names.
    fn find_outside(&self, place: &str, value: &Value, outside: &mut Option<String>) {
        let names = |argument: &str| argument == place;
        if outside.is_some()
            || self.when.iter().any(|bound| names(&bound.argument))
            || self.free.iter().any(|free| names(free))
        {
            return;
        }
        match value {
            Value::Array(items) if !items.is_empty() => {
                for (n, item) in items.iter().enumerate() {
                    self.find_outside(&format!("{place}/{n}"), item, outside);
                }
            }
            Value::Object(fields) if !fields.is_empty() => {
                for (key, value) in fields {
                    self.find_outside(&pointer::join(place, key), value, outside);
                }
            }
            _ => *outside = Some(place.to_owned()),
        }
    }
}

impl Bound {
    fn bytes(&self) -> usize {
        let value = match &self.test {
            BoundTest::Above(_) | BoundTest::Below(_) => 0,
            BoundTest::Equal(value) => canonical_json(value).len(),
            BoundTest::In(values) => values.iter().map(|value| canonical_json(value).len()).sum(),
            BoundTest::Under(Folder(text)) | BoundTest::Origin(Origin(text)) => text.len(),
        };
        self.argument.len().saturating_add(value)
    }
}

impl BoundTest {
    fn holds(&self, found: &Value) -> bool {
        match (self, found) {
            (Self::Above(than), Value::Number(number)) => compare_numbers(number, than).is_gt(),
            (Self::Below(than), Value::Number(number)) => compare_numbers(number, than).is_lt(),
            (Self::Equal(value), found) => same(found, value),
            (Self::In(values), found) => values.iter().any(|value| same(found, value)),
            (Self::Under(folder), Value::String(path)) => folder.contains(path),
            (Self::Origin(origin), Value::String(address)) => origin.is_of(address),
            (Self::Above(_) | Self::Below(_) | Self::Under(_) | Self::Origin(_), _) => false,
        }
    }
}

impl Folder {
    /// Returns the folder with this path, which has to have one reading only. The root is no folder.
    pub fn new(path: &str) -> Option<Self> {
        let parts = parts(path)?;
        (!parts.is_empty()).then(|| Self(path.to_owned()))
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Whether the path leads to something below the folder. The folder itself is not below it.
    fn contains(&self, path: &str) -> bool {
        let (Some(folder), Some(parts)) = (parts(&self.0), parts(path)) else { return false };
        let is_absolute = |path: &str| path.starts_with('/');
        is_absolute(&self.0) == is_absolute(path) && parts.len() > folder.len() && parts.starts_with(&folder)
    }
}

/// Returns the parts of a path that every program reads alike: without `..`, without separators of other systems and
/// without characters that some programs decode or expand.
fn parts(path: &str) -> Option<Vec<&str>> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\\' | '%' | '$' | '*' | '?');
    if path.starts_with('~') || !path.chars().all(is_plain) {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.iter().any(|part| part.trim() == "..")).then_some(parts)
}

impl Origin {
    /// Returns the origin of this text: `http://` or `https://`, a host, and a port if it is not the usual one.
    pub fn new(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let origin = url.origin().ascii_serialization();
        (text == origin).then_some(Self(origin))
    }

    /// Returns the origin as a text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether every program reads this address as one of the origin: after the text of the origin the path begins at
    /// once, so neither a user name nor a longer host can follow.
    fn is_of(&self, address: &str) -> bool {
        let is_plain = address.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '\\');
        let rest = address.strip_prefix(&self.0).filter(|_| is_plain);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
            && Url::parse(address).is_ok_and(|url| url.origin().ascii_serialization() == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bound(argument: &str, test: BoundTest) -> Bound {
        Bound { argument: argument.to_owned(), test }
    }

    fn one(test: BoundTest) -> InputBounds {
        InputBounds::new(vec![bound("/x", test)], Vec::new()).unwrap()
    }

    fn contains(bounds: &InputBounds, x: Value) -> bool {
        bounds.contain(json!({ "x": x }).as_object().unwrap())
    }

    #[test]
    fn a_path_is_below_a_folder_only_if_every_program_reads_it_so() {
        let bounds = one(BoundTest::Under(Folder::new("/srv/data").unwrap()));
        for path in ["/srv/data/a", "/srv//data/./a/b.txt", "//srv/data/a", "/srv/data/..a", "/srv/data/a..b"]
        {
            assert!(contains(&bounds, json!(path)), "{path}");
        }
        for path in [
            "/srv/data",
            "/srv/data/",
            "/srv/data/.",
            "/srv/database",
            "/srv/data/../etc",
            "/srv/data/a/../../b",
            "/srv/data/.. /x",
            "srv/data/a",
            "/SRV/data/a",
            "/srv/data/%2e%2e/x",
            "/srv/data\\..\\x",
            "~/srv/data/a",
            "/srv/data/$HOME",
            "/srv/data/*",
            "/srv/data/a\0",
            "/srv/data/a\nb",
            "",
            "/",
        ] {
            assert!(!contains(&bounds, json!(path)), "{path}");
        }
        let relative = one(BoundTest::Under(Folder::new("reports").unwrap()));
        assert!(contains(&relative, json!("reports/a")) && contains(&relative, json!("./reports/a")));
        assert!(!contains(&relative, json!("/reports/a")) && !contains(&relative, json!(["reports/a"])));
        for folder in ["", "/", ".", "/..", "a/../b", "~/a"] {
            assert_eq!(Folder::new(folder), None, "{folder}");
        }
    }

    #[test]
    fn an_address_is_of_an_origin_only_if_every_program_reads_it_so() {
        let bounds = one(BoundTest::Origin(Origin::new("https://api.example.com").unwrap()));
        for address in
            ["https://api.example.com", "https://api.example.com/a?b#c", "https://api.example.com?x=@y"]
        {
            assert!(contains(&bounds, json!(address)), "{address}");
        }
        for address in [
            "http://api.example.com/",
            "https://api.example.com.evil.example/",
            "https://api.example.com:8443/",
            "https://api.example.com@evil.example/",
            "https://api.example.com:x@evil.example/",
            "//api.example.com/",
            "https://api.example.com\\@evil.example/",
            "https://api.example.com\t.evil.example/",
            " https://api.example.com/",
            "HTTPS://api.example.com/",
            "https://api.example.com\u{ff0e}evil.example/",
            "api.example.com",
            "",
        ] {
            assert!(!contains(&bounds, json!(address)), "{address}");
        }
        for origin in [
            "",
            "example.com",
            "https://example.com/",
            "https://EXAMPLE.com",
            "ftp://example.com",
            "https://a@b.example",
        ] {
            assert_eq!(Origin::new(origin), None, "{origin}");
        }
    }

    #[test]
    fn a_value_of_another_type_or_without_a_name_is_outside_the_bounds() {
        let number = |n: i64| Number::from(n);
        for (test, inside, outside) in [
            (
                BoundTest::Below(number(10)),
                vec![json!(9), json!(-1), json!(9.5)],
                vec![json!(10), json!("9"), json!(null), json!([9])],
            ),
            (BoundTest::Above(number(10)), vec![json!(11)], vec![json!(10), json!("11"), json!(true)]),
            (BoundTest::Equal(json!("a")), vec![json!("a")], vec![json!("A"), json!(["a"]), json!(0)]),
            (BoundTest::Equal(json!(1)), vec![json!(1), json!(1.0)], vec![json!("1"), json!(true)]),
            (
                BoundTest::In(vec![json!("a"), json!(2)]),
                vec![json!("a"), json!(2)],
                vec![json!("2"), json!(null)],
            ),
        ] {
            let bounds = one(test);
            for value in inside {
                assert!(contains(&bounds, value.clone()), "{bounds:?} {value}");
            }
            for value in outside {
                assert!(!contains(&bounds, value.clone()), "{bounds:?} {value}");
            }
            assert!(!bounds.contain(&Input::new()), "absent");
        }
        let bounds = InputBounds::new(
            vec![bound("/to/id", BoundTest::Equal(json!(7)))],
            vec!["/note".to_owned(), "/lines/0".to_owned()],
        )
        .unwrap();
        let fits = |input: Value| bounds.check(input.as_object().unwrap()).map_err(|wrong| wrong.expected);
        assert_eq!(fits(json!({ "to": { "id": 7 }, "note": { "any": [1] }, "lines": [{ "a": 1 }] })), Ok(()));
        let missing = |argument: &str| Err(format!("a condition on {argument}, or {argument} in free"));
        assert_eq!(fits(json!({ "to": { "id": 7, "x": 1 } })), missing("/to/x"));
        assert_eq!(fits(json!({ "to": { "id": 7 }, "lines": [1, 2] })), missing("/lines/1"));
        assert_eq!(fits(json!({ "to": { "id": 7 }, "e": {} })), missing("/e"));
    }

    #[test]
    fn bounds_have_a_size_and_their_arguments_are_pointers() {
        let wrong = |when: Vec<Bound>, free: Vec<String>| InputBounds::new(when, free).unwrap_err().place;
        let equals = |value: Value| BoundTest::Equal(value);
        assert_eq!(wrong(vec![bound("x", equals(json!(1)))], vec![]), ".when[0].argument");
        assert_eq!(wrong(vec![], vec!["/a".to_owned(), String::new()]), ".free[1]");
        assert_eq!(wrong(vec![], vec!["/a".to_owned(); 51]), ".free");
        assert_eq!(wrong(vec![bound("/x", equals(json!("a".repeat(16 * 1024))))], vec![]), ".when");
    }
}
