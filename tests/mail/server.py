"""An SMTP server that a test steers: aiosmtpd, with a certificate of its own authority (trustme).

The argument is JSON: `tls` ("starttls", "implicit" or "none"), the `folder` for `ca.pem`, and optionally `port` and
`password`. The first line on stdout has the port. Each later line is a message, as the parser of Python reads it. A line
on stdin sets the next answers: {"rcpt": "550 no such mailbox"}, {"data": "451 later"} or {"data": "hang"}.
"""

import asyncio
import email
import email.policy
import json
import logging
import ssl
import pathlib
import sys
import warnings

import trustme
from aiosmtpd.smtp import SMTP, AuthResult

# The library warns of settings that only tests have.
warnings.simplefilter("ignore")
logging.getLogger("mail").setLevel(logging.ERROR)
options = json.loads(sys.argv[1])
answers = {}


def say(what):
    print(json.dumps(what), flush=True)


class Handler:
    async def handle_MAIL(self, server, session, envelope, address, mail_options):
        if "mail" in answers:
            return answers["mail"]
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(self, server, session, envelope, address, rcpt_options):
        if "rcpt" in answers:
            return answers["rcpt"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        answer = answers.get("data", "250 OK")
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        say({
            "accepted": answer.startswith("250"),
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "encrypted": session.ssl is not None or options["tls"] == "implicit",
            "authenticated": bool(session.authenticated),
            "headers": {name.lower(): str(value) for name, value in message.items()},
            "count": len(message.items()),
            "body": message.get_content(),
            "raw": envelope.content.decode(),
        })
        if answer == "hang":
            await asyncio.Event().wait()
        return answer


def authenticate(server, session, envelope, mechanism, data):
    is_right = data.login == b"holdpoint" and data.password == options["password"].encode()
    return AuthResult(success=is_right, handled=False)


async def main():
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(pathlib.Path(options["folder"], "ca.pem"))
    settings = {"enable_SMTPUTF8": True}
    if options["tls"] == "starttls":
        settings.update(tls_context=context, require_starttls=True)
    if "password" in options:
        settings.update(authenticator=authenticate, auth_required=True, auth_require_tls=options["tls"] == "starttls")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(Handler(), **settings),
        "127.0.0.1",
        options.get("port", 0),
        ssl=context if options["tls"] == "implicit" else None,
    )
    say({"port": server.sockets[0].getsockname()[1]})
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    # The end of stdin is the end of the test.
    while line := await reader.readline():
        answers.clear()
        answers.update(json.loads(line))
        say({"set": True})


asyncio.run(main())
