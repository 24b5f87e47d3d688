"""What mkdocs calls while it builds the site: pages that are written from the code and from what was measured."""

from typing import Any

from api import api
from commands import commands_page
from evidence import benchmarks, experiments, screenshots
from gallery import gallery
from mkdocs.structure.files import File
from pages import Section
from project import project

SCREENSHOTS = "<!-- screenshots -->"
_sections: list[Section] = []


def on_config(config: Any) -> Any:
    """Write the pages, and add them to the navigation."""
    reference = api()
    reference.pages.insert(0, commands_page())
    _sections[:] = [section for section in (gallery(), reference, experiments(), benchmarks(), project()) if section]
    config.nav = [entry for entry in config.nav if not _is_generated(entry)]
    config.nav += [section.navigation() for section in _sections]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Put the pages beside those in docs/."""
    for section in _sections:
        for page in section.pages:
            files.append(File.generated(config, page.uri, content=page.text))
        for uri, path in section.files.items():
            files.append(File.generated(config, uri, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show the screenshots of reports where a page asks for them."""
    return markdown.replace(SCREENSHOTS, screenshots(page.file.src_uri.count("/")))


def _is_generated(entry: Any) -> bool:
    """Whether an entry of the navigation was added by an earlier build, as when mkdocs serves."""
    return isinstance(entry, dict) and next(iter(entry)) in {section.title for section in _sections}
