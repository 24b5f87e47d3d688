"""The page in headless Chromium: quiet, self-contained, readable on a phone, printable, and deaf to names from data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from report_audits import EVERY, hostile, ordinary

from chromium import NoBrowserError, running_browser
from fairlayer.report.page import write_html

PHONE, DESK = 390, 1280
PAPER = 688  # A4 less its margins


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        with running_browser() as browser:
            yield browser
    except NoBrowserError as error:
        pytest.skip(str(error))


@dataclass
class Visit:
    """A page that was opened, and all that happened meanwhile."""

    page: Any
    address: str
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser, tmp_path):
    pages = []

    def open_page(audit: Any, width: int = DESK, **options: Any) -> Visit:
        path: Path = write_html(audit, tmp_path / "report.html")
        page = browser.new_page(viewport={"width": width, "height": 844}, **options)
        pages.append(page)
        seen = Visit(page, path.as_uri())
        page.on("console", lambda message: seen.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.messages.append(str(error)))
        page.on("dialog", lambda dialog: (seen.messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(seen.address)
        return seen

    yield open_page
    for page in pages:
        page.close()


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_quiet_self_contained_and_every_plot_within_the_window(visit, make, width):
    seen = visit(make(), width)
    assert seen.messages == []
    assert seen.requests == [seen.address]
    page = seen.page
    plots = page.locator("svg[role=img]")
    boxes = plots.evaluate_all("plots => plots.map(p => p.getBoundingClientRect()).map(b => [b.x, b.width, b.height])")
    assert len(boxes) > 0
    assert [box for box in boxes if box[0] < 0 or box[0] + box[1] > width or box[1] < 100 or box[2] < 20] == []
    beyond = page.evaluate(
        """width => [...document.querySelectorAll('svg[role=img] *, .axis *, .rows *, figcaption, .verdict *')]
            .filter(e => { const b = e.getBoundingClientRect(); return b.right > width + 1 || b.left < -1 })
            .map(e => e.outerHTML.slice(0, 200))""",
        width,
    )
    assert beyond == []
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_text_is_readable_on_a_phone(visit):
    page = visit(ordinary(), PHONE).page
    sizes = page.evaluate(
        """[...document.querySelectorAll('body *')].filter(e => e.children.length === 0 && e.textContent.trim()
            && e.getBoundingClientRect().height > 1).map(e => parseFloat(getComputedStyle(e).fontSize))"""
    )
    assert min(sizes) >= 12
    links = page.locator("nav a").evaluate_all("links => links.map(a => a.getBoundingClientRect().height)")
    assert min(links) >= 24


def test_names_from_data_run_nothing_and_the_page_forbids_scripts(visit):
    seen = visit(hostile())
    assert seen.page.locator("script, img").count() == 0
    assert seen.page.get_by_text("<script>window.hacked = true</script>").first.is_visible()
    seen.page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'window.hacked = true';
            document.body.append(s) }"""
    )
    assert seen.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in message for message in seen.messages)


def test_tables_scroll_in_their_own_box_and_by_keyboard(visit):
    page = visit(ordinary(), PHONE).page
    box = page.locator("#intersections .scroll")
    assert box.evaluate("b => b.scrollWidth > b.clientWidth")
    box.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(50):  # scrolling is smooth; the page's policy leaves no way to wait for it inside the page
        page.wait_for_timeout(20)
        if box.evaluate("b => b.scrollLeft") > 0:
            return
    pytest.fail("the arrow key does not scroll the table")


def test_the_keyboard_reaches_links_and_figures(visit):
    page = visit(ordinary()).page
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "DIV"} <= set(reached)
    summary = page.locator("#gaps summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#gaps table").is_visible()


@pytest.mark.parametrize("make", [ordinary, hostile])
def test_it_prints(visit, make):
    page = visit(make()).page
    printed = page.pdf(format="A4")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") >= 3
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": PAPER, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def outline(printed: bytes) -> list[tuple[int | None, int | None]]:
    """The sections of a PDF that Chromium wrote that have subheadings: the pages of heading and first subheading."""
    objects = {int(k): text for k, text in re.findall(rb"(\d+) 0 obj\n(.*?)endobj", printed, re.DOTALL)}

    def number(name: bytes, text: bytes) -> int | None:
        found = re.search(name + rb" \[?(\d+) 0 R", text)
        return int(found.group(1)) if found else None

    headings = {k: text for k, text in objects.items() if b"/Title" in text and b"/Dest" in text}
    sections = {text: number(b"/First", text) for text in headings.values() if number(b"/Parent", text) in headings}
    pages = {k: number(b"/Dest", text) for k, text in headings.items()}
    return [(number(b"/Dest", text), pages[first]) for text, first in sections.items() if first is not None]


@pytest.mark.parametrize("make", ["ordinary", "crowded", "unfair"])
def test_headings_stay_with_their_plots_in_print(visit, make):
    sections = outline(visit(EVERY[make]()).page.pdf(format="A4", tagged=True, outline=True))
    assert len(sections) >= 3
    assert [(heading, plot) for heading, plot in sections if heading != plot] == []


CONTRAST = """() => {
  const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
  const luminance = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const colour = text => text.match(/[\\d.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = colour(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c }
    return [255, 255, 255] };
  return [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(
      n => n.nodeType === 3 && n.textContent.trim()) && e.getBoundingClientRect().height > 1
      && !['TITLE', 'DESC', 'STYLE'].includes(e.tagName.toUpperCase())).map(e => {
    const style = getComputedStyle(e);
    const [a, b] = [luminance(colour(e instanceof SVGElement ? style.fill : style.color)), luminance(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 120)] })
}"""


@pytest.mark.parametrize(("make", "scheme"), [("ordinary", "light"), ("ordinary", "dark"), ("unfair", "dark")])
def test_contrast_of_text_is_enough(visit, make, scheme):
    measured = visit(EVERY[make](), color_scheme=scheme).page.evaluate(CONTRAST)
    assert len(measured) > 50
    assert [entry for entry in measured if entry[0] < 4.5] == []
