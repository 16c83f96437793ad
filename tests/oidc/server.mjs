// An OpenID Connect server: npm's oidc-provider, with routes by which a test controls it.
//
//   POST /keys     [["a", "RS256"], …]   publishes these keys and signs with the first of an algorithm;
//                                        answers with the public ones as PEM
//   POST /sign-in  {"client", "user"}    what the token endpoint gives a page on which this user signed in
//   POST /behave   {"roles", "tenant", "fails", "holds"}
//                                        the roles and the tenant of later tokens; the status of every answer for
//                                        tokens, if it is set; whether these answers wait for the next behaviour
//   GET /given     {"asked", "refresh"}  how often tokens were asked for, and the refresh tokens that were given
//   POST /refresh  "token"               what the token endpoint answers the console for this refresh token
import { createHash, generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const AUDIENCE = "holdpoint";
const RESOURCE = "https://holdpoint.example/";
const OPAQUE = "opaque";
const CALLBACK = "https://page.example/callback";
const KINDS = {
  RS256: ["rsa", { modulusLength: 2048 }],
  ES256: ["ec", { namedCurve: "P-256" }],
  EdDSA: ["ed25519", {}],
};
const pairs = new Map();
let provider;
// How the token endpoint behaves, and what it did.
let behaviour = {};
let release = () => {};
let released = Promise.resolve();
const given = { asked: 0, refresh: [] };

/** The key of this name, made at the first request. */
function pair(name, algorithm) {
  if (!pairs.has(name)) pairs.set(name, generateKeyPairSync(...KINDS[algorithm]));
  return pairs.get(name);
}

/** The claims that name a person, besides the user. */
const named = () => ({ tenant: behaviour.tenant ?? "acme", roles: behaviour.roles ?? ["approver", "reader"] });

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
    grant_types: ["authorization_code", "refresh_token"],
  };
  provider = new Provider(issuer, {
    jwks: { keys: jwks },
    clients: [machine("ann"), machine("bob"), page("page"), page(AUDIENCE), console],
    // As in the wild: not every issuer signs every ID token in one way.
    enabledJWA: { idTokenSigningAlgValues: Object.keys(KINDS) },
    clientDefaults: { id_token_signed_response_alg: keys[0][1] },
    scopes: ["openid", "offline_access"],
    // The ID token has the claims too.
    conformIdTokenClaims: false,
    claims: { openid: ["sub", "tenant", "roles"] },
    findAccount: (_ctx, accountId) => ({ accountId, claims: () => ({ sub: accountId, ...named() }) }),
    issueRefreshToken: () => true,
    extraTokenClaims: named,
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
      // Its own page asks for a font of elsewhere.
      rpInitiatedLogout: {
        enabled: true,
        logoutSource: (ctx, form) => {
          ctx.body = `<!doctype html><html lang="en"><title>Sign out</title>${form}`;
        },
      },
      resourceIndicators: {
        enabled: true,
        // The last part of the resource is how its tokens are signed. Opaque tokens have no signature.
        getResourceServerInfo: (_ctx, resource) => ({
          audience: AUDIENCE,
          scope: "",
          accessTokenTTL: 600,
          ...(resource === RESOURCE + OPAQUE
            ? { accessTokenFormat: "opaque" }
            : { accessTokenFormat: "jwt", jwt: { sign: { alg: resource.slice(RESOURCE.length) } } }),
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
      for (const last of [...Object.keys(KINDS), OPAQUE]) grant.addResourceScope(RESOURCE + last, "");
      await grant.save();
      return grant;
    },
  });
  provider.on("grant.success", (ctx) => {
    if (ctx.body.refresh_token) given.refresh.push(ctx.body.refresh_token);
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

/** How the token endpoint answers the console for a refresh token. */
async function refresh(token) {
  const answer = await fetch(new URL("/token", issuer), {
    method: "POST",
    body: new URLSearchParams({ grant_type: "refresh_token", client_id: "console", refresh_token: token }),
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
    } else if (request.url === "/behave") {
      behaviour = await body(request);
      release();
      if (behaviour.holds) released = new Promise((resolve) => (release = resolve));
      response.end("{}");
    } else if (request.url === "/given") {
      response.end(JSON.stringify(given));
    } else if (request.url === "/refresh") {
      response.end(JSON.stringify(await refresh(await body(request))));
    } else if (request.url === "/token" && behaviour.fails) {
      given.asked += 1;
      response.writeHead(behaviour.fails);
      response.end("<h1>The issuer is down</h1>");
    } else if (request.url === "/token") {
      given.asked += 1;
      await released;
      provider.callback()(request, response);
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
