//! The type of a key decides what its value may be, from each source.

use super::Deployment;

#[test]
fn a_value_of_another_type_is_named_with_its_source() {
    let deployment = Deployment::with_file("server.docs = \"maybe\"");
    deployment
        .migrate(&[], &[])
        .refused_for("server.docs: expected true or false, not \"maybe\", in holdpoint.toml");
    let variables = [("HOLDPOINT_SERVER__DOCS", "yes"), ("HOLDPOINT_LIMITS__BATCH", "many")];
    deployment
        .migrate(&[], &variables)
        .refused_for("limits.batch: expected an integer, not \"many\", in the environment");
    for (toml, printed) in [
        ("database = 5", "database: expected a table, not a number, in holdpoint.toml"),
        ("limits.batch = true", "limits.batch: true and false are not allowed here"),
        ("limits.batch = 1.5", "limits.batch: fractions are not allowed here"),
        (
            "limits.turns_per_user = 4294967296",
            "limits.turns_per_user: expected an integer of at most 4294967295",
        ),
        ("tools.pay.approvals = -1", "tools.pay.approvals: expected an integer of at least 0, not -1"),
        ("[server]\nbind = 1\nbind = 2", "holdpoint.toml: line 3, column 1: duplicate key"),
    ] {
        Deployment::with_file(toml).migrate(&[], &[]).refused_for(printed);
    }
}

#[test]
fn a_switch_in_the_environment_is_a_word() {
    for (word, is_on) in [
        ("true", true),
        ("1", true),
        ("yes", true),
        ("ON", true),
        ("false", false),
        ("0", false),
        ("no", false),
        ("off", false),
    ] {
        let printed = Deployment::new().in_force(&[("HOLDPOINT_TOOLS__DEMO", word)]);
        assert!(printed.contains(&format!("demo = {is_on}")), "{word}: {printed}");
    }
}
