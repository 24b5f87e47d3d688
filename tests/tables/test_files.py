"""Files of any size: what a column holds is data, whatever it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlayer import InputError
from fairlayer.tables.entries import number, text
from fairlayer.tables.table_io import TableFile, open_source

duckdb = pytest.importorskip("duckdb")


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_columns_by_any_name(tmp_path: Path) -> None:
    names = ['a"b', "x; DROP TABLE data", "$low", "SELECT", "data", "it's"]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    path = write(tmp_path / "odd's [1]*? $low.csv", f"{header}\n1,2,3,4,5,6\n")
    with TableFile(path) as table:
        assert list(table.columns) == names
        values = {f"c{j}": number(name) for j, name in enumerate(names)}
        assert table.frame(values).iloc[0].tolist() == [1, 2, 3, 4, 5, 6]
        sql = f"SELECT {number('$low')} AS low FROM data WHERE {number('$low')} > $least"
        assert table.query(sql, {"low": 7, "least": 2.5})["low"].tolist() == [3.0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(separator: str, tmp_path: Path) -> None:
    other = ";" if separator == "," else ","
    path = write(tmp_path / "t.csv", f'a{separator}"b{other}b{other}b"\n1{separator}x\n')
    assert list(open_source(path).columns) == ["a", f"b{other}b{other}b"]


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


@pytest.mark.parametrize("name", ["data[1]", "da*", "dat??"])
def test_a_name_is_no_pattern(name: str, tmp_path: Path) -> None:
    write(tmp_path / "data1.csv", "a\n1\n2\n")
    with TableFile(write(tmp_path / f"{name}.csv", "a\n7\n")) as table:
        assert table.frame({"a": number("a")})["a"].tolist() == [7.0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_says_nothing_about_columns(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "sex=f" / f"t.{suffix}"
    path.parent.mkdir()
    duckdb.execute(f"COPY (SELECT unnest(['f', 'm']) AS sex) TO $path (FORMAT {suffix})", {"path": str(path)})
    with TableFile(path) as table:
        assert list(table.columns) == ["sex"]
        assert table.frame({"sex": text("sex")})["sex"].tolist() == ["f", "m"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "does not exist"),
        ("empty.csv", "", "needs a header"),
        ("blank.csv", "\n1\n", "has no header"),
        ("short.csv", "a,b\n", "has a header but no rows"),
        ("latin.csv", "größe\n1\n", "not in UTF-8"),
        ("twice.csv", "a,b,A\n1,2,3\n", "has columns 'a' and 'A': rename one"),
        ("bad.parquet", "hello", "cannot be read"),
        ("table.json", "{}", "is not named as a CSV or Parquet file"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, "latin-1")
    with pytest.raises(InputError, match=message):
        TableFile(tmp_path / name)


def test_what_is_refused_of_a_table(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "income,sex,a,A\n1,f,1,2\n")
    with pytest.raises(InputError, match="memory must be a size"):
        TableFile(open_source(path, may_repeat=str.islower), memory="much")
    with TableFile(open_source(path, may_repeat=lambda name: name in "aA")) as table:
        assert list(table.columns) == ["income", "sex", "a (column 3)", "A (column 4)"]
        assert table.require("sex", "groups") == "sex"
        with pytest.raises(InputError, match=r"groups: 't\.csv' has no column 'sexx'\. Did you mean 'sex'"):
            table.require("sexx", "groups")
        with pytest.raises(InputError, match=r"groups: 't\.csv' has two columns 'a': rename one"):
            table.require("a", "groups")
    broken = write(tmp_path / "broken.csv", "a,b\n1,2\n3,4,5\n")
    with pytest.raises(InputError, match="cannot be read"), TableFile(broken) as table:
        table.query("SELECT count(*) AS n, max(b) AS b FROM data")
