//! No two modules import each other, through others either. Such modules cannot be read, tested or moved alone.
//!
//! A module may use its parent and its children: `mod.rs` is the face of its folder. Tests may use everything.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Module, Names, UsedPath};

/// The circles among the files of a crate, each as its modules in order.
pub(super) fn circles(files: &[Names]) -> Vec<Vec<String>> {
    let modules: BTreeSet<&Module> = files.iter().map(|file| &file.module).collect();
    let mut graph = BTreeMap::new();
    for Names { module, paths, .. } in files {
        let used = paths.iter().filter(|path| !path.for_tests).filter_map(|path| target(&modules, path));
        let others = used.filter(|target| !target.starts_with(module) && !module.starts_with(target));
        graph.insert(module.clone(), others.collect::<BTreeSet<Module>>());
    }
    strongly_connected(&graph)
}

/// The module that a path leads to or into: the longest beginning that is one.
fn target(modules: &BTreeSet<&Module>, path: &UsedPath) -> Option<Module> {
    let mut beginning = path.base.clone();
    beginning.extend(path.rest.iter().map(|word| word.name.clone()));
    while !beginning.is_empty() && !modules.contains(&beginning) {
        beginning.pop();
    }
    (!beginning.is_empty()).then_some(beginning)
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
    use super::super::names::module_of;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files.iter().map(|(path, text)| Names::read(module_of(path), text).unwrap());
        circles(&files.collect::<Vec<_>>())
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
