//! The tools of a server, as the configuration describes them.

use super::AppError;
use crate::config::Config;
use crate::domain::clock::SystemClock;
use crate::egress::Reach;
use crate::http_tools::HttpTool;
use crate::tools::ToolRegistry;
use crate::tools::files::{DeleteFile, Files, ListFiles, ReadFile, WriteFile};
use std::sync::Arc;

/// Returns the demo tools, on the folder that the configuration names.
///
/// # Errors
/// The folder cannot be created or opened.
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

/// Returns the tools of the configuration: the demo tools, unless `tools.demo` is off, and `[[http_tools]]`.
///
/// # Errors
/// As [`demo_tools`]. A file of an HTTP tool cannot be read, a value of it cannot be used, or two tools have the
/// same name.
pub fn configured_tools(config: &Config) -> Result<ToolRegistry, AppError> {
    let mut registry = if config.tools.demo { demo_tools(config)? } else { ToolRegistry::new() };
    let reach = Reach::new(config.egress.networks(), config.egress.hosts());
    for (place, tool) in config.http_tools.iter().enumerate() {
        let tool = HttpTool::new(config, place, tool, &reach, Arc::new(SystemClock))?;
        registry.register_dyn(Arc::new(tool))?;
    }
    Ok(registry)
}
