//! A published key, and the tokens that match it.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use serde_json::Value;

/// The accepted signature algorithms, by the kinds of keys, with their names in keys.
const RSA: &[(Algorithm, KeyAlgorithm)] = &[
    (Algorithm::RS256, KeyAlgorithm::RS256),
    (Algorithm::RS384, KeyAlgorithm::RS384),
    (Algorithm::RS512, KeyAlgorithm::RS512),
    (Algorithm::PS256, KeyAlgorithm::PS256),
    (Algorithm::PS384, KeyAlgorithm::PS384),
    (Algorithm::PS512, KeyAlgorithm::PS512),
];
const P256: &[(Algorithm, KeyAlgorithm)] = &[(Algorithm::ES256, KeyAlgorithm::ES256)];
const P384: &[(Algorithm, KeyAlgorithm)] = &[(Algorithm::ES384, KeyAlgorithm::ES384)];
const ED25519: &[(Algorithm, KeyAlgorithm)] = &[(Algorithm::EdDSA, KeyAlgorithm::EdDSA)];
/// Minimum size of an RSA key, in bits (RFC 7518, 3.3).
const RSA_BITS_MIN: usize = 2048;
/// Base64 characters of an Ed25519 public key, and of a coordinate of P-256, of 32 bytes each.
const COORDINATE_CHARS: usize = 43;
/// Base64 characters of a coordinate of P-384, of 48 bytes.
const COORDINATE_CHARS_384: usize = 64;

/// A key that checks signatures.
#[derive(Debug, Clone)]
pub(super) struct Key {
    id: Option<String>,
    /// The algorithms that the key may check: all of its kind, or the one that it names.
    algorithms: Vec<Algorithm>,
    pub(super) decoding: DecodingKey,
}

/// The key id and the algorithm in the header of a token.
#[derive(Debug, Clone)]
pub(super) struct KeyRef {
    id: Option<String>,
    pub(super) algorithm: Algorithm,
}

impl KeyRef {
    /// Returns `None` if no published key may check this algorithm.
    pub(super) fn of(header: &Header) -> Option<Self> {
        let key_ref = Self { id: header.kid.clone(), algorithm: header.alg };
        let mut accepted = [RSA, P256, P384, ED25519].into_iter().flatten();
        accepted.any(|(algorithm, _)| *algorithm == header.alg).then_some(key_ref)
    }

    /// Returns the one key that matches. A token may omit the key id only if exactly one key matches its
    /// algorithm.
    pub(super) fn find<'a>(&self, keys: &'a [Key]) -> Option<&'a Key> {
        let fits = |key: &&Key| {
            key.algorithms.contains(&self.algorithm)
                && (self.id.is_none() || key.id.as_deref() == self.id.as_deref())
        };
        let mut fitting = keys.iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }
}

/// Returns the key if it may check tokens. Other keys are ignored (RFC 7517, 5), above all symmetric ones: a
/// published key is not a secret.
pub(super) fn of_json(jwk: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(jwk).ok()?;
    let of_kind = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) if rsa.n.len() * 6 >= RSA_BITS_MIN => RSA,
        AlgorithmParameters::EllipticCurve(ec) => match (&ec.curve, ec.x.len(), ec.y.len()) {
            (EllipticCurve::P256, COORDINATE_CHARS, COORDINATE_CHARS) => P256,
            (EllipticCurve::P384, COORDINATE_CHARS_384, COORDINATE_CHARS_384) => P384,
            _ => return None,
        },
        // The library accepts any length, and panics with a shorter key.
        AlgorithmParameters::OctetKeyPair(pair)
            if pair.curve == EllipticCurve::Ed25519 && pair.x.len() == COORDINATE_CHARS =>
        {
            ED25519
        }
        _ => return None,
    };
    let common = &jwk.common;
    let named = |name: &KeyAlgorithm| common.key_algorithm.is_none_or(|named| named == *name);
    let algorithms: Vec<_> =
        of_kind.iter().filter(|(_, name)| named(name)).map(|(algorithm, _)| *algorithm).collect();
    let signs = common.public_key_use.as_ref().is_none_or(|to| *to == PublicKeyUse::Signature);
    let verifies = common.key_operations.as_ref().is_none_or(|to| to.contains(&KeyOperations::Verify));
    if algorithms.is_empty() || !(signs && verifies) {
        return None;
    }
    let decoding = DecodingKey::from_jwk(&jwk).ok()?;
    Some(Key { id: jwk.common.key_id, algorithms, decoding })
}
