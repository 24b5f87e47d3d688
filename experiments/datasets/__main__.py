"""`python -m experiments.datasets [NAME] [--fetch] [--output FILE.csv]`: list, fetch, describe and write data sets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.datasets import Dataset, DatasetError, available, data_folder, load


def main(arguments: list[str] | None = None) -> int:
    """List all data sets, or describe one."""
    parser = argparse.ArgumentParser(prog="python -m experiments.datasets", description="List and fetch data sets.")
    parser.add_argument("name", nargs="?", help="a data set to describe; without one, all are listed")
    parser.add_argument("--fetch", action="store_true", help="download it where it is absent, and check its checksum")
    parser.add_argument("--output", type=Path, help="write features, protected attributes and target as a CSV file")
    chosen = parser.parse_args(arguments)
    if chosen.name is None:
        for entry in available():
            state = "here" if entry.present else "can be fetched" if entry.fetchable else "absent"
            print(f"{entry.name:<12} {state:<15} {entry.summary}")
        print(f"Looked in {data_folder()}; FAIRLAYER_DATA names another folder.")
        return 0
    try:
        data = load(chosen.name, **({} if chosen.name == "synthetic" else {"fetch": chosen.fetch}))
    except DatasetError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{data.name}: {data.description}\n{len(data):,} rows, {len(data.features.columns)} features")
    print(f"Licence: {data.licence}. Source: {data.source}.")
    for column in data.protected.columns:
        for label, part in data.target.groupby(data.protected[column]):
            print(f"{column} = {label}: {len(part):,} rows, mean target {part.mean():.4g}")
    if chosen.output is not None:
        table(data).to_csv(chosen.output, index=False)
    return 0


def table(data: Dataset) -> Any:
    """Everything in one frame; a protected attribute that is not a feature under its name is added."""
    frame = data.features.copy()
    for column in data.protected.columns:
        if column not in frame.columns or not (frame[column] == data.protected[column]).all():
            frame[f"protected_{column}" if column in frame.columns else column] = data.protected[column]
    frame[data.target.name] = data.target
    return frame if data.split is None else frame.assign(split=data.split)


if __name__ == "__main__":
    sys.exit(main())
