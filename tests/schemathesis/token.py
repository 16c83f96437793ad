"""Prints a token for mode `jwt` (RFC 7519), signed with the secret (HS256), that holds for a day."""

import base64
import hashlib
import hmac
import json
import sys
import time


def part(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=")


secret, issuer, audience = sys.argv[1:]
claims = {"iss": issuer, "aud": audience, "sub": "schemathesis", "tenant": "tests", "exp": int(time.time()) + 86400}
signed = b".".join(part(json.dumps(it).encode()) for it in ({"alg": "HS256", "typ": "JWT"}, claims))
print((signed + b"." + part(hmac.new(secret.encode(), signed, hashlib.sha256).digest())).decode())
