"""Everything that is written from the results of a picture experiment."""

from __future__ import annotations

from pathlib import Path

from experiments.pictures import figures, tables
from experiments.pictures.settings import Settings
from experiments.pictures.tables import Row
from experiments.tables import markdown, write_csv


def summarise(name: str, results: list[Row], settings: Settings, folder: Path) -> None:
    """Write every table and figure."""
    rows, served = (tables.flatten(results, what) for what in ("rows", "served"))
    written = {
        "methods": tables.method_table(name, rows, settings),
        "ranks": tables.rank_table(name, rows, settings),
        "tolerances": tables.tolerance_table(name, rows, settings),
        "batch_sizes": tables.size_table(name, served),
        "strengths": tables.strength_table(results),
    }
    for title, table in written.items():
        write_csv(folder / f"{title}.csv", table)
    (folder / "methods.md").write_text(markdown(written["methods"]) + "\n")
    networks = tables.titles(settings)
    figures.draw_methods(written["methods"], networks, folder / "methods.svg")
    figures.draw_tolerances(written["tolerances"], networks, folder / "tolerances.svg")
    figures.draw_batch_sizes(written["batch_sizes"], networks, settings, folder / "batch_sizes.svg")
    figures.draw_training(results, networks, settings, folder / "training.svg")
