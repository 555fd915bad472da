"""The page that takes a token and gives a session for it, and the one that ends it.

Plain HTML without a script: it is all that a stranger sees.
"""

from html import escape
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from streaming.api import ApiError, ErrorCode, RateLimit
from streaming.console.sessions import COOKIE, SESSION_SECONDS, SessionAccess, session_id_of

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
# A token has at most 4 KiB; the address to go on to comes with it.
_FORM_BYTES_MAX = 16_384
_ATTEMPTS_PER_SECOND, _ATTEMPTS_BURST = 0.2, 10
# Under the guard's `no-referrer` a browser would name no origin with our own forms.
_REFERRER = {"Referrer-Policy": "same-origin"}
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · placer</title>
<link rel="stylesheet" href="/assets/console.css">
<link rel="icon" href="/assets/icon.svg">
</head>
<body class="sign-in">
<main>
<form method="post" action="/sign-in" autocomplete="off">
<h1><img src="/assets/icon.svg" alt="" width="28" height="28"> placer console</h1>
<p class="lead">Sign in with your token, which stands in the file that the console reads.</p>
{fault}
<label for="token">Token</label>
<input id="token" name="token" type="password" required maxlength="4096" autofocus{described}>
<input type="hidden" name="next" value="{target}">
<button type="submit">Sign in</button>
</form>
</main>
</body>
</html>
"""


def make_sign_in(access: SessionAccess) -> APIRouter:
    """The routes, which open and end sessions of `access`."""
    router = APIRouter(include_in_schema=False)
    attempts = RateLimit("attempts to sign in", _ATTEMPTS_PER_SECOND, _ATTEMPTS_BURST)

    @router.get(SIGN_IN)
    async def show(request: Request) -> Response:
        return _page(_target(request.query_params.get("next", "")))

    @router.post(SIGN_IN)
    async def sign_in(request: Request) -> Response:
        address = request.client.host if request.client else ""
        form = await _read_form(request)
        target = _target(form.get("next", ""))
        try:
            attempts.take(address)
        except ApiError as error:
            return _page(target, error.message, 429)
        principal = access.rules.find_principal(form.get("token", "").strip())
        if principal is None:
            return _page(target, "This is no token of the console's file.", 401)
        previous = session_id_of({"cookie": request.headers.get("cookie", "")})
        if previous is not None:
            access.sessions.close(previous)
        answer = RedirectResponse(target, 303)
        answer.set_cookie(
            COOKIE,
            access.sessions.open(principal),
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            # A proxy may have ended TLS; the guard has held the origin against those that may.
            secure=request.headers.get("origin", str(request.url)).startswith("https:"),
        )
        return answer

    @router.post(SIGN_OUT)
    async def sign_out(request: Request) -> Response:
        session_id = session_id_of({"cookie": request.headers.get("cookie", "")})
        if session_id is not None:
            access.sessions.close(session_id)
        answer = RedirectResponse(SIGN_IN, 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    return router


async def _read_form(request: Request) -> dict[str, str]:
    body = await request.body()
    if len(body) > _FORM_BYTES_MAX:
        raise ApiError(413, ErrorCode.BODY_TOO_LARGE, f"a form has at most {_FORM_BYTES_MAX} bytes")
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    return {name: values[0] for name, values in fields.items()}


def _target(wanted: str) -> str:
    """Where to go on to: a path of this console, whatever the address says."""
    plain = wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted
    return wanted if plain and wanted.isprintable() and not wanted.startswith(SIGN_IN) else "/"


def _page(target: str, fault: str | None = None, status: int = 200) -> Response:
    said = f'<p class="fault" id="fault" role="alert">{escape(fault)}</p>' if fault else ""
    described = ' aria-invalid="true" aria-describedby="fault"' if fault else ""
    page = _PAGE.format(fault=said, described=described, target=escape(target, quote=True))
    return HTMLResponse(page, status, {"Content-Security-Policy": _POLICY, **_REFERRER})
