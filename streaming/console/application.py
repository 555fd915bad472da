"""Puts the console together: the API, the sign-in and the pages, on one port behind one guard.

    Guard ─┬─ /api/v1/…  the query API
           ├─ /sign-in   plain HTML
           └─ PagePolicy ── NiceGUI: pages, their assets, /_nicegui_ws/

NiceGUI keeps one application in a process, so there is one console in a process.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from nicegui import app as pages_app
from nicegui import core, ui

from schemas.base import echo
from streaming.api import ApiError, ErrorCode, GuardRules, PageRules, make_application
from streaming.console.console import Console
from streaming.console.frame import show_frame
from streaming.console.page import Page, View
from streaming.console.page_policy import SOCKETS, PagePolicy, install_nonces
from streaming.console.pages import PAGES
from streaming.console.pulse import Pulse
from streaming.console.sign_in import SIGN_IN, SIGN_OUT, make_sign_in

ASSETS = Path(__file__).parent / "assets"
# What shows nothing of the fleet: strangers may have it.
PUBLIC = (SIGN_IN, "/assets/", "/favicon.ico")
# A browser that comes back within it goes on with its page; a lid that was closed reloads.
RECONNECT_SECONDS = 10.0
_HEAD = (
    '<link rel="stylesheet" href="/assets/console.css">'
    '<script src="/assets/console.js" defer></script>'
)


def make_console(console: Console, rules: GuardRules, pages: Sequence[Page] = PAGES) -> FastAPI:
    """The application. `rules`: those of the API; its access must be the console's."""
    page_rules = PageRules(SIGN_IN, PUBLIC, frozenset({SIGN_IN, SIGN_OUT}), SOCKETS)
    rules = replace(rules, access=console.access, pages=page_rules)
    app = make_application(console.service, rules, console.now_ms)
    app.include_router(make_sign_in(console.access))

    @app.api_route("/api/{rest:path}", include_in_schema=False)
    async def unknown(request: Request) -> None:
        message = f"there is no {echo(request.url.path)}; see /api/v1/openapi.json"
        raise ApiError(404, ErrorCode.NOT_FOUND, message)

    pulse = Pulse(console.service.hub)
    for page in pages:
        if page.is_for(console):
            _register(console, page, pages, pulse)
    _mount(app)
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def live(whole: FastAPI) -> AsyncIterator[Any]:
        async with inner(whole) as state:
            try:
                yield state
            finally:
                await pulse.stop()

    app.router.lifespan_context = live
    return app


def _mount(app: FastAPI) -> None:
    install_nonces()
    # Where the guard stands, no other origin is answered; the server must not invite any.
    core.sio.eio.cors_allowed_origins = []
    pages_app.add_static_files("/assets", ASSETS, max_cache_age=0)
    ui.add_head_html(_HEAD, shared=True)
    logging.getLogger("nicegui").setLevel(logging.ERROR)

    ui.run_with(
        app,
        title="placer",
        favicon=ASSETS / "icon.svg",
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_SECONDS,
        tailwind=False,
        show_welcome_message=False,
    )
    pages_app.add_middleware(PagePolicy)


def _register(console: Console, page: Page, pages: Sequence[Page], pulse: Pulse) -> None:
    async def show(request: Request) -> None:
        view = View(console, page, request)
        with show_frame(view, pages):
            await view.build()
        pulse.add(view)

    ui.page(page.path, title=f"{page.title} · placer", response_timeout=30.0)(show)
