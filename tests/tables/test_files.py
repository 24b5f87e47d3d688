"""Files of any size: what a column holds is data, whatever it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlayer import InputError
from fairlayer.tables.entries import number, quote, text
from fairlayer.tables.table_io import TableFile

duckdb = pytest.importorskip("duckdb")


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_columns_by_any_name(tmp_path: Path) -> None:
    names = ['a"b', "x; DROP TABLE data", "$low", "SELECT", "data"]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    path = write(tmp_path / "odd [1]*?.csv", f"{header}\n1,2,3,4,5\n")
    with TableFile(path) as table:
        assert list(table.columns) == names
        found = table.query(f"SELECT {', '.join(f'{number(name)} AS c{j}' for j, name in enumerate(names))} FROM data")
        assert [found[f"c{j}"][0] for j in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(separator: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", f"a{separator}b\n1{separator}x\n")
    with TableFile(path) as table:
        assert list(table.columns) == ["a", "b"]


def test_missing_entries_and_entries_that_are_no_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a\n1\nNA\nnan\ninf\nx\n 2.5 \n")
    with TableFile(path) as table:
        found = table.query(f"SELECT {number('a')} AS a, {text('a')} AS t FROM data")
        assert found["a"].mask.tolist() == [False, True, True, True, True, False]
        assert found["a"].compressed().tolist() == [1.0, 2.5]
        assert found["t"].mask.tolist() == [False, True, True, False, False, False]


def test_a_column_that_is_only_asked_for_numbers(tmp_path: Path) -> None:
    with TableFile(write(tmp_path / "t.csv", "a,b\nx,1\ny,2\n")) as table:
        found = table.query(f"SELECT count({number('a')}) AS a, count({number('b')}) AS b FROM data")
        assert (found["a"][0], found["b"][0]) == (0, 2)


def test_parameters_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a\n" + "\n".join(map(str, range(100))) + "\n")
    with TableFile(path) as table:
        sql = f"SELECT {number('a')} AS a FROM data WHERE {number('a')} >= $least"
        assert len(table.query(sql, {"least": 4.0, "unused": 1})["a"]) == 96


@pytest.mark.parametrize("name", ["data[1]", "da*", "dat??"])
def test_a_name_is_no_pattern(name: str, tmp_path: Path) -> None:
    write(tmp_path / "data1.csv", "a\n1\n2\n")
    with TableFile(write(tmp_path / f"{name}.csv", "a\n7\n")) as table:
        assert table.query(f"SELECT {number('a')} AS a FROM data")["a"].tolist() == [7.0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_says_nothing_about_columns(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "sex=f"
    folder.mkdir()
    path = folder / f"t.{suffix}"
    duckdb.execute(f"COPY (SELECT unnest(['f', 'm']) AS sex) TO $path (FORMAT {suffix})", {"path": str(path)})
    with TableFile(path) as table:
        assert list(table.columns) == ["sex"]
        assert table.query(f"SELECT {text('sex')} AS sex FROM data")["sex"].tolist() == ["f", "m"]


def test_separators_in_quotes_do_not_count(tmp_path: Path) -> None:
    with TableFile(write(tmp_path / "t.csv", '"a;b;c",d\n1,2\n')) as table:
        assert list(table.columns) == ["a;b;c", "d"]


def test_memory_that_is_no_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="memory must be a size"):
        TableFile(write(tmp_path / "t.csv", "a\n1\n"), memory="much")


def test_a_name_is_quoted() -> None:
    assert quote('a"b') == 'data."a""b"'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "does not exist"),
        ("empty.csv", "", "needs a header"),
        ("bad.parquet", "hello", "cannot be read"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        write(path, content)
    with pytest.raises(InputError, match=message):
        TableFile(path)


def test_a_broken_line_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b\n1,2\n3,4,5\n")
    with pytest.raises(InputError, match="cannot be read"), TableFile(path) as table:
        table.query("SELECT count(*) AS n, max(b) AS b FROM data")


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    with TableFile(write(tmp_path / "t.csv", "income,sex\n1,f\n")) as table:
        assert table.require("sex", "groups") == "sex"
        with pytest.raises(InputError, match=r"groups: 't.csv' has no column 'sexx'. Did you mean 'sex'"):
            table.require("sexx", "groups")
