//! No two modules import each other, through others either. Such modules cannot be read, tested or moved alone.
//!
//! A module may use its parent and its children: `mod.rs` is the face of its folder.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Path, UseTree};

/// A module, as its path from the root of the crate: `["http", "error"]`. The root is the empty path.
type Module = Vec<String>;

/// The circles among these files of `src`, each as its modules in order.
pub(super) fn circles(files: &BTreeMap<String, String>) -> Vec<Vec<String>> {
    let modules: BTreeMap<Module, &String> =
        files.iter().map(|(path, text)| (module_of(path), text)).collect();
    let mut graph = BTreeMap::new();
    for (module, text) in &modules {
        let mut uses = Uses { module: module.clone(), paths: Vec::new() };
        // What does not parse does not compile, and another step says so.
        if let Ok(file) = syn::parse_file(text) {
            uses.visit_file(&file);
        }
        let targets = uses.paths.iter().filter_map(|path| target(&modules, path));
        let others = targets.filter(|target| !target.starts_with(module) && !module.starts_with(target));
        graph.insert(module.clone(), others.collect::<BTreeSet<Module>>());
    }
    strongly_connected(&graph)
}

/// `http/error.rs` is `http::error`, and `http/mod.rs` is `http`.
fn module_of(path: &str) -> Module {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    if matches!(path, "lib" | "main" | "mod") {
        Vec::new()
    } else {
        path.split('/').map(str::to_owned).collect()
    }
}

/// The module that a path from the root leads to or into: the longest beginning that is one.
fn target(modules: &BTreeMap<Module, &String>, path: &[String]) -> Option<Module> {
    let mut beginnings = (1..=path.len()).rev().filter_map(|length| path.get(..length));
    beginnings.find(|beginning| modules.contains_key(*beginning)).map(<[String]>::to_vec)
}

/// The paths that a file names, from the root of the crate.
struct Uses {
    module: Module,
    paths: Vec<Vec<String>>,
}

impl Uses {
    fn add(&mut self, segments: &[String]) {
        let mut base = self.module.clone();
        let mut rest = segments;
        match rest.first().map(String::as_str) {
            Some("crate") => {
                base.clear();
                rest = rest.get(1..).unwrap_or_default();
            }
            Some("self") => rest = rest.get(1..).unwrap_or_default(),
            _ => {}
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            base.pop();
            rest = rest.get(1..).unwrap_or_default();
        }
        base.extend(rest.iter().cloned());
        self.paths.push(base);
    }

    fn add_tree(&mut self, tree: &UseTree, before: &[String]) {
        match tree {
            UseTree::Path(path) => {
                self.add_tree(&path.tree, &[before, &[path.ident.to_string()]].concat());
            }
            UseTree::Name(name) => self.add(&[before, &[name.ident.to_string()]].concat()),
            UseTree::Rename(rename) => self.add(&[before, &[rename.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, before)),
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        // Tests may look at everything.
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_tree(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.add(&segments);
        }
        visit::visit_path(self, path);
    }
}

/// Whether this is compiled for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// The sets of modules that reach each other and themselves.
fn strongly_connected(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let reaches = |from: &Module, to: &Module| reach.get(from).is_some_and(|found| found.contains(to));
    let mut circles = BTreeSet::new();
    for module in graph.keys().filter(|module| reaches(module, module)) {
        let circle = graph.keys().filter(|other| reaches(module, other) && reaches(other, module));
        circles.insert(circle.map(|module| module.join("::")).collect::<Vec<_>>());
    }
    circles.into_iter().collect()
}

fn reachable<'a>(graph: &'a BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Module> = graph.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(graph.get(module).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        circles(&files)
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let a = "use super::b::{self, B};";
        let b = "fn f() { crate::x::a::g() }";
        assert_eq!(found(&[("x/mod.rs", ""), ("x/a.rs", a), ("x/b.rs", b)]), [["x::a", "x::b"]]);
    }

    #[test]
    fn a_circle_of_three_is_found_through_a_file_between() {
        let files =
            [("a.rs", "use crate::b;"), ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::a::f as g;")];
        assert_eq!(found(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn a_module_and_its_face_and_tests_are_no_circle() {
        let face = "mod a; use a::A; pub use a::B;";
        let a = "use super::C; #[cfg(test)] mod tests { use crate::y::Y; }";
        assert!(found(&[("x/mod.rs", face), ("x/a.rs", a), ("y.rs", "use crate::x::a::A;")]).is_empty());
    }
}
