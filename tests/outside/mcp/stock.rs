//! Five servers from npm as their users start them: every tool is there, and a call works.

use super::{approved, entry, hold, packages};
use holdpoint::config::{Config, McpServer};
use holdpoint_testkit::{Client, Embedded, JsonFields, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server from npm.
pub(crate) struct StockServer {
    /// Its name in the configuration.
    pub(crate) name: &'static str,
    /// Its program in `node_modules`.
    program: &'static str,
    args: &'static [&'static str],
    /// A variable that it needs, with a value that no service knows.
    variable: Option<(&'static str, &'static str)>,
    /// Its tools, in order.
    pub(crate) tools: &'static [&'static str],
}

const EVERYTHING: StockServer = StockServer {
    name: "everything",
    program: "@modelcontextprotocol/server-everything/dist/index.js",
    args: &["stdio"],
    variable: None,
    tools: &[
        "echo",
        "get-annotated-message",
        "get-env",
        "get-resource-links",
        "get-resource-reference",
        "get-structured-content",
        "get-sum",
        "get-tiny-image",
        "gzip-file-as-resource",
        "simulate-research-query",
        "toggle-simulated-logging",
        "toggle-subscriber-updates",
        "trigger-elicitation-request",
        "trigger-long-running-operation",
    ],
};

const MEMORY: StockServer = StockServer {
    name: "memory",
    program: "@modelcontextprotocol/server-memory/dist/index.js",
    args: &[],
    variable: None,
    tools: &[
        "add_observations",
        "create_entities",
        "create_relations",
        "delete_entities",
        "delete_observations",
        "delete_relations",
        "open_nodes",
        "read_graph",
        "search_nodes",
    ],
};

const THINKING: StockServer = StockServer {
    name: "thinking",
    program: "@modelcontextprotocol/server-sequential-thinking/dist/index.js",
    args: &[],
    variable: None,
    tools: &["sequentialthinking"],
};

/// The output schema of one of its tools has 76 kB.
const BRAVE: StockServer = StockServer {
    name: "brave",
    program: "@brave/brave-search-mcp-server/dist/index.js",
    args: &["--transport", "stdio"],
    variable: Some(("BRAVE_API_KEY", "nobody")),
    tools: &[
        "brave_image_search",
        "brave_llm_context",
        "brave_local_search",
        "brave_news_search",
        "brave_place_search",
        "brave_summarizer",
        "brave_video_search",
        "brave_web_search",
    ],
};

/// Some of its inputs have ten schemas within each other.
const HUBSPOT: StockServer = StockServer {
    name: "hubspot",
    program: "@hubspot/mcp-server/dist/index.js",
    args: &[],
    variable: Some(("PRIVATE_APP_ACCESS_TOKEN", "nobody")),
    tools: &[
        "hubspot-batch-create-associations",
        "hubspot-batch-create-objects",
        "hubspot-batch-read-objects",
        "hubspot-batch-update-objects",
        "hubspot-create-engagement",
        "hubspot-create-property",
        "hubspot-generate-feedback-link",
        "hubspot-get-association-definitions",
        "hubspot-get-engagement",
        "hubspot-get-link",
        "hubspot-get-property",
        "hubspot-get-schemas",
        "hubspot-get-user-details",
        "hubspot-get-workflow",
        "hubspot-list-associations",
        "hubspot-list-objects",
        "hubspot-list-properties",
        "hubspot-list-workflows",
        "hubspot-search-objects",
        "hubspot-update-engagement",
        "hubspot-update-property",
    ],
};

/// All of them.
pub(crate) const STOCK: [&StockServer; 5] = [&EVERYTHING, &MEMORY, &THINKING, &BRAVE, &HUBSPOT];

impl StockServer {
    /// The entry in the configuration, with this variable too.
    pub(crate) fn entry(&self, variable: Option<(&str, &str)>) -> McpServer {
        let program = packages().join("node_modules").join(self.program).display().to_string();
        let args: Vec<&str> = [program.as_str()].into_iter().chain(self.args.iter().copied()).collect();
        let env: serde_json::Map<_, _> = self
            .variable
            .into_iter()
            .chain(variable)
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        entry(&json!({ "name": self.name, "command": "node", "args": args, "env": env }))
    }

    /// Waits until the server has listed as many tools as it has, and checks that all of them are there.
    pub(crate) async fn is_listed(&self, client: &Client) {
        let names = |list: &Value, server: &str, name: &str| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            let of_server = list.filter(|it| it.pointer(server).is_some_and(|it| it == self.name));
            of_server.map(|it| it.pointer(name).and_then(Value::as_str).unwrap().to_owned()).collect()
        };
        let listed = async || {
            let tools = client.get("/tools").await.body;
            let listed = names(&tools["results"], "/mcp/server", "/mcp/tool");
            let left_out = names(&tools["left_out"], "/server", "/tool");
            (listed.len() + left_out.len() >= self.tools.len()).then_some((listed, left_out))
        };
        let (listed, left_out) = eventually("the server lists its tools", listed).await;
        assert_eq!(
            (listed.iter().map(String::as_str).collect::<Vec<_>>(), left_out),
            (self.tools.to_vec(), vec![])
        );
    }

    /// A server of holdpoint with all tools of this one, and a folder. `variable` of the server names a file there.
    async fn started(&self, variable: Option<&str>) -> (Embedded, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file").display().to_string();
        let entry = self.entry(variable.map(|name| (name, file.as_str())));
        let change = |config: &mut Config| {
            config.tools.demo = false;
            config.mcp = vec![entry];
        };
        let server = Box::pin(Embedded::with(change)).await;
        self.is_listed(&server.client).await;
        (server, folder)
    }
}

#[tokio::test]
async fn server_everything_adds_two_numbers() {
    let (server, _folder) = EVERYTHING.started(None).await;
    let call = approved(&server, "everything__get-sum", &json!({ "a": 2, "b": 3 })).await;
    assert_eq!((&call["state"], &call["output"]), (&json!("succeeded"), &json!("The sum of 2 and 3 is 5.")));
}

#[tokio::test]
async fn server_memory_remembers_after_the_approval() {
    let (server, folder) = MEMORY.started(Some("MEMORY_FILE_PATH")).await;
    let entity = json!({ "name": "Tea", "entityType": "drink", "observations": ["It is hot."] });
    let id = hold(&server, "memory__create_entities", &json!({ "entities": [entity] })).await;
    assert!(!folder.path().join("file").exists());
    let done = server.client.approve(&id).await;
    assert_eq!(done.body["state"], "succeeded", "{:?}", done.body);
    let call = approved(&server, "memory__read_graph", &json!({})).await;
    assert_eq!(call["output"], json!({ "entities": [entity], "relations": [] }), "{call}");
}

#[tokio::test]
async fn server_sequential_thinking_takes_a_thought() {
    let (server, _folder) = THINKING.started(None).await;
    let thought =
        json!({ "thought": "One.", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": false });
    let call = approved(&server, "thinking__sequentialthinking", &thought).await;
    assert_eq!(
        (&call["state"], &call["output"]["thoughtNumber"]),
        (&json!("succeeded"), &json!(1)),
        "{call}"
    );
}

#[tokio::test]
async fn brave_search_holds_a_search_and_a_rejected_one_does_not_run() {
    let (server, _folder) = BRAVE.started(None).await;
    let id = hold(&server, "brave__brave_place_search", &json!({ "query": "tea" })).await;
    let rejected = server.client.reject(&id).await;
    assert_eq!(rejected.body["state"], "rejected", "{:?}", rejected.body);
}

#[tokio::test]
async fn hubspot_makes_a_link() {
    let (server, _folder) = HUBSPOT.started(None).await;
    let page = json!({ "pagetype": "index", "objectTypeId": "0-1" });
    let link = json!({ "portalId": "1", "uiDomain": "app.hubspot.com", "pageRequests": [page] });
    let call = approved(&server, "hubspot__hubspot-get-link", &link).await;
    assert_eq!(call["state"], "succeeded", "{call}");
    assert!(call.text("result").contains("app.hubspot.com/contacts/1/objects/0-1"), "{call}");
}
