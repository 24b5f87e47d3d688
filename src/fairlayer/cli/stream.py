"""`fairlayer stream`: what a stream has decided, from its store alone."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlayer.cli.options import option
from fairlayer.cli.terminal import Command, Group, help_without_command, note, say, show_table
from fairlayer.errors import InputError, StoreError
from fairlayer.extras import needs
from fairlayer.plural import plural
from fairlayer.tables.table_io import check_output, replacing, save_frame

if TYPE_CHECKING:
    from fairlayer.stream import Certificate, Stream, Verification

MOST_STEPS = 200  # drawn on a page, and kept in JSON
MOST_ENTRIES = 10  # shown of a log
TITLES = {"number": "entry", "samples": "decisions_so_far"}  # of what an entry has, where they are others

commands = typer.Typer(
    cls=Group,
    help="Inspect streams of decisions: what was promised, what was decided, and whether the record is whole. The "
    "store is only read; it holds the settings of its streams.",
)
Store = Annotated[str, typer.Argument(metavar="STORE", help="A SQLite file or postgresql:// URL.")]
Name = Annotated[str | None, option("NAME", "The name of the stream, if the store holds several.")]

commands.callback(invoke_without_command=True)(help_without_command)


@commands.command("list", cls=Command)
def list_streams(store: Store) -> int:
    """List the streams of a store.

    `fairlayer stream list decisions.db`
    """
    from fairlayer.stream import stream_names

    rows = []
    for name in stream_names(store):
        with _opened(store, name) as stream:
            certificate = stream.certificate()
            promised = ", ".join(f"{report.constraint} {report.tolerance:g}" for report in certificate.constraints)
            rows.append([name, stream.settings.policy, promised, certificate.samples, _verdict(certificate)])
    show_table(["stream", "policy", "constraints", "decisions", "now"], rows)
    return 0


@commands.command("show", cls=Command)
def show(store: Store, name: Name = None) -> int:
    """Show the settings of a stream, its groups and its latest entries.

    `fairlayer stream show decisions.db --name loans`
    """
    with _opened(store, name) as stream, stream.transaction():
        certificate, steps = stream.certificate(), stream.timeline().steps
        for setting, value in stream.settings.describe().items():
            say(f"{setting}: {value}")
        batches = f"{certificate.batches:,} {plural(certificate.batches, 'batch', 'batches')}"
        say(f"decisions: {certificate.samples:,} in {batches}")
    groups = [[group.group, group.count, group.mean, group.raw_mean] for group in certificate.groups]
    measure = certificate.groups[0].measure if certificate.groups else "mean"
    show_table(["group", "decisions", measure, f"raw {measure}"], groups, "Groups")
    latest = steps[-MOST_ENTRIES:]
    titles = [report.constraint for report in certificate.constraints]
    rows = [
        [s.number, s.time[:16].replace("T", " "), s.kind, s.batch_id, s.decisions, s.status, *s.gaps] for s in latest
    ]
    header = ["entry", "time, UTC", "kind", "batch id", "decisions", "status", *(f"gap, {title}" for title in titles)]
    show_table(header, rows, f"The latest {len(latest)} of {len(steps):,} entries")
    return 0


@commands.command("verify", cls=Command)
def verify(
    store: Store,
    name: Annotated[str | None, option("NAME", "The name of the stream. By default, all are verified.")] = None,
    hash: Annotated[str | None, option("HASH", "A head of the log that must still be in it.")] = None,  # noqa: A002
) -> int:
    """Compute every ledger again from its log, and find any change.

    The exit code is 0 if nothing was changed, 1 if something was. An earlier certificate shows the head that the log
    had then: while it is still in the log, the log has not been rewritten since.

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


@commands.command("certificate", cls=Command)
def certificate(
    store: Store,
    name: Name = None,
    output: Annotated[Path | None, option("FILE", "Also write it to .html, .json or .txt.", "--output", "-o")] = None,
) -> int:
    """Certify what is true of a stream now.

    The record is verified first. The page shows gaps, groups and changes over time, computed again from the log, with
    JSON beside it. The exit code is 0 if the promise is kept and the record is whole, 1 if not.

    `fairlayer stream certificate decisions.db --name loans -o certificate.html`
    """
    if output is not None:
        _check_ending(output, ".html", ".htm", ".json", ".txt")
        check_output(output, Path(store))
        check_output(output.with_suffix(".json"), Path(store))
    with _opened(store, name) as stream, stream.transaction():  # one moment, also beside writers
        verification = stream.verify()
        drawn = stream.certificate()
        text = f"{drawn}\n  {verification}"
        written = [] if output is None else _write(stream, drawn, verification, text, output)
    say(text)
    if written:
        note(f"Wrote {', '.join(map(str, written))}.")
    return 0 if drawn.kept and verification else 1


@commands.command("export", cls=Command)
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
        if output.suffix.lower() == ".jsonl":
            rows = _write_entries(stream, temporary)
        else:
            frame = _frame(stream)
            save_frame(frame, temporary)
            rows = len(frame)
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


def _verdict(certificate: Certificate) -> str:
    if certificate.satisfied:
        return "satisfied"
    return "violated" if certificate.broken else "within half a decision" if certificate.kept else "undecided"


def _write(stream: Stream, drawn: Certificate, verification: Verification, text: str, output: Path) -> list[Path]:
    """The certificate as a page and as data, or as one of them, or as text."""
    ending = output.suffix.lower()
    texts: dict[Path, str] = {}
    if ending == ".txt":
        texts[output] = text + "\n"
    else:
        steps = stream.timeline().condensed(MOST_STEPS) if verification else ()
        if ending != ".json":
            from fairlayer.report.stream_page import render_stream

            facts = {"store": stream.place, **stream.settings.describe()}
            texts[output] = render_stream(drawn, steps, verification, facts)
        checked = {"entries": verification.entries, "problems": verification.problems}
        data = {
            "certificate": drawn.to_dict(),
            "settings": json.loads(stream.settings.to_text()),
            "verification": {"whole": bool(verification), **checked},
            "timeline": [{**step._asdict(), "groups": [vars(group) for group in step.groups]} for step in steps],
        }
        texts[output.with_suffix(".json")] = json.dumps(data, indent=2) + "\n"
    for path, content in texts.items():
        with replacing(path) as temporary:
            temporary.write_text(content, "utf-8")
    return list(texts)


def _write_entries(stream: Stream, path: Path) -> int:
    """The settings, then one entry per line, as they are stored."""
    rows = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"stream": stream.name, "configuration": stream.configuration}) + "\n")
        for entry in stream.entries():
            emitted = None if entry.emitted is None else entry.emitted.hex()
            file.write(json.dumps({**entry._asdict(), "emitted": emitted}) + "\n")
            rows += 1
    return rows


def _frame(stream: Stream) -> Any:
    """One row per entry."""
    with needs("Writing a table", "pandas"):
        import pandas as pd

    titles = [report.constraint for report in stream.certificate().constraints]
    rows = []
    for step in stream.timeline().steps:
        told = {name: value for name, value in step._asdict().items() if name not in ("gaps", "groups")}
        row: dict[str, Any] = {TITLES.get(name, name): value for name, value in told.items()}
        row |= {f"gap, {title}": gap for title, gap in zip(titles, step.gaps, strict=True)}
        for group in step.groups:
            row |= {f"count, {group.group}": group.count, f"mean, {group.group}": group.mean}
            row |= {f"raw mean, {group.group}": group.raw_mean}
        rows.append(row)
    return pd.DataFrame(rows)
