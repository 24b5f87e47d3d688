"""Pages about the project itself, from the files that every repository has."""

from pages import ROOT, Page, Section

FILES = {"Changelog": "CHANGELOG.md", "Contributing": "CONTRIBUTING.md", "Security": "SECURITY.md"}


def project() -> Section:
    """A page for each of the files."""
    pages = [Page(f"{title.lower()}.md", title, (ROOT / name).read_text()) for title, name in FILES.items()]
    return Section("Project", pages)
