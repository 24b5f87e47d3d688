"""Rewrite the figures of the README and of the pages from benchmarks/results, so that none is typed by hand.

python docs/scripts/refresh.py            # rewrite what stands between <!-- figures: NAME --> and <!-- end -->
python docs/scripts/refresh.py --check    # change nothing; exit with 1 if something is out of date
"""

import re
import sys
from pathlib import Path

from figures import FIGURES
from pages import ROOT

SECTION = re.compile(r"(<!-- figures: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """Every page that may quote figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def refreshed(text: str) -> str:
    """A page with its figures as they are in the results now."""
    return SECTION.sub(lambda found: f"{found[1]}\n{FIGURES[found[2]]()}\n\n{found[4]}", text)


def main(arguments: list[str]) -> int:
    """Rewrite the pages, or say which are out of date."""
    stale = []
    for path in pages():
        text = path.read_text()
        new = refreshed(text)
        if new != text:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(new)
    for path in stale:
        print(f"{'out of date' if '--check' in arguments else 'rewritten'}: {path.relative_to(ROOT)}")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
