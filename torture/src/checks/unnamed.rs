//! The calls of executions whose tool does not know its call: MCP names no call.

use super::case::hash;
use crate::files::LedgerLine;
use crate::rows::{CallRow, Rows};
use std::collections::{HashMap, HashSet};

/// Writes into the lines of such executions the call that they belong to: the call with the same tool and inputs that
/// was claimed last before the start, and that has no execution yet. A message that was posted twice makes two calls
/// with the same inputs. An execution without such a call gets a name that no call has.
pub(super) fn name_calls(ledger: &mut [LedgerLine], rows: &Rows) {
    let claims = rows.events.iter().filter(|event| event.kind == "tool.started");
    let claims: HashMap<&str, i64> =
        claims.filter_map(|event| Some((event.tool_call_id.as_deref()?, event.at))).collect();
    let mut by_inputs: HashMap<(&str, String), Vec<&CallRow>> = HashMap::new();
    let unnamed: HashSet<&str> =
        ledger.iter().filter(|line| line.nth.is_some()).map(|line| line.tool.as_str()).collect();
    for call in rows.calls.iter().filter(|call| unnamed.contains(call.name.as_str())) {
        let Some(inputs) = call.effective_inputs() else { continue };
        by_inputs.entry((&call.name, hash(&inputs))).or_default().push(call);
    }
    let mut starts: Vec<&LedgerLine> =
        ledger.iter().filter(|line| line.nth.is_some() && line.what == "start").collect();
    starts.sort_by_key(|start| start.at);
    let (mut named, mut matched) = (HashMap::new(), HashSet::new());
    for start in starts {
        let alike = by_inputs.get(&(start.tool.as_str(), start.args_sha256.clone()));
        let claimed = |call: &&&CallRow| claims.get(call.tool_call_id.as_str()).filter(|at| **at <= start.at);
        let free = alike.into_iter().flatten().filter(|call| !matched.contains(&call.tool_call_id));
        let call = free.filter(|call| claimed(call).is_some()).max_by_key(claimed);
        let call = call.or_else(|| alike?.first()).map(|call| call.tool_call_id.clone());
        if let Some(call) = &call {
            matched.insert(call.clone());
        }
        let call = call.unwrap_or_else(|| format!("{} with {}", start.tool, start.args_sha256));
        named.insert((start.pid, start.nth), call);
    }
    for line in ledger.iter_mut().filter(|line| line.nth.is_some()) {
        if let Some(call) = named.get(&(line.pid, line.nth)) {
            line.call.clone_from(call);
        }
    }
}
