"""Pages about the project itself, from the files that every repository has."""

from pages import ROOT, Page, Section

FILES = {"Changelog": "CHANGELOG.md", "Contributing": "CONTRIBUTING.md", "Security": "SECURITY.md"}


def project() -> Section:
    """A page for each of the files."""
    pages = [Page(_address(title), title, _relinked((ROOT / name).read_text())) for title, name in FILES.items()]
    return Section("Project", pages)


def _address(title: str) -> str:
    return f"{title.lower()}.md"


def _relinked(text: str) -> str:
    """With links that go from page to page, not from file to file."""
    text = text.replace("](docs/", "](")
    for title, name in FILES.items():
        text = text.replace(f"]({name})", f"]({_address(title)})")
    return text
