//! `cargo xtask features`: the library without its default features, and how many crates each set of features costs.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, run};

/// A set of features, and at most this many crates of others in its build.
struct FeatureSet {
    name: &'static str,
    args: &'static [&'static str],
    crates_max: usize,
}

const SETS: [FeatureSet; 2] = [
    FeatureSet { name: "default features", args: &[], crates_max: 385 },
    FeatureSet { name: "no default features", args: &["--no-default-features"], crates_max: 325 },
];

pub(crate) fn check(root: &Path, args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("`cargo xtask features` takes no arguments");
    }
    for set in &SETS {
        let mut command =
            cargo(root, &["tree", "-p", "holdpoint", "-e", "normal,build", "--prefix", "none", "--locked"]);
        let tree = command.args(set.args).output().context("could not run cargo tree")?;
        if !tree.status.success() {
            bail!("cargo tree failed: {}", String::from_utf8_lossy(&tree.stderr));
        }
        let crates = crates_of_others(&String::from_utf8_lossy(&tree.stdout));
        println!("{}: {crates} crates, at most {}", set.name, set.crates_max);
        if crates > set.crates_max {
            bail!("{}: {crates} crates are more than {}", set.name, set.crates_max);
        }
    }
    let clippy = ["clippy", "-p", "holdpoint", "--lib", "--no-default-features", "--locked"];
    run(cargo(root, &clippy).args(["--", "-D", "warnings"]))
}

/// Returns the number of crates in the lines of `cargo tree`, without those of this workspace, which have a path.
fn crates_of_others(tree: &str) -> usize {
    let crates = tree.lines().map(|line| line.trim_end_matches(" (*)").trim_end_matches(" (proc-macro)"));
    crates.filter(|line| !line.is_empty() && !line.contains('/')).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::crates_of_others;

    #[test]
    fn each_version_of_a_crate_counts_once_and_those_of_the_workspace_do_not() {
        let tree = "holdpoint v0.1.0 (/src/holdpoint)\nserde v1.0.2\nserde_derive v1.0.2 (proc-macro)\nserde v1.0.2 (*)\nsyn v2.0.1\nsyn v3.0.1\n";
        assert_eq!(crates_of_others(tree), 4);
    }
}
