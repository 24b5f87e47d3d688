"""A page of the built site, as its readers and their browsers see it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Words(HTMLParser):
    """The text of a page, the ids in it, and the addresses it loads or links to."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.ids.add(attributes.get("id") or "")
        address = attributes.get("src") or attributes.get("href") or ""
        (self.links if tag == "a" else self.loads).append(address)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: Path) -> Words:
    words = Words()
    words.feed(page.read_text())
    return words
