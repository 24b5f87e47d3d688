"""A result as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.result import Audit
from fairlayer.audit.tables import FigureTable, changes_table, findings_table, groups_table, selection_table
from fairlayer.audit.words import typed


def as_text(result: Audit, rows: int) -> str:
    """The headline, the findings, the groups, and the notes."""
    parts = [result.headline]
    if result.settings.positive:
        parts.append(typed(f"Decision counted as positive: {result.settings.positive}."))
    groups = (result.overall, *result.groups)
    listed: list[tuple[FigureTable, Sequence, str]] = [
        (findings_table(result, rows), result.findings, "gaps"),
        (groups_table("", groups[:rows], brief=True), groups, "groups"),
    ]
    if result.decided:
        listed.append((selection_table("", result.selections[:rows]), result.selections, "groups"))
    listed.append((changes_table(groups[:rows], brief=True), [group for group in groups if group.change], "groups"))
    parts += [_more(columns_text(table), known, rows, what) for table, known, what in listed if table.rows]
    if result.not_compared:
        parts.append(
            _more(typed(f"Not compared: {'; '.join(result.not_compared[:rows])}"), result.not_compared, rows, "others")
        )
    parts += [typed(f"Note: {note}") for note in result.notes]
    return "\n\n".join(parts)


def _more(text: str, known: Sequence, shown: int, what: str) -> str:
    return f"{text}\n... and {len(known) - shown} more {what}" if len(known) > shown else text


def columns_text(table: FigureTable) -> str:
    """A table in aligned columns, names on the left and figures on the right."""
    header, rows = list(table.columns), [list(row) for row in table.rows]
    if table.verdicts:
        header.append("population")
        rows = [[*row, verdict] for row, verdict in zip(rows, table.verdicts, strict=True)]
    lines = [[typed(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[j]) for line in lines) for j in range(len(header))]

    def placed(j: int, cell: str) -> str:
        return cell.ljust(widths[j]) if j < table.headers else cell.rjust(widths[j])

    return "\n".join("  ".join(placed(j, cell) for j, cell in enumerate(line)).rstrip() for line in lines)
