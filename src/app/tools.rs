//! The tools of a server, as the configuration describes them.

use super::AppError;
#[cfg(feature = "mcp")]
use crate::agent::Tasks;
use crate::config::{Config, ConfigError, mcp_key, worker_tool_key};
#[cfg(feature = "mcp")]
use crate::http::Api;
use crate::http_tools::HttpTool;
use crate::mcp;
#[cfg(feature = "demo")]
use crate::tools::files::{DeleteFile, Files, ListFiles, ReadFile, WriteFile};
use crate::tools::{ToolRegistry, ToolSpec};
#[cfg(feature = "mcp")]
use futures::{FutureExt, future::BoxFuture};
use holdpoint_core::clock::SystemClock;
use std::sync::Arc;

/// Returns the demo tools, on the folder that the configuration names.
///
/// # Errors
/// The folder cannot be created or opened.
#[cfg(feature = "demo")]
pub fn demo_tools(config: &Config) -> Result<ToolRegistry, AppError> {
    let folder = &config.tools.files_dir;
    let failed = |error| AppError::new("tools.files_dir", format!("{}: {error}", folder.display()));
    let files = Files::open(folder).map_err(failed)?;
    let mut registry = ToolRegistry::new();
    registry.register(ListFiles(files.clone()))?;
    registry.register(ReadFile(files.clone()))?;
    registry.register(WriteFile(files.clone()))?;
    registry.register(DeleteFile(files))?;
    Ok(registry)
}

/// Returns the tools of the configuration: the demo tools (feature `demo`), unless `tools.demo` is off,
/// `[[http_tools]]` and `[[worker_tools]]`.
///
/// # Errors
/// The folder of the demo tools cannot be opened. A file of a tool cannot be read, a value of it cannot be used, or two
/// tools have the same name.
pub fn configured_tools(config: &Config) -> Result<ToolRegistry, AppError> {
    let mut registry = ToolRegistry::new();
    #[cfg(feature = "demo")]
    if config.tools.demo {
        registry = demo_tools(config)?;
    }
    let reach = config.egress.reach();
    for (index, tool) in config.http_tools.iter().enumerate() {
        let (name, entry) = (&tool.name, tool);
        let tool = HttpTool::new(config, index, entry, &reach, Arc::new(SystemClock))?;
        let keys = tool.callback_keys();
        registry.register_dyn(Arc::new(tool))?;
        if let Some(keys) = keys {
            registry.take_callbacks(name, keys);
        }
    }
    for (index, tool) in config.worker_tools.iter().enumerate() {
        let spec = ToolSpec::configured(&tool.entry(), &worker_tool_key(index))?;
        registry.register_worker_tool(spec, tool.timeout(&config.tools))?;
    }
    Ok(registry)
}

/// Announces the tools of `[[mcp]]`, which are there once their servers are connected.
pub(super) fn announce(tools: &mut ToolRegistry, config: &Config) -> Result<(), ConfigError> {
    for (index, server) in config.mcp.iter().enumerate() {
        if let Some(existing) = tools.announce(mcp::announced(server)) {
            let key = format!("{}.name", mcp_key(index));
            let why = format!("expected another name, because the tool {existing:?} begins with this one");
            return Err(ConfigError::Value { key, why });
        }
    }
    Ok(())
}

/// Returns the work of the servers of `[[mcp]]`, which the caller starts.
#[cfg(feature = "mcp")]
pub(super) fn mcp_servers(
    config: &Config,
    api: &Api,
    tasks: &Tasks,
) -> Result<Vec<BoxFuture<'static, ()>>, ConfigError> {
    let reach = config.egress.reach();
    let work = |(index, server)| {
        let (tools, store) = (api.tools.clone(), api.store.clone());
        let server = mcp::Server::new(config, index, server, &reach, tools, store)?;
        Ok(server.run(tasks.clone()).boxed())
    };
    config.mcp.iter().enumerate().map(work).collect()
}
