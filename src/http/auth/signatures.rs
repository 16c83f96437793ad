//! Signatures of tokens, checked by `ring`, which is a dependency of rustls. `jsonwebtoken` checks them through one
//! provider for the whole process, which an app that embeds this server may need for itself.

use crate::http::auth::failure::Unknown;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

/// Checks the signature of a message by this algorithm with a key of its family.
pub(super) fn verify(
    algorithm: Algorithm,
    key: &DecodingKey,
    message: &[u8],
    signature: &[u8],
) -> Result<(), Unknown> {
    if key.family() != family(algorithm).ok_or(Unknown::Algorithm)? {
        return Err(Unknown::Algorithm);
    }
    let is_right = match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, e } => rsa(algorithm).is_some_and(|parameters| {
            RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
        }),
        DecodingKeyKind::SecretOrDer(secret) if algorithm == Algorithm::HS256 => {
            hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), message, signature).is_ok()
        }
        DecodingKeyKind::SecretOrDer(point) => curve(algorithm)
            .is_some_and(|curve| UnparsedPublicKey::new(curve, point).verify(message, signature).is_ok()),
    };
    if is_right { Ok(()) } else { Err(Unknown::Signature) }
}

/// Returns the family of the keys of an accepted algorithm.
fn family(algorithm: Algorithm) -> Option<AlgorithmFamily> {
    match algorithm {
        Algorithm::HS256 => Some(AlgorithmFamily::Hmac),
        Algorithm::ES256 | Algorithm::ES384 => Some(AlgorithmFamily::Ec),
        Algorithm::EdDSA => Some(AlgorithmFamily::Ed),
        _ => rsa(algorithm).map(|_| AlgorithmFamily::Rsa),
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ED25519),
        _ => None,
    }
}
