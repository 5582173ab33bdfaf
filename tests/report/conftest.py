"""A real headless browser, where there is one."""

import os
import shutil

import pytest

PATIENCE = 300_000  # milliseconds, for a busy machine
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser():
    """Chromium, through the DevTools protocol; nothing is downloaded. Its event loop runs until it is closed."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the path (Debian: apt-get install chromium)")
    missing = "playwright is not installed (pip install playwright; it drives the browser that is there)"
    playwright = pytest.importorskip("playwright.sync_api", reason=missing)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root with one
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=[*sandbox, "--disable-gpu"], timeout=PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Open an HTML file without a network; what it complains about, or asks the network for, fails the test."""
    complaints, contexts = [], []

    def open_(path, **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda r: complaints.append(f"request: {r.url}") if r.url.startswith("http") else None)
        page.goto(path.resolve().as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
