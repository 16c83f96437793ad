//! Ids of calls in the one form that every model server takes: nine letters and digits. Mistral refuses a conversation
//! with any other id (code 3280), and servers that are less strict take these as well.

use sha2::{Digest, Sha256};

const LENGTH: usize = 9;
/// The number of different characters of an id.
const DIGITS: u32 = 36;

/// Returns whether every server takes this id.
pub fn is_for_all(id: &str) -> bool {
    id.len() == LENGTH && id.bytes().all(|it| it.is_ascii_alphanumeric())
}

/// Returns the ids for the call with this name of its own, in a fixed order without an end. The caller takes the first
/// one that the thread does not have.
pub fn candidates(name: &str) -> impl Iterator<Item = String> {
    (0_u32..).map(move |n| {
        let hash = Sha256::new().chain_update(n.to_be_bytes()).chain_update(name).finalize();
        let mut rest = hash.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let digits = (0..LENGTH).filter_map(|_| {
            let digit = u32::try_from(rest % u64::from(DIGITS)).ok()?;
            rest /= u64::from(DIGITS);
            char::from_digit(digit, DIGITS)
        });
        digits.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_candidate_is_an_id_for_all_servers_and_always_the_same() {
        let mut seen = HashSet::new();
        for name in ["", "a b", "01a20839-85d3-7122-a737-d429bb148ad0"] {
            for id in candidates(name).take(100) {
                assert!(is_for_all(&id), "{id}");
                assert!(seen.insert(id), "{name}");
            }
        }
        assert_eq!(candidates("a b").nth(3), candidates("a b").nth(3));
        for id in ["", "12345678", "1234567890", "12345678-", "é1234567"] {
            assert!(!is_for_all(id), "{id}");
        }
    }
}
