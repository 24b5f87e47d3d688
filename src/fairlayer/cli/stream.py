"""`fairlayer stream`: what a stream has decided, from its store alone."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlayer.cli.options import option
from fairlayer.cli.output import note, say, show_table
from fairlayer.errors import InputError, StoreError
from fairlayer.extras import needs
from fairlayer.plural import plural
from fairlayer.tables.table_io import check_output, replacing, save_frame

if TYPE_CHECKING:
    from fairlayer.stream import Certificate, Stream, Verification

MOST_STEPS = 200  # drawn on a page, and kept in JSON
MOST_ENTRIES = 10  # shown of a log

Store = Annotated[str, typer.Argument(metavar="STORE", help="A SQLite file or a postgresql:// URL.")]
Name = Annotated[str | None, option("NAME", "The name of the stream, if the store holds several.")]


def list_(store: Store) -> int:
    """List the streams of a store.

    `fairlayer stream list decisions.db`
    """
    from fairlayer.stream import stream_names

    rows = []
    for name in stream_names(store):
        with _opened(store, name) as stream:
            drawn = stream.certificate()
            promised = ", ".join(f"{report.constraint} {report.tolerance:g}" for report in drawn.constraints)
            rows.append([name, stream.settings.policy, promised, drawn.samples, _verdict(drawn)])
    show_table(["stream", "policy", "constraints", "decisions", "now"], rows)
    return 0


def show(store: Store, name: Name = None) -> int:
    """Show the settings of a stream, its groups and its latest entries.

    `fairlayer stream show decisions.db --name loans`
    """
    with _opened(store, name) as stream, stream.transaction():
        drawn, steps = stream.certificate(), stream.timeline().steps
        settings = stream.settings.describe()
    batches = f"{drawn.batches:,} {plural(drawn.batches, 'batch', 'batches')}"
    for setting, value in {**settings, "decisions": f"{drawn.samples:,} in {batches}"}.items():
        say(f"{setting}: {value}")
    measure = drawn.groups[0].measure if drawn.groups else "mean"
    groups = [[group.group, group.count, group.mean, group.raw_mean] for group in drawn.groups]
    show_table(["group", "decisions", measure, f"raw {measure}"], groups, "Groups")
    latest = [
        [s.number, s.time[:16].replace("T", " "), s.kind, s.batch_id, s.decisions, s.status, *s.gaps]
        for s in steps[-MOST_ENTRIES:]
    ]
    gaps = [f"gap, {report.constraint}" for report in drawn.constraints]
    header = ["entry", "time, UTC", "kind", "batch id", "decisions", "status", *gaps]
    show_table(header, latest, f"The latest {len(latest)} of {len(steps):,} entries")
    return 0


def verify(
    store: Store,
    name: Annotated[str | None, option("NAME", "The name of the stream. By default, all are verified.")] = None,
    hash: Annotated[str | None, option("HASH", "A head of the log that must still be in it.")] = None,  # noqa: A002
) -> int:
    """Compute every ledger again from its log, and find any change.

    The exit code is 0 if nothing was changed, and 1 otherwise. An earlier certificate states the head that the log
    had then: as long as it is still in the log, the log has not been rewritten since.

    `fairlayer stream verify decisions.db`
    """
    from fairlayer.stream import stream_names

    names = [name] if name is not None else stream_names(store)
    if hash is not None and len(names) != 1:
        raise InputError(f"--hash is of one stream: add --name, one of {', '.join(names)}.")
    code = 0
    for one in names:
        with _opened(store, one) as stream:
            found = stream.verify(hash=hash)
        say(f"{one}: {found}")
        code = code if found else 1
    return code


def certificate(
    store: Store,
    name: Name = None,
    output: Annotated[
        Path | None, option("FILE", "Also write it to an .html, .json or .txt file.", "--output", "-o")
    ] = None,
) -> int:
    """Certify the present state of a stream.

    The record is verified first. The page shows gaps, groups and changes over time, computed again from the log, with
    JSON beside it. The exit code is 0 if the guarantee is kept and the record was not changed, and 1 otherwise.

    `fairlayer stream certificate decisions.db --name loans -o certificate.html`
    """
    if output is not None:
        _check_ending(output, ".html", ".htm", ".json", ".txt")
        check_output(output, Path(store))
        check_output(output.with_suffix(".json"), Path(store))
    with _opened(store, name) as stream, stream.transaction():  # one moment, also beside writers
        verification, drawn = stream.verify(), stream.certificate()
        text = f"{drawn}\n  {verification}"
        if output is None:
            texts = {}
        elif output.suffix.lower() == ".txt":
            texts = {output: text + "\n"}
        else:
            texts = _page_and_data(stream, drawn, verification, output)
    for path, content in texts.items():
        with replacing(path) as temporary:
            temporary.write_text(content, "utf-8")
    say(text)
    if texts:
        note(f"Wrote {', '.join(map(str, texts))}.")
    return 0 if drawn.kept and verification else 1


def export(
    store: Store,
    output: Annotated[Path, option("FILE", "The .csv, .parquet or .jsonl file to write.", "--output", "-o")],
    name: Name = None,
) -> int:
    """Write the log of a stream to a file, for other programs.

    CSV and Parquet have one row per entry: time, decisions, status, gaps, changes and the mean of every group. JSON
    lines have the entries as they are stored, with their hashes.

    `fairlayer stream export decisions.db -o log.csv`
    """
    _check_ending(output, ".csv", ".tsv", ".parquet", ".jsonl")
    check_output(output, Path(store))
    with _opened(store, name) as stream, replacing(output) as temporary:
        rows = (_write_entries if output.suffix.lower() == ".jsonl" else _write_rows)(stream, temporary)
    note(f"Wrote {rows:,} {plural(rows, 'entry', 'entries')} to {output}.")
    return 0


def _opened(store: str, name: str | None) -> closing[Stream]:
    """The stream of that name, or the only one there is, to be read."""
    from fairlayer.stream import Stream, stream_names

    if name is None:
        names = stream_names(store)
        if len(names) != 1:
            listed = f"several streams: add --name, one of {', '.join(names)}." if names else "no streams."
            raise StoreError(f"the store holds {listed}")
        name = names[0]
    return closing(Stream.open(store, name, read_only=True))


def _check_ending(output: Path, *endings: str) -> None:
    if output.suffix.lower() not in endings:
        raise InputError(f"-o: {output} must end in {', '.join(endings[:-1])} or {endings[-1]}.")


def _verdict(drawn: Certificate) -> str:
    if drawn.satisfied:
        return "satisfied"
    return "violated" if drawn.broken else "within half a decision" if drawn.kept else "undecided"


def _page_and_data(stream: Stream, drawn: Certificate, verification: Verification, output: Path) -> dict[Path, str]:
    """The certificate as a page, unless JSON alone is asked for, and as data."""
    steps = stream.timeline().condensed(MOST_STEPS) if verification else ()
    data = {
        "certificate": drawn.to_dict(),
        "settings": json.loads(stream.settings.to_text()),
        "verification": {
            "whole": bool(verification),
            "entries": verification.entries,
            "problems": verification.problems,
        },
        "timeline": [{**step._asdict(), "groups": [vars(group) for group in step.groups]} for step in steps],
    }
    texts = {output.with_suffix(".json"): json.dumps(data, indent=2) + "\n"}
    if output.suffix.lower() == ".json":
        return texts
    from fairlayer.report.stream_page import render_stream

    facts = {"store": stream.place, **stream.settings.describe()}
    return {output: render_stream(drawn, steps, verification, facts), **texts}


def _write_entries(stream: Stream, path: Path) -> int:
    """The settings, then one entry per line, as they are stored; the number of entries."""
    number = 0
    with path.open("w", encoding="utf-8") as file:
        print(json.dumps({"stream": stream.name, "configuration": stream.configuration}), file=file)
        for number, entry in enumerate(stream.entries(), 1):  # noqa: B007
            emitted = None if entry.emitted is None else entry.emitted.hex()
            print(json.dumps({**entry._asdict(), "emitted": emitted}), file=file)
    return number


def _write_rows(stream: Stream, path: Path) -> int:
    """One row per entry; their number."""
    with needs("Writing a table", "pandas"):
        import pandas as pd

    titles = [report.constraint for report in stream.certificate().constraints]
    rows = []
    for step in stream.timeline().steps:
        row: dict[str, Any] = step._asdict()
        gaps, groups = row.pop("gaps"), row.pop("groups")
        row |= {f"gap, {title}": gap for title, gap in zip(titles, gaps, strict=True)}
        for group in groups:
            row |= {f"count, {group.group}": group.count, f"mean, {group.group}": group.mean}
            row |= {f"raw mean, {group.group}": group.raw_mean}
        rows.append(row)
    frame = pd.DataFrame(rows).rename(columns={"number": "entry", "samples": "decisions_so_far"})
    save_frame(frame, path)
    return len(frame)
