//! The search among held calls by a text.

use crate::entity::{thread, tool_call};
use crate::sql::newest::{Branch, in_order};
use crate::sql::words::literal;
use holdpoint_core::Principal;
use holdpoint_core::call::StateKind;
use sea_orm::sea_query::{Expr, ExprTrait, Func, LikeExpr, Query, SelectStatement, SimpleExpr};
use sea_orm::{ColumnTrait, Condition, EntityName, Iterable};
use std::collections::BTreeSet;

/// The number of held calls of one state, the newest of the tenant, in which a search looks. No index finds a part of a
/// text, so a search reads each of them.
const SEARCHED_MAX: u64 = 5000;

/// Matches the calls that have this text in the name of their tool, the id of their user, the title of their
/// thread, or their own id. Every character of the text is literal.
pub(crate) fn has_text(text: &str) -> Condition {
    // SQLite makes only the letters of ASCII small, Postgres all letters.
    let patterns: BTreeSet<String> =
        [text.to_lowercase(), text.to_ascii_lowercase()].map(|text| format!("%{}%", escaped(&text))).into();
    let columns = [
        tool_call::Column::Name.into_expr(),
        thread::Column::UserId.into_expr(),
        thread::Column::Title.into_expr(),
        tool_call::Column::ToolCallId.into_expr(),
    ];
    let like = |column: SimpleExpr, pattern: &String| {
        Expr::from(Func::lower(column)).like(LikeExpr::new(pattern.clone()).escape('\\'))
    };
    columns.into_iter().fold(Condition::any(), |any, column| {
        patterns.iter().fold(any, |any, pattern| any.add(like(column.clone(), pattern)))
    })
}

/// Selects the newest held calls of the tenant in this state.
pub(crate) fn searched(principal: &Principal, state: StateKind) -> SelectStatement {
    let mut newest = Query::select()
        .columns(tool_call::Column::iter())
        .from(tool_call::Entity.table_ref())
        .and_where(tool_call::Column::TenantId.eq(&principal.tenant_id))
        .and_where(tool_call::Column::ListedFor.is_not_null())
        .limit(SEARCHED_MAX)
        .to_owned();
    let branch = Branch { column: tool_call::Column::State, value: literal(state) };
    in_order(&mut newest, branch, tool_call::Column::ToolCallId, None);
    newest
}

/// Returns a text as a pattern that matches it alone.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}
