"""The site builds strictly, documents every public name and command, and needs no network."""

from __future__ import annotations

import re
import shutil
from importlib import import_module

import pytest
from built import ROOT, read
from names import ALONGSIDE, address, public_modules, public_names


def test_every_page_is_there(site):
    for page in ("index", "start", "mathematics", "guide/choosing", "gallery/index", "benchmarks/index", "changelog"):
        assert (site / f"{page}.html").exists(), page
    for source in (ROOT / "docs").rglob("*.md"):
        assert (site / source.relative_to(ROOT / "docs").with_suffix(".html")).exists(), source


def test_public_modules_are_found():
    known = {"fairlayer", "fairlayer.metrics", "fairlayer.sklearn", "fairlayer.training"}
    assert known <= set(public_modules())


@pytest.mark.parametrize("module", public_modules())
def test_every_public_name_is_documented(site, module):
    found = read(site / "reference" / f"{module}.html").ids
    wanted = {address(module, name) for name in public_names(module)} | set(ALONGSIDE.get(module, []))
    assert not wanted - found


def plain(text):
    """Text as a reader sees it: no marks of code, and single spaces."""
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize("module", public_modules())
def test_every_public_name_has_a_docstring(module):
    found = import_module(module)
    assert found.__doc__
    described = {name: getattr(found, name) for name in public_names(module)}
    assert not [name for name, value in described.items() if callable(value) and not value.__doc__]


def test_every_command_and_option_is_documented(site):
    from commands import application, commands, parameters, record

    page = read(site / "reference" / "commands.html")
    text = plain("".join(page.text))
    for path, command in commands(application()):
        assert command.help, f"{path} has no help text"
        assert path in text
        for parameter in parameters(command):
            assert parameter.help, f"{path}: {parameter.name} has no help text"
            for said in record(command, parameter):
                assert plain(said) in text, f"{path}: {said}"


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        far = [address for address in read(page).loads if re.match(r"(https?:)?//", address)]
        assert not far, f"{page.relative_to(site)} loads {far}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text()), sheet


def test_pages_open_from_a_folder_without_a_network(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium is installed")
    asked: list[str] = []
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in ("index", "guide/audit", "reference/fairlayer"):
            page = browser.new_page(viewport={"width": 390, "height": 844})
            page.on("request", lambda request: asked.append(request.url))
            page.goto((site / f"{name}.html").as_uri(), wait_until="networkidle")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} is too wide"
        browser.close()
    assert asked
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def test_fields_are_documented_by_their_comments(site):
    assert "fairlayer.training.Evaluation.batch_gap" in read(site / "reference" / "fairlayer.training.html").ids


def test_every_benchmark_with_results_has_a_page(site):
    for result in (ROOT / "benchmarks" / "results").glob("*.md"):
        assert (site / "benchmarks" / f"{result.stem}.html").exists()


def test_links_of_the_readme_resolve():
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", readme)
    local = [link for pair in links for link in pair if link and not link.startswith("http")]
    assert len(local) > 5
    assert not [link for link in local if not (ROOT / link).exists()]
