//! The tables that a hold round writes, on Postgres: their CHECKs are one trigger, and they have no foreign keys.
//!
//! Postgres parses the stored text of each CHECK again for every statement that writes to its table, which takes longer
//! than the write itself. The function of a trigger is parsed once in a session. A foreign key looks up and locks a row
//! for each row that refers to it, here mostly one that the same transaction has written.

use std::fmt::Write as _;

/// The tables of a round.
const ROUND_TABLES: [&str; 7] =
    ["threads", "messages", "message_steps", "runs", "tool_calls", "decisions", "sent_answers"];

/// The statements for a table of a round.
pub(super) struct RoundTable {
    /// The statement that creates the table.
    pub(super) table: String,
    /// The statement that creates the function of the trigger.
    pub(super) function: String,
    /// The statement that creates the trigger. It comes after the other guards in the order of their names, as CHECKs do.
    pub(super) trigger: String,
}

/// Returns the statements for a table of a round, if this statement creates one. The statement has no CHECK beside a column.
pub(super) fn round_table(statement: &str) -> Option<RoundTable> {
    let created = |table: &&str| statement.contains(&format!("CREATE TABLE {table} ("));
    let table = ROUND_TABLES.into_iter().find(created)?;
    let (_, body) = statement.split_once(&format!("CREATE TABLE {table} ("))?;
    let body = body.trim_end().strip_suffix(");")?;
    let body: Vec<_> = body.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let body = body.join("\n");
    let items = split(&body);
    let (checks, others): (Vec<&str>, Vec<&str>) =
        items.into_iter().map(str::trim).partition(|item| item.starts_with("CHECK ("));
    let others = others.into_iter().filter(|item| !item.starts_with("FOREIGN KEY ("));
    let others: Vec<_> = others.map(|item| item.split(" REFERENCES ").next().unwrap_or(item)).collect();
    let is_column = |item: &&&str| item.starts_with(|first: char| first.is_ascii_lowercase());
    let columns: Vec<_> =
        others.iter().filter(is_column).filter_map(|item| item.split_whitespace().next()).collect();
    let checks: Vec<_> = checks
        .into_iter()
        .filter_map(|check| check.strip_prefix("CHECK (")?.strip_suffix(')'))
        .map(|check| check.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    Some(RoundTable {
        table: format!("CREATE TABLE {table} ({});", others.join(", ")),
        function: function(table, &columns, &checks),
        trigger: format!(
            "CREATE TRIGGER {table}_valid BEFORE INSERT OR UPDATE ON {table}
    FOR EACH ROW EXECUTE FUNCTION holdpoint_{table}_valid();"
        ),
    })
}

/// Returns the function that raises what a broken CHECK raises. One expression of all CHECKs is cheaper than one each, so
/// only a row that breaks one is checked for which one it is. As in a CHECK, unknown counts as true.
fn function(table: &str, columns: &[&str], checks: &[String]) -> String {
    let mut all = String::new();
    let mut each = String::new();
    for check in checks {
        let (of_new, text) = (of_new_row(check, columns), check.replace('\'', "''"));
        let and = if all.is_empty() { "" } else { "\n        AND " };
        let _infallible = write!(all, "{and}({of_new}) IS NOT FALSE");
        let _infallible = write!(
            each,
            "\n    IF ({of_new}) IS FALSE THEN
        RAISE check_violation USING MESSAGE = 'new row for relation \"{table}\" violates check constraint ({text})'; END IF;"
        );
    }
    format!(
        "CREATE FUNCTION holdpoint_{table}_valid() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF {all}
    THEN RETURN NEW; END IF;{each}
    RETURN NEW;
END $$;"
    )
}

/// Names the new row before each column of an expression, but not in its texts.
fn of_new_row(expression: &str, columns: &[&str]) -> String {
    let mut out = String::with_capacity(expression.len() * 2);
    for (n, part) in expression.split('\'').enumerate() {
        if n > 0 {
            out.push('\'');
        }
        if n % 2 == 1 {
            out.push_str(part);
            continue;
        }
        let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut rest = part;
        while let Some(start) = rest.find(is_in_word) {
            let (before, from) = rest.split_at(start);
            let (word, after) = from.split_at(from.find(|c| !is_in_word(c)).unwrap_or(from.len()));
            out.push_str(before);
            if columns.contains(&word) {
                out.push_str("NEW.");
            }
            out.push_str(word);
            rest = after;
        }
        out.push_str(rest);
    }
    out
}

/// Splits a list at its commas, but not within parentheses and texts.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut is_text, mut start, mut items) = (0_usize, false, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '\'' => is_text = !is_text,
            _ if is_text => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.extend(list.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    items.extend(list.get(start..));
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "-- A table.
CREATE TABLE runs (
    state   TEXT NOT NULL,
    -- It's a reason.
    reason  TEXT UNIQUE REFERENCES reasons (reason),
    UNIQUE (state, reason),
    FOREIGN KEY (state, reason) REFERENCES reasons (state, reason),
    CHECK (state IN ('state', 'it, or (not')),
    CHECK ((reason IS NULL)
           = (state = 'state'))
);";

    #[test]
    fn the_table_keeps_all_but_its_checks_and_its_foreign_keys() {
        let RoundTable { table, trigger, .. } = round_table(TABLE).unwrap();
        assert_eq!(
            table,
            "CREATE TABLE runs (state   TEXT NOT NULL, reason  TEXT UNIQUE, UNIQUE (state, reason));"
        );
        assert!(
            trigger.starts_with("CREATE TRIGGER runs_valid BEFORE INSERT OR UPDATE ON runs"),
            "{trigger}"
        );
        assert!(round_table(&TABLE.replace("runs", "others")).is_none());
    }

    #[test]
    fn the_function_has_each_check_about_the_new_row() {
        let RoundTable { function, .. } = round_table(TABLE).unwrap();
        let all = "    IF (NEW.state IN ('state', 'it, or (not')) IS NOT FALSE
        AND ((NEW.reason IS NULL) = (NEW.state = 'state')) IS NOT FALSE
    THEN RETURN NEW; END IF;";
        assert!(function.contains(all), "{function}");
        let message = r#"'new row for relation "runs" violates check constraint ((reason IS NULL) = (state = ''state''))'"#;
        assert!(function.contains(message), "{function}");
    }
}
