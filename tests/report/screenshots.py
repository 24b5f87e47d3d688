"""Screenshots of a report, for the documentation: `python tests/report/screenshots.py [FOLDER]`.

The report is of a classifier trained on Adult and audited on its test rows, where FAIRLAYER_DATA has the data; of one
of the synthetic sets otherwise. The page itself is kept beside the pictures with --page.
"""

from __future__ import annotations

import argparse
import datetime
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fairlayer import MeanParity
from fairlayer.audit import Audit, audit
from fairlayer.report.page import write_html
from fairlayer.sklearn import FairClassifier

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
from chromium import NoBrowserError, running_browser
from experiments.datasets import Dataset, DatasetError, load

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
CONSTRAINTS = [MeanParity(0.02)]
COLOURS = 128  # of a picture: enough for flat areas and the edges of letters

# Name of the picture: width of the window, scheme, scale, and from where to where: (first section, last section).
SHOTS: dict[str, tuple[int, str, float, tuple[str, str]]] = {
    "report-desktop.png": (1200, "light", 1.0, ("top", "gaps")),
    "report-plots.png": (1200, "light", 1.0, ("distributions", "groups")),
    "report-methods.png": (1200, "light", 1.0, ("tradeoff", "history")),
    "report-dark.png": (1200, "dark", 1.0, ("calibration", "calibration")),
    "report-phone.png": (390, "light", 2.0, ("top", "gaps")),
}


def data() -> tuple[Dataset, Dataset]:
    """Rows to train on, and rows to audit."""
    try:
        adult = load("adult", fetch=False)
        return adult.part("train"), adult.part("test")
    except DatasetError as error:
        print(f"Synthetic data, as there are no others: {error}", file=sys.stderr)
    made = load("synthetic", index=0)
    order = np.random.default_rng(0).permutation(len(made))
    return made.rows(order[: len(made) // 2]), made.rows(order[len(made) // 2 :])


def example() -> Audit:
    """A model trained through the layer."""
    train, test = data()
    model = FairClassifier(CONSTRAINTS, method="layer", random_state=0, max_epochs=40)
    model.fit(train.features, train.target, sensitive_features=train.protected)
    raw, predicted = model.outputs(test.features, sensitive_features=test.protected)
    target = np.asarray(test.target)
    return audit(predicted, test.protected, CONSTRAINTS, target, raw=raw, history=model.history_)


def shoot(browser: Any, page_path: Path, folder: Path) -> None:
    """All pictures of one page."""
    for name, (width, scheme, scale, (first, last)) in SHOTS.items():
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, device_scale_factor=scale
        )
        page.goto(page_path.as_uri())
        top = 0 if first == "top" else page.locator(f"#{first}").bounding_box()["y"] - 8
        box = page.locator(f"#{last}").bounding_box()
        clip = {"x": 0, "y": top, "width": width, "height": box["y"] + box["height"] - top + 16}
        picture = Image.open(io.BytesIO(page.screenshot(clip=clip, full_page=True))).convert("RGB")
        small = picture.quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(folder / name, optimize=True)
        print(f"{folder / name}: {(folder / name).stat().st_size // 1024} KB")
        page.close()


def main() -> int:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--page", type=Path, help="where to keep the page, too")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.page or options.folder / "report.html"
    write_html(example(), kept, title="Fairness audit: income above 50,000 dollars", date=datetime.date.today())
    try:
        with running_browser() as browser:
            shoot(browser, kept.resolve(), options.folder)
    except NoBrowserError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if options.page is None:
            kept.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
