//! Facts about paths, by the templates of the OpenAPI document, such as `/threads/{thread_id}`.

/// A value for each template.
#[derive(Debug)]
pub(in crate::http) struct Templates<T>(Vec<(Vec<Segment>, T)>);

#[derive(Debug)]
enum Segment {
    Word(String),
    Any,
}

impl<T> Templates<T> {
    pub(in crate::http) fn of<'a>(values: impl Iterator<Item = (&'a str, T)>) -> Self {
        Self(values.map(|(template, value)| (segments(template), value)).collect())
    }

    /// Returns the value of the template that this path matches. A path under `/api` matches like the same
    /// path without `/api`.
    pub(in crate::http) fn at(&self, path: &str) -> Option<&T> {
        let path: Vec<&str> = without_api(path).split('/').collect();
        let fits = |pattern: &[Segment]| {
            pattern.len() == path.len()
                && pattern.iter().zip(&path).all(|(segment, name)| match segment {
                    Segment::Word(word) => word == name,
                    Segment::Any => true,
                })
        };
        // A literal segment takes precedence over a parameter.
        let words = |pattern: &[Segment]| pattern.iter().filter(|it| matches!(it, Segment::Word(_))).count();
        let found = self.0.iter().filter(|(pattern, _)| fits(pattern));
        found.max_by_key(|(pattern, _)| words(pattern)).map(|(_, value)| value)
    }
}

/// Returns the path as the document has it.
pub(in crate::http) fn without_api(path: &str) -> &str {
    path.strip_prefix("/api").filter(|rest| rest.starts_with('/')).unwrap_or(path)
}

fn segments(path: &str) -> Vec<Segment> {
    let segment =
        |name: &str| if name.starts_with('{') { Segment::Any } else { Segment::Word(name.to_owned()) };
    path.split('/').map(segment).collect()
}
