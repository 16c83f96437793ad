//! The configuration files of the servers.

use super::{
    APPROVER, AUDIENCE, HTTP_TOOL, ISSUER, LEASE, MCP_TOOL, OWN, PENDING_TTL, REMOTE, RESULT_DEADLINE,
    SECRET, START_DEADLINE, SWEEP, TOOL_TIMEOUT, WORKER, WORKER_TOOLS,
};
use holdpoint_torture::work::schema;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub(super) const SERVICE_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// The file with the secret, in the folder of the run.
pub(super) const SECRET_FILE: &str = "service-secret";

/// What the files of one server have in common.
pub(super) struct Configuration<'a> {
    /// The database, as this server reaches it.
    pub(super) url: String,
    pub(super) model: SocketAddr,
    pub(super) folder: &'a Path,
    /// The program of the remote tools.
    pub(super) program: &'a Path,
    /// The arguments of the MCP server, with `", "` between two.
    pub(super) arguments: String,
    /// The address of all servers.
    pub(super) public: SocketAddr,
    pub(super) service: SocketAddr,
}

impl Configuration<'_> {
    /// Returns the file of a build that lacks this tool. The file must not name a tool that the build lacks.
    pub(super) fn text(&self, missing_tool: Option<&str>) -> String {
        let Self { url, model, public, .. } = self;
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        let mut text = format!(
            "[server]\nbind = \"127.0.0.1:0\"\ngrace = \"1s\"\npublic_url = \"http://{public}\"\n\
             [database]\nurl = \"{url}\"\nmax_connections = 6\n\
             [model]\nprovider = \"openai\"\nname = \"torture\"\nbase_url = \"http://{model}/v1\"\nretries = 2\n\
             first_byte_timeout = \"5s\"\nidle_timeout = \"5s\"\n\
             [auth]\nmode = \"jwt\"\nsecret = \"{SECRET}\"\nissuer = \"{ISSUER}\"\naudience = \"{AUDIENCE}\"\n\
             worker_roles = [\"{WORKER}\"]\n\
             [approval]\npending_ttl = \"{}\"\nstart_deadline = \"{}\"\nlease = \"{}\"\nsweep = \"{}\"\nwait = \"4s\"\n\
             [limits]\nrequests_per_minute = 0\nturns_per_minute = 0\ndecisions_per_minute = 0\nturns_per_user = 0\n\
             turns_per_tenant = 0\nstreams_per_user = 0\n\
             [egress]\nallow = [\"127.0.0.1\"]\n\
             [log]\nformat = \"json\"\nlevel = \"warn\"\n\
             [tools]\ndemo = false\ntimeout = \"{}\"\n",
            ms(PENDING_TTL),
            ms(START_DEADLINE),
            ms(LEASE),
            ms(SWEEP),
            ms(TOOL_TIMEOUT),
        );
        let there = |tool: &str| missing_tool != Some(tool);
        let [_, unheld] = WORKER_TOOLS;
        for tool in OWN.into_iter().chain(REMOTE).filter(|tool| there(tool) && *tool != unheld) {
            // Writing to memory cannot fail.
            let _infallible = writeln!(text, "[tools.{tool}]\napprove_roles = [\"{APPROVER}\"]");
        }
        for tool in REMOTE.into_iter().filter(|tool| there(tool)) {
            text.push_str(&self.remote(tool));
        }
        text
    }

    fn remote(&self, tool: &str) -> String {
        let Self { folder, program, arguments, service, .. } = self;
        let described = format!(
            "name = \"{tool}\"\ndescription = \"Writes down that it ran.\"\ninput_schema = \'\'\'{}\'\'\'\n",
            schema(false)
        );
        let [held, unheld] = WORKER_TOOLS;
        match tool {
            MCP_TOOL => {
                let (server, _) = MCP_TOOL.split_once("__").unwrap_or((MCP_TOOL, ""));
                let (program, arguments) = (program.display(), format!("\"{arguments}\", \"mcp\""));
                format!("[[mcp]]\nname = \"{server}\"\ncommand = \"{program}\"\nargs = [{arguments}]\n")
            }
            HTTP_TOOL => format!(
                "[[http_tools]]\n{described}url = \"http://{service}/pay\"\nsecret_file = \"{}\"\n\
                 timeout = \"4s\"\nresult_deadline = \"{}ms\"\n",
                folder.join(SECRET_FILE).display(),
                RESULT_DEADLINE.as_millis(),
            ),
            tool if tool == held => format!("[[worker_tools]]\n{described}"),
            tool if tool == unheld => {
                format!("[[worker_tools]]\n{described}hil = false\nidempotent = true\n")
            }
            _ => String::new(),
        }
    }
}
