//! The words of the columns, besides those of the domain. The CHECKs and indexes of the migrations have the same words,
//! and so do the SQL texts of this crate that a partial index requires.

use holdpoint_core::vocabulary;
use holdpoint_core::vocabulary::Vocabulary;
use sea_orm::sea_query::SimpleExpr;

vocabulary! {
    /// The kind of a text about a call that the model read.
    pub enum SealKind {
        /// The call's answer.
        Answer = "answer",
        /// A text in place of an answer that does not exist yet.
        Placeholder = "placeholder",
        /// A later outcome.
        Note = "note",
    }
}

/// Returns the word as a literal of the statement instead of a parameter. The databases use a partial index
/// only if they see the word that the index names.
pub(crate) fn literal(value: impl Vocabulary) -> SimpleExpr {
    SimpleExpr::Constant(value.word().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_core::run::RunStatus;
    use sea_orm::DbBackend;
    use sea_orm::sea_query::Query;

    #[test]
    fn a_seal_keeps_its_word() {
        assert_eq!(SealKind::WORDS, ["answer", "placeholder", "note"]);
    }

    #[test]
    fn a_literal_is_in_the_text_of_the_statement() {
        let query = Query::select().expr(literal(RunStatus::Running)).to_owned();
        for database in [DbBackend::Sqlite, DbBackend::Postgres] {
            assert_eq!(database.build(&query).sql, "SELECT 'running'");
        }
    }
}
