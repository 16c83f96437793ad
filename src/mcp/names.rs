//! The names of the tools of MCP servers.

use crate::config::McpServer;
use crate::tools::{SEPARATOR, ServerTools};
use holdpoint_core::json::hex::hex;
use sha2::{Digest, Sha256};

/// Maximum length of the name of a tool. Every provider accepts it.
const NAME_MAX: usize = 64;
/// Number of hex digits of the hash in a changed name.
const HASH_LEN: usize = 8;

/// Returns the name of a server's tool in holdpoint: at most 64 of `a-z A-Z 0-9 _ -`. A name that has to be
/// shortened or changed gets a hash of the original, so that no two names become the same by accident.
pub(crate) fn local_name(server: &str, tool: &str) -> String {
    let is_usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let prefix = format!("{server}{SEPARATOR}");
    if !tool.is_empty() && prefix.len() + tool.len() <= NAME_MAX && tool.chars().all(is_usable) {
        return prefix + tool;
    }
    let room = NAME_MAX.saturating_sub(prefix.len() + 1 + HASH_LEN);
    let kept = tool.chars().take(room).map(|c| if is_usable(c) { c } else { '_' });
    let hash: String = hex(&Sha256::digest(tool)).chars().take(HASH_LEN).collect();
    format!("{prefix}{}_{hash}", kept.collect::<String>())
}

/// Returns the names that the tools of a server of the configuration can have.
pub(crate) fn announced(server: &McpServer) -> ServerTools {
    let only = server.tools.as_ref();
    let only = only.map(|tools| tools.iter().map(|tool| local_name(&server.name, tool)).collect());
    ServerTools { server: server.name.clone(), only }
}

#[cfg(test)]
mod tests {
    use super::local_name;

    #[test]
    fn a_usable_name_stays_and_every_other_name_fits_with_a_hash() {
        assert_eq!(local_name("files", "write_file"), "files__write_file");
        assert_eq!(local_name("files", "fs.write"), "files__fs_write_b2b36607");
        let server = "s".repeat(32);
        for tool in ["", "é", "a b", "_", "a__b", &"x".repeat(30), &"x".repeat(31), &"y.".repeat(64)] {
            let name = local_name(&server, tool);
            assert!(name.len() <= 64 && name.starts_with(&format!("{server}__")), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{name}");
        }
        assert_ne!(local_name("s", "a.b"), local_name("s", "a/b"));
        assert_ne!(local_name("s", &"x".repeat(99)), local_name("s", &"x".repeat(98)));
    }
}
