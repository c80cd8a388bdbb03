"""Who may ask this server: a browser that came with the token, at this machine's own address."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No inline script or style, nothing from elsewhere, and no text ever becomes markup."""
HEADERS = {
    "Content-Security-Policy": POLICY + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NAMES = ("127.0.0.1", "localhost")
HERE = re.compile(r"(?i)(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
"""This machine as a request may call it, by any port: it may be forwarded."""
REFUSED = (
    "convbench view: this page needs the address with its token that `convbench view` printed "
    "when it started; open that one.\n"
)


def gate(token: str, port: Callable[[], int]) -> Middleware:
    """Return a middleware that lets only the token's holder in.

    The token comes once in the address of `/`; from then on a cookie has it, which other sites'
    requests do not carry. A foreign Host is refused (DNS rebinding), a foreign Origin too.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        number, host = port(), request.headers.get("Host", "")
        if not _is_here(request, host):
            return _refuse(421, "convbench view: expected the address 127.0.0.1\n")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return _refuse(403, "convbench view: a request from another site is refused\n")
        cookie = f"convbench_{number}"
        brought = request.path == "/" and _same(request.query.get("token"), token)
        if not brought and not _same(request.cookies.get(cookie), token):
            return _refuse(403, REFUSED)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = _refuse(error.status, f"{error.reason}\n")
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if brought:
            response.set_cookie(cookie, token, httponly=True, samesite="Strict", path="/")
        return response

    return check


def _is_here(request: web.Request, host: str) -> bool:
    """Whether a request is addressed to this machine, by its Host and by an absolute target too."""
    try:
        return HERE.fullmatch(host) is not None and request.url.host in NAMES
    except ValueError:  # a port that is none
        return False


def _same(given: str | None, token: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(errors="replace"), token.encode())


def _refuse(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=HEADERS)
