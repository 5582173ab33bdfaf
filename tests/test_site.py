"""The docs site in a real browser: nothing comes from the network, no page is wider than its screen, search finds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .report.conftest import PATIENCE, browser  # noqa: F401

pytestmark = pytest.mark.matrix

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs", reason="the docs extra is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=REPOSITORY, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True)
    assert built.returncode == 0, built.stderr.decode()[-3000:]
    return folder


@pytest.fixture
def page(browser):  # noqa: F811
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_screen(width, site, page):
    page.set_viewport_size({"width": width, "height": 900})
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})  # 404.html has addresses of a server
    assert len(pages) > 25
    for path in pages:
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_palette_is_that_of_the_system(scheme, site, page):
    page.emulate_media(color_scheme=scheme)
    page.goto((site / "index.html").as_uri())
    assert page.locator("body").get_attribute("data-md-color-scheme") == {"light": "default", "dark": "slate"}[scheme]


def test_search_finds_a_page_without_a_server(site, page):
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").fill("prefix baseline")
    results = page.locator(".md-search-result__article h1")
    results.first.wait_for()
    assert "Prefix baseline" in results.all_inner_texts()
