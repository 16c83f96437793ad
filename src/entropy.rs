//! The randomness of the server.

use ring::rand::{SecureRandom, SystemRandom};
use std::fmt::Debug;

/// A source of randomness. Callers receive it instead of reading the machine's.
pub(crate) trait Entropy: Send + Sync + Debug {
    /// Returns a random number from 0 (inclusive) to 1 (exclusive).
    fn chance(&self) -> f64;
    /// Returns 256 random bits as hexadecimal text, which cannot be guessed. `None` if the machine has no
    /// randomness to give.
    fn secret(&self) -> Option<String>;
}

/// The machine's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn chance(&self) -> f64 {
        // Without randomness each number is as good as any other; secrets do not come from here.
        let random = u32::from_le_bytes(random().unwrap_or_default());
        f64::from(random) / (f64::from(u32::MAX) + 1.0)
    }

    fn secret(&self) -> Option<String> {
        let bytes: [u8; 32] = random()?;
        Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn random<const LENGTH: usize>() -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_between_0_and_1_and_secrets_have_256_bits_of_their_own() {
        let chances: Vec<f64> = (0..100).map(|_| SystemEntropy.chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..1.0).contains(chance)), "{chances:?}");
        assert!(chances.iter().any(|chance| *chance < 0.5) && chances.iter().any(|chance| *chance >= 0.5));
        let (one, other) = (SystemEntropy.secret().unwrap(), SystemEntropy.secret().unwrap());
        assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
        assert_ne!(one, other);
    }
}
