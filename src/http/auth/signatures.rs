//! Signatures of tokens, checked by `ring`, which rustls brings: the library's own check of an RSA signature takes ten
//! times as long, and anyone may send a token with a false one.

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

/// Has all tokens of this process checked so, unless an app that this server is a part of has chosen otherwise.
pub(super) fn check_with_ring() {
    // The error is a provider that was there before.
    let _chosen_before = PROVIDER.install_default();
}

/// What checks signatures of this algorithm with this key.
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, TokenError> {
    let family = match algorithm {
        Algorithm::RS256 => AlgorithmFamily::Rsa,
        Algorithm::ES256 => AlgorithmFamily::Ec,
        Algorithm::EdDSA => AlgorithmFamily::Ed,
        _ => return (rust_crypto::DEFAULT_PROVIDER.verifier_factory)(algorithm, key),
    };
    if key.family() != family {
        // The library has the error for that.
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
