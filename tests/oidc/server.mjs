// An OpenID Connect server: npm's oidc-provider, with routes by which a test controls it.
//
//   POST /keys     [["a", "RS256"], …]   publishes these keys and signs with the first of an algorithm;
//                                        answers with the public ones as PEM
//   POST /sign-in  {"client", "user"}    what the token endpoint gives a page on which this user signed in
import { createHash, generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const AUDIENCE = "holdpoint";
const RESOURCE = "https://holdpoint.example/";
const CALLBACK = "https://page.example/callback";
const KINDS = {
  RS256: ["rsa", { modulusLength: 2048 }],
  ES256: ["ec", { namedCurve: "P-256" }],
  EdDSA: ["ed25519", {}],
};
const pairs = new Map();
let provider;

/** The key of this name, made at the first request. */
function pair(name, algorithm) {
  if (!pairs.has(name)) pairs.set(name, generateKeyPairSync(...KINDS[algorithm]));
  return pairs.get(name);
}

function publish(keys) {
  const jwks = keys.map(([kid, alg]) => ({ ...pair(kid, alg).privateKey.export({ format: "jwk" }), kid, alg, use: "sig" }));
  const machine = (client_id) => ({
    client_id,
    client_secret: "only a test's",
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
  });
  // One whose ID tokens are for the server's own audience: only what they are can give them away.
  const page = (client_id) => ({
    client_id,
    client_secret: "only a test's",
    grant_types: ["authorization_code", "refresh_token"],
    redirect_uris: [CALLBACK],
    response_types: ["code"],
  });
  // A public client. For an application on the machine itself the port does not count (RFC 8252, 7.3).
  const console = {
    client_id: "console",
    application_type: "native",
    token_endpoint_auth_method: "none",
    redirect_uris: ["http://127.0.0.1/auth/callback"],
    response_types: ["code"],
    grant_types: ["authorization_code"],
  };
  provider = new Provider(issuer, {
    jwks: { keys: jwks },
    clients: [machine("ann"), machine("bob"), page("page"), page(AUDIENCE), console],
    // As in the wild: not every issuer signs every ID token in one way.
    enabledJWA: { idTokenSigningAlgValues: Object.keys(KINDS) },
    clientDefaults: { id_token_signed_response_alg: keys[0][1] },
    scopes: ["openid", "offline_access"],
    findAccount: (_ctx, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
    issueRefreshToken: () => true,
    extraTokenClaims: () => ({ tenant: "acme", roles: ["approver", "reader"] }),
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        // The last part of the resource is how its tokens are signed.
        getResourceServerInfo: (_ctx, resource) => ({
          audience: AUDIENCE,
          scope: "",
          accessTokenFormat: "jwt",
          accessTokenTTL: 600,
          jwt: { sign: { alg: resource.slice(RESOURCE.length) } },
        }),
        useGrantedResource: () => true,
      },
    },
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    cookies: { keys: ["only a test's"] },
    // A sign-in includes the consent.
    loadExistingGrant: async (ctx) => {
      const grant = new ctx.oidc.provider.Grant({
        clientId: ctx.oidc.client.clientId,
        accountId: ctx.oidc.session.accountId,
      });
      grant.addOIDCScope("openid offline_access");
      for (const alg of Object.keys(KINDS)) grant.addResourceScope(RESOURCE + alg, "");
      await grant.save();
      return grant;
    },
  });
  return Object.fromEntries(
    keys.map(([kid, alg]) => [kid, pair(kid, alg).publicKey.export({ format: "pem", type: "spki" })]),
  );
}

/** The code flow with PKCE, as a browser and the page's server go through it. */
async function signIn({ client, user, alg }) {
  const verifier = randomBytes(32).toString("base64url");
  const first = new URL("/auth", issuer);
  first.search = new URLSearchParams({
    client_id: client,
    response_type: "code",
    redirect_uri: CALLBACK,
    scope: "openid offline_access",
    prompt: "login",
    resource: RESOURCE + alg,
    nonce: "n",
    login_hint: user,
    code_challenge: createHash("sha256").update(verifier).digest("base64url"),
    code_challenge_method: "S256",
  });
  const cookies = new Map();
  let at = first;
  while (!at.href.startsWith(CALLBACK)) {
    const cookie = [...cookies].map((pair) => pair.join("=")).join("; ");
    const response = await fetch(at, { headers: { cookie }, redirect: "manual" });
    for (const set of response.headers.getSetCookie()) {
      const [name, ...value] = set.split(";")[0].split("=");
      cookies.set(name, value.join("="));
    }
    const location = response.headers.get("location");
    if (!location) throw new Error(`${at}: ${response.status} ${await response.text()}`);
    at = new URL(location, at);
  }
  const answer = await fetch(new URL("/token", issuer), {
    method: "POST",
    headers: { authorization: `Basic ${btoa(`${client}:${encodeURIComponent("only a test's")}`)}` },
    body: new URLSearchParams({
      grant_type: "authorization_code",
      code: at.searchParams.get("code"),
      redirect_uri: CALLBACK,
      code_verifier: verifier,
      resource: RESOURCE + alg,
    }),
  });
  return answer.json();
}

async function body(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString());
}

const server = createServer(async (request, response) => {
  try {
    if (request.url === "/keys") {
      response.end(JSON.stringify(publish(await body(request))));
    } else if (request.url === "/sign-in") {
      response.end(JSON.stringify(await signIn(await body(request))));
    } else if (request.url.startsWith("/interaction/")) {
      const { params } = await provider.interactionDetails(request, response);
      await provider.interactionFinished(request, response, {
        login: { accountId: params.login_hint },
        // For a native client the provider asks for the consent each time.
        consent: {},
      });
    } else {
      provider.callback()(request, response);
    }
  } catch (error) {
    response.writeHead(500);
    response.end(String(error.stack));
  }
});
await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
const issuer = `http://127.0.0.1:${server.address().port}`;
publish([["rsa", "RS256"], ["ec", "ES256"], ["ed", "EdDSA"]]);
console.log(`the issuer listens on ${issuer}`);
