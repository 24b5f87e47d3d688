"""`fairlayer datasets`: the tables and pictures that fairness methods are judged by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairlayer.cli.terminal import note, say, show_table
from fairlayer.errors import InputError
from fairlayer.tables.table_io import check_format, check_output, replacing, save_frame


def datasets(name: str | None = None, fetch: bool = False, output: Path | None = None) -> int:
    """List, fetch and describe datasets.

    Files are looked for in the folder that FAIRLAYER_DATA names, else in a cache in your home, to which those with a
    public address are fetched. `synthetic` is generated, and always there.

    `fairlayer datasets adult --fetch -o adult.csv`

    NAME: A dataset to describe; without one, all are listed.
    --fetch: Download it where it is not there, and check it against its checksum.
    --output, -o FILE: Write it as a CSV or Parquet file: features, protected attributes and target.
    """
    from fairlayer import datasets as library

    listed = {entry.name: entry for entry in library.available()}
    if name is None:
        if fetch or output is not None:
            raise InputError(f"--fetch and -o need the name of a dataset, one of {', '.join(listed)}.")
        rows = [[entry.name, _state(entry), entry.summary] for entry in listed.values()]
        show_table(["name", "state", "what it is"], rows)
        note(f"Looked in {library.data_folder()}; FAIRLAYER_DATA names another folder.")
        return 0
    if name not in listed:
        raise InputError(f"There is no dataset {name!r}; there are {', '.join(listed)}.")
    if output is not None:
        check_format(output, "-o")
        check_output(output)
    if not listed[name].present and not fetch:
        say(f"{name}: {listed[name].summary}")
        hint = f"`fairlayer datasets {name} --fetch` downloads it" if listed[name].fetchable else "get it by hand"
        place = library.data_folder() / name
        raise InputError(f"{name} is not in {place}: {hint}, or set FAIRLAYER_DATA to a folder with it.")
    data = library.load(name) if name == "synthetic" else library.load(name, fetch=fetch)
    _describe(data)
    if output is not None:
        with replacing(output) as temporary:
            save_frame(_frame(data), temporary)
        note(f"Wrote {len(data):,} rows to {output}.")
    return 0


def _state(entry: Any) -> str:
    return "here" if entry.present else "can be fetched" if entry.fetchable else "absent"


def _describe(data: Any) -> None:
    target = data.target
    say(f"{data.name}: {data.description}")
    kind = f"{data.task}, target {target.name!r}, mean {float(target.mean()):.4g}"
    say(f"{len(data):,} rows, {len(data.features.columns)} features; {kind}.")
    say(f"Licence: {data.licence}. Source: {data.source}.")
    rows = [
        [str(column), str(label), len(part), float(part.mean())]
        for column in data.protected.columns
        for label, part in target.groupby(data.protected[column])
    ]
    show_table(["attribute", "group", "rows", "mean target"], rows)


def _frame(data: Any) -> Any:
    """Everything in one frame; a protected attribute that is not a feature under its name is added."""
    frame = data.features.copy()
    for column in data.protected.columns:
        if column not in frame.columns or not (frame[column] == data.protected[column]).all():
            frame[f"protected_{column}" if column in frame.columns else column] = data.protected[column]
    frame[data.target.name] = data.target
    if data.split is not None:
        frame["split"] = data.split
    return frame
