//! One published key, and the tokens that it fits.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use serde_json::Value;

/// What tokens may be signed with.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
/// Bits of an RSA key, at least (RFC 7518, 3.3).
const RSA_BITS_MIN: usize = 2048;
/// Base64 characters of a coordinate: 32 bytes each.
const COORDINATE_CHARS: usize = 43;

/// A key that signatures are checked with.
#[derive(Debug, Clone)]
pub(super) struct Key {
    id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

/// What a token says of the key that it was signed with.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    id: Option<String>,
    algorithm: Algorithm,
}

impl Wanted {
    /// None, if no published key may be used so.
    pub(super) fn of(header: &Header) -> Option<Self> {
        let wanted = Self { id: header.kid.clone(), algorithm: header.alg };
        ALGORITHMS.contains(&header.alg).then_some(wanted)
    }

    /// The one key that it can be: an id may be left out only where there is no choice.
    pub(super) fn find<'a>(&self, keys: &'a [Key]) -> Option<&'a Key> {
        let fits = |key: &&Key| {
            key.algorithm == self.algorithm && (self.id.is_none() || key.id.as_deref() == self.id.as_deref())
        };
        let mut fitting = keys.iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }
}

/// The key, if it is one that tokens may be signed with. Others are none of our business (RFC 7517, 5), secrets least
/// of all: what is published is none.
pub(super) fn of_json(jwk: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(jwk).ok()?;
    let (algorithm, own_name) = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) if rsa.n.len() * 6 >= RSA_BITS_MIN => {
            (Algorithm::RS256, KeyAlgorithm::RS256)
        }
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        // The library takes any length, and goes down with a shorter one.
        AlgorithmParameters::OctetKeyPair(pair)
            if pair.curve == EllipticCurve::Ed25519 && pair.x.len() == COORDINATE_CHARS =>
        {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let common = &jwk.common;
    let for_this = common.key_algorithm.is_none_or(|named| named == own_name);
    let signs = common.public_key_use.as_ref().is_none_or(|to| *to == PublicKeyUse::Signature);
    let verifies = common.key_operations.as_ref().is_none_or(|to| to.contains(&KeyOperations::Verify));
    if !(for_this && signs && verifies) {
        return None;
    }
    let decoding = DecodingKey::from_jwk(&jwk).ok()?;
    Some(Key { id: jwk.common.key_id, algorithm, decoding })
}
