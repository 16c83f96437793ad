//! The policy in force for a tool, before a call of it exists: for people that look at a session.

use super::{Policy, PolicyRequest, Rule, Ruling};

/// The policy in force for a tool.
#[derive(Debug)]
pub struct InForce<'a> {
    /// The ruling on a call that none of the rules below covers.
    pub ruling: Ruling,
    /// The rules that cover some calls of the tool, by their inputs or by the roles of the user.
    pub rules: Vec<&'a Rule>,
}

impl Policy {
    /// Returns the policy in force for calls such as this one, with any inputs. Without `knows_roles` the
    /// roles of the call's user are unknown, so a rule about roles covers some calls.
    pub fn in_force(&self, call: &PolicyRequest<'_>, knows_roles: bool) -> InForce<'_> {
        let is_about =
            |rule: &&Rule| rule.tools.contains(call.tool) && (!knows_roles || rule.fits_roles(call.roles));
        let covers_all = |rule: &Rule| rule.when.is_empty() && (knows_roles || !rule.names_roles());
        let (certain, rules): (Vec<_>, Vec<_>) =
            self.rules.iter().filter(is_about).partition(|rule| covers_all(rule));
        let certain = Self { rules: certain.into_iter().cloned().collect(), ..self.clone() };
        InForce { ruling: certain.evaluate(call), rules }
    }
}
