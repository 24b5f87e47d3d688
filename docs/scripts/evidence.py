"""What was measured: the benchmarks, and the paper's experiments run again. Nothing here is written by hand."""

import json
import re
from pathlib import Path

from pages import ROOT, Page, Section, heading, read_csv, table

BENCHMARKS = ROOT / "benchmarks"
SCREENSHOTS = ROOT / "docs" / "screenshots"
EXPERIMENTS = ROOT / "experiments" / "results"
PICTURES = (".png", ".svg")
MOST_ROWS = 80  # of a table that is shown; longer ones are linked
ORDER = (".md", ".svg", ".png", ".csv", ".json")
QUICK = "quick"

RESULTS_INTRODUCTION = """# Results of the paper

The experiments of the paper, run again with this library. Every table and picture is what an experiment wrote; nothing
is typed by hand. `published` is what the paper says, `stored` what its authors' own result files give, `measured` what
came out here.
"""


def benchmarks() -> Section:
    """How the benchmarks are run, and a page for each that has results."""
    section = Section("Benchmarks")
    results = BENCHMARKS / "results"
    listed = []
    for path in sorted(results.glob("*.md")):
        text = path.read_text()
        if path.stem == "targets":
            text = f"# Figures with a limit\n\n{text}"
        page = Page(f"benchmarks/{path.name}", heading(text, path.stem), text)
        section.pages.append(page)
        listed.append(f"- [{page.title}]({path.name})")
    section.files = {
        f"benchmarks/{path.name}": path for path in sorted(results.iterdir()) if path.suffix in (*PICTURES, ".csv")
    }
    text = (BENCHMARKS / "README.md").read_text()
    index = f"{text}\n## Results\n\n" + "\n".join(listed) + "\n"
    section.pages.insert(0, Page("benchmarks/index.md", "Benchmarks", index))
    return section


def screenshots(depth: int) -> str:
    """The pictures in docs/screenshots, small and linked to themselves, for a page so many folders deep."""
    found = (path for path in SCREENSHOTS.glob("*") if path.suffix in PICTURES)
    pictures = sorted(found, key=lambda path: ("desktop" not in path.stem, path.stem))
    lines = []
    for path in pictures:
        address = f"{'../' * depth}screenshots/{path.name}"
        lines.append(f"[![{re.sub('[-_]', ' ', path.stem)}]({address}){{ .shot }}]({address})")
    return "\n".join(lines)


def experiments() -> Section | None:
    """The paper's experiments: what became of its claims, and every table and picture that was kept."""
    section = Section("Results of the paper")
    for folder in sorted(EXPERIMENTS.glob("*/")):
        parts = [part for profile in _profiles(folder) for part in _kept(profile, section)]
        if parts:
            name = folder.name.replace("_", " ").capitalize()
            written = f"Written by `./dev paper {folder.name}`."
            text = "\n\n".join([f"# {name}", written, *_said(folder), *parts])
            section.pages.append(Page(f"results/{folder.name}.md", name, text + "\n"))
    if not section.pages:
        return None
    claims = EXPERIMENTS / "claims.md"  # all of them, those not run, too, and how they are judged
    parts = [RESULTS_INTRODUCTION, *(f"- [{page.title}]({Path(page.uri).name})" for page in section.pages)]
    if claims.exists():
        parts += ["\n## Claims\n", claims.read_text()]
    section.pages.insert(0, Page("results/index.md", section.title, "\n".join(parts) + "\n"))
    return section


def _said(folder: Path) -> list[str]:
    """What is to be known of an experiment's results, such as where they were run."""
    note = folder / "README.md"
    return [note.read_text().strip()] if note.exists() else []


def _profiles(folder: Path) -> list[Path]:
    """The runs of an experiment that say something; a quick one only shows that everything runs."""
    return [path for path in sorted(folder.glob("*/")) if path.name != QUICK]


def _kept(profile: Path, section: Section) -> list[str]:
    """What one run left: its settings, pages, pictures, and tables that can be read; files are linked."""
    base = f"{profile.parent.name}/{profile.name}"
    parts: list[str] = []
    if all(path.suffix not in (*PICTURES, ".csv", ".md") for path in profile.iterdir()):
        return parts  # still running
    for path in sorted(
        profile.iterdir(), key=lambda path: (ORDER.index(path.suffix) if path.suffix in ORDER else 9, path)
    ):
        title = path.stem.replace("_", " ").replace("-", " ").capitalize()
        if path.suffix in (*PICTURES, ".csv"):
            section.files[f"results/{base}/{path.name}"] = path
        if path.suffix in PICTURES:
            parts.append(f"![{title}]({base}/{path.name})")
        elif path.suffix == ".csv":
            shown = [] if path.with_suffix(".md").exists() else [f"### {title}", _csv(path)]
            parts += [*shown, f"[{path.name}]({base}/{path.name})"]
        elif path.suffix == ".md":
            parts += [f"### {title}", re.sub(r"^#+ ", "#### ", path.read_text(), flags=re.MULTILINE)]
        elif path.name == "meta.json":
            parts += ["### Settings", _settings(path)]
    return [f"## Profile: {profile.name.replace('_', ' ')}", *parts]


def _settings(path: Path) -> str:
    entries = json.loads(path.read_text())
    plain = {key: value for key, value in entries.items() if isinstance(value, str | int | float | bool)}
    return table(("setting", "value"), plain.items())


def _csv(path: Path) -> str:
    rows = read_csv(path)
    if not rows or len(rows) > MOST_ROWS:
        return f"{len(rows):,} rows."
    return table(list(rows[0]), ([_shortened(text) for text in row.values()] for row in rows))


def _shortened(text: str) -> str:
    """A number with four significant digits; anything else as it is."""
    try:
        return f"{float(text):.4g}" if "." in text else text
    except ValueError:
        return text
