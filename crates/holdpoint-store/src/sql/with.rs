//! Statements of several parts: `WITH name AS (part), … query`.

use sea_orm::DbErr;
use sea_orm::sea_query::error::Error;
use sea_orm::sea_query::{
    CommonTableExpression, IntoIden, SelectStatement, SubQueryStatement, WithClause, WithQuery,
};

/// Returns the query with its parts, each under its name. It moves the parts. The builders of sea-query, as a chain, clone
/// each of them twice.
pub(crate) fn with_parts<N: IntoIden>(
    parts: impl IntoIterator<Item = (N, SubQueryStatement)>,
    query: SelectStatement,
) -> WithQuery {
    let mut clause = WithClause::new();
    for (name, part) in parts {
        let mut named = CommonTableExpression::new();
        named.table_name(name).query(part);
        clause.cte(named);
    }
    let mut with = WithQuery::new();
    with.with_clause(clause).query(query);
    with
}

/// Converts the error of a statement whose parts do not fit.
pub(crate) fn not_built(error: Error) -> DbErr {
    DbErr::Custom(error.to_string())
}
