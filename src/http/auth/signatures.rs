//! Signatures of tokens, checked by `ring`, which is a dependency of rustls. The check of an RSA signature by
//! `jsonwebtoken` takes ten times as long, and any client can send a token with a false signature.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, rust_crypto};
use jsonwebtoken::errors::Error as TokenError;
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use std::sync::LazyLock;

static PROVIDER: LazyLock<CryptoProvider> =
    LazyLock::new(|| CryptoProvider { verifier_factory: verifier, ..rust_crypto::DEFAULT_PROVIDER.clone() });

/// Installs `ring` for all tokens of this process, unless an app that embeds this server installed a provider
/// before.
pub(super) fn check_with_ring() {
    // The error means that a provider was installed before.
    let _chosen_before = PROVIDER.install_default();
}

/// Returns the verifier of this algorithm with this key.
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, TokenError> {
    let family = match algorithm {
        Algorithm::RS256 => AlgorithmFamily::Rsa,
        Algorithm::ES256 => AlgorithmFamily::Ec,
        Algorithm::EdDSA => AlgorithmFamily::Ed,
        _ => return (rust_crypto::DEFAULT_PROVIDER.verifier_factory)(algorithm, key),
    };
    if key.family() != family {
        // The default provider returns the error for a key of another family.
        return (rust_crypto::DEFAULT_PROVIDER.verifier_factory)(algorithm, key);
    }
    Ok(Box::new(Ring { algorithm: *algorithm, key: key.clone() }))
}

struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let checked = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::RS256, DecodingKeyKind::SecretOrDer(der)) => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der).verify(message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        checked.map_err(|_unspecified| Error::new())
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
