"""A real browser for the page: Debian's chromium, else a skip (a failure in CI)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests import servers


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; every page of it fails the test that opened it when the console shows an error."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        servers.missing("no playwright: pip install 'maxboard[dev]'")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        servers.missing("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page(browser: Any, url: str, width: int = 1280, height: int = 900, **options: Any) -> Iterator[Any]:
    """A page that has loaded; an error on the console, or a request elsewhere, fails the test."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    found, wrong = context.new_page(), list[str]()
    found.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    found.on("response", lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 500 else None)
    found.on("pageerror", lambda error: wrong.append(str(error)))
    origin = url.partition("/#")[0]
    found.on("request", lambda asked: None if asked.url.startswith(origin) else wrong.append(f"asks {asked.url}"))
    try:
        found.goto(url)
        yield found
        assert wrong == [], wrong
    finally:
        context.close()
