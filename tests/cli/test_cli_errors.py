"""Every mistake gets one clear line, exit code 2, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from people import people, write

FIT = ["--target", "approved", "--protected", "sex", "--parity", "0.05"]


def without(arguments, option):
    position = arguments.index(option)
    return arguments[:position] + arguments[position + 2 :]


def replaced(arguments, option, value):
    return [*without(arguments, option), option, value]


AUDIT = ["--prediction", "amount", "--protected", "sex", "--parity", "1"]
PROJECT = ["--score", "amount", "--protected", "sex", "--parity", "1"]
CASES = {
    "no constraint": (["fit", "DATA", *without(FIT, "--parity"), "-o", "OUT"], "add for instance --parity 0.05"),
    "no target": (["fit", "DATA", *without(FIT, "--target"), "-o", "OUT"], "Missing option '--target'"),
    "no protected": (["fit", "DATA", *without(FIT, "--protected"), "-o", "OUT"], "Missing option '--protected'"),
    "no output": (["fit", "DATA", *FIT], "Missing option '--output'"),
    "wrong option": (["fit", "DATA", *FIT, "--prity", "1", "-o", "OUT"], "--parity"),
    "wrong command": (["fti"], "Did you mean 'fit'"),
    "tolerance no number": (["fit", "DATA", *replaced(FIT, "--parity", "small"), "-o", "OUT"], "'small'"),
    "tolerance below 0": (["fit", "DATA", *replaced(FIT, "--parity", "-1"), "-o", "OUT"], "--parity: the tolerance"),
    "tolerance nan": (["fit", "DATA", *replaced(FIT, "--parity", "nan"), "-o", "OUT"], "--parity: the tolerance"),
    "rate above 1": (
        ["fit", "DATA", *without(FIT, "--parity"), "--rate", "2", "-o", "OUT"],
        "Write 0.02 for 2 percent",
    ),
    "odds no number": (["fit", "DATA", *FIT, "--odds", "x", "-o", "OUT"], "--odds: the tolerance 'x'"),
    "odds cuts": (["fit", "DATA", *FIT, "--odds", "0.1:a,b", "-o", "OUT"], "not cut points"),
    "column of target": (["fit", "DATA", *replaced(FIT, "--target", "aproved"), "-o", "OUT"], "mean 'approved'?"),
    "column of protected": (["fit", "DATA", *FIT, "--protected", "Sexe", "-o", "OUT"], "mean 'sex'?"),
    "column unlike any": (["fit", "DATA", *FIT, "--protected", "zzz", "-o", "OUT"], "It has 'name', 'income'"),
    "column to ignore": (["fit", "DATA", *FIT, "--ignore", "nam", "-o", "OUT"], "--ignore"),
    "protected twice": (["fit", "DATA", *FIT, "--protected", "sex", "-o", "OUT"], "twice"),
    "target protected": (["fit", "DATA", *FIT, "--protected", "approved", "-o", "OUT"], "cannot be both"),
    "many groups": (["fit", "DATA", *FIT, "--protected", "age", "-o", "OUT"], "--protected age="),
    "many names": (["fit", "DATA", *FIT, "--protected", "name", "-o", "OUT"], "--merge-rare"),
    "cuts of text": (["fit", "DATA", *FIT, "--protected", "race=1,2", "-o", "OUT"], "must hold numbers"),
    "cuts backwards": (["fit", "DATA", *FIT, "--protected", "age=50,30", "-o", "OUT"], "increase"),
    "no such class": (["fit", "DATA", *FIT, "--positive", "maybe", "-o", "OUT"], "no value 'maybe'"),
    "regression of text": (["fit", "DATA", *FIT, "--task", "regression", "-o", "OUT"], "does not hold numbers"),
    "wrong task": (["fit", "DATA", *FIT, "--task", "ranking", "-o", "OUT"], "'ranking'"),
    "bounds of classes": (["fit", "DATA", *FIT, "--bounds", "0", "2", "-o", "OUT"], "between 0 and 1"),
    "bounds swapped": (["fit", "DATA", *FIT, "--bounds", "2", "1", "-o", "OUT"], "--bounds: LO must be below HI"),
    "one bound": (["fit", "DATA", *FIT, "-o", "OUT", "--bounds", "2"], "--bounds"),
    "share of test rows": (["fit", "DATA", *FIT, "--test", "1.5", "-o", "OUT"], "--test"),
    "conditional bare": (["fit", "DATA", *FIT, "--conditional", "0.1", "-o", "OUT"], "names no column"),
    "conditional column": (["fit", "DATA", *FIT, "--conditional", "0.1:agee", "-o", "OUT"], "mean 'age'?"),
    "conditional numbers": (["fit", "DATA", *FIT, "--conditional", "0.1:age", "-o", "OUT"], "cut points, such as age="),
    "conditional missing": (["fit", "DATA", *FIT, "--conditional", "0.1:income=20", "-o", "OUT"], "missing entries"),
    "conditional value": (["fit", "DATA", *FIT, "--conditional", "0.1:job=cook|king", "-o", "OUT"], "'king'"),
    "conditional overlap": (["fit", "DATA", *FIT, "--conditional", "0.1:job=cook,cook", "-o", "OUT"], "more than one"),
    "layer with odds": (["fit", "DATA", *FIT, "--odds", "0.1", "--method", "layer", "-o", "OUT"], "--method layer"),
    "odds of numbers": (
        ["fit", "DATA", "--target", "amount", "--protected", "sex", "--odds", "5", "-o", "OUT"],
        "such as --odds 5:",
    ),
    "no such file": (["fit", "FOLDER/peple.csv", *FIT, "-o", "OUT"], "people.csv?"),
    "no such folder": (["fit", "FOLDER/none/people.csv", *FIT, "-o", "OUT"], "There is no folder"),
    "a folder": (["fit", "FOLDER/some.csv", *FIT, "-o", "OUT"], "is a folder"),
    "another format": (["fit", "FOLDER/people.xlsx", *FIT, "-o", "OUT"], ".csv or .parquet"),
    "empty file": (["fit", "FOLDER/empty.csv", *FIT, "-o", "OUT"], "is empty"),
    "header only": (["fit", "FOLDER/header.csv", *FIT, "-o", "OUT"], "no rows"),
    "not parquet": (["fit", "FOLDER/wrong.parquet", *FIT, "-o", "OUT"], "cannot be read"),
    "not text": (["fit", "FOLDER/latin.csv", *FIT, "-o", "OUT"], "UTF-8"),
    "ragged rows": (["fit", "FOLDER/ragged.csv", *FIT, "-o", "OUT"], "Line: 52"),
    "column twice": (["fit", "FOLDER/twice.csv", *FIT, "-o", "OUT"], "two columns 'sex'"),
    "constant target": (["fit", "FOLDER/constant.csv", *FIT, "-o", "OUT"], "is constant, always 'yes'"),
    "one group": (["fit", "FOLDER/group.csv", *FIT, "-o", "OUT"], "only one group, 'male'"),
    "few rows": (["fit", "FOLDER/few.csv", *FIT, "-o", "OUT"], "at least 40"),
    "target missing": (["fit", "FOLDER/notarget.csv", *FIT, "-o", "OUT"], "has no entries"),
    "output a file": (["fit", "DATA", *FIT, "-o", "DATA"], "is a file"),
    "output in use": (["fit", "DATA", *FIT, "-o", "FOLDER/some.csv"], "files that are not part of a model"),
    "output nowhere": (["fit", "DATA", *FIT, "-o", "FOLDER/none/model"], "no folder"),
    "audit no file": (["audit", "FOLDER/x.csv", *AUDIT], "does not exist"),
    "audit column": (["audit", "DATA", *replaced(AUDIT, "--prediction", "amont")], "mean 'amount'?"),
    "audit text": (["audit", "DATA", *replaced(AUDIT, "--prediction", "name")], "row 1 ('person 0')"),
    "audit target": (["audit", "DATA", *AUDIT, "--odds", "1"], "--target COLUMN"),
    "audit one group": (["audit", "FOLDER/group.csv", *AUDIT], "only one group"),
    "audit no page": (["audit", "DATA", *AUDIT, "-o", "OUT.txt"], ".html"),
    "audit confidence": (["audit", "DATA", *AUDIT, "--confidence", "2"], "confidence"),
    "audit cuts in use": (
        ["audit", "DATA", *AUDIT, "--protected", "age=30", "--conditional", "1:age=50"],
        "leave out its cut points",
    ),
    "project onto itself": (["project", "DATA", *PROJECT, "-o", "DATA"], "the input itself"),
    "rates and means": (
        ["fit", "DATA", *FIT, "--rate", "0.1", "-o", "OUT"],
        "--rate is about decisions and --parity about means",
    ),
    "rates and means of a table": (
        ["project", "DATA", *PROJECT, "--rate-ratio", "0.8", "-o", "OUT.csv"],
        "--rate-ratio is about decisions and --parity about means",
    ),
    "rates within every class": (
        [
            "fit",
            "DATA",
            *without(FIT, "--parity"),
            "--rate",
            "0.1",
            "--given",
            "each",
            "--model",
            "logistic",
            "-o",
            "OUT",
        ],
        "--given each: no model can keep rates within every class",
    ),
    "penalty of decisions": (
        ["fit", "DATA", *without(FIT, "--parity"), "--rate", "0.1", "--method", "penalty", "-o", "OUT"],
        "--method penalty is for means",
    ),
    "one wrong number": (
        ["audit", "FOLDER/onewrong.csv", *replaced(AUDIT, "--prediction", "age")],
        "column 'age' has 1 entry that is not a number, in row 1 ('old'): leave this row out",
    ),
    "project protected score": (
        ["project", "DATA", *replaced(PROJECT, "--protected", "amount"), "-o", "OUT.csv"],
        "--score: column 'amount' is protected too",
    ),
    "project format": (["project", "DATA", *PROJECT, "-o", "OUT.xlsx"], ".parquet"),
    "project text": (["project", "DATA", *replaced(PROJECT, "--score", "job"), "-o", "OUT.csv"], "not numbers"),
    "project one group": (["project", "FOLDER/group.csv", *PROJECT, "-o", "OUT.csv"], "only one group"),
    "project kept raw": (["project", "DATA", *PROJECT, "-o", "OUT.csv", "--keep-raw", "age"], "already"),
    "project conditional missing": (
        ["project", "DATA", *PROJECT, "--conditional", "1:income=20", "-o", "OUT.csv"],
        "--conditional: column 'income' has",
    ),
    "project odds of text": (
        ["project", "DATA", *PROJECT, "--odds", "1:20", "--target", "job", "-o", "OUT.csv"],
        "--target: column 'job' has 120 entries that are not numbers",
    ),
    "audit conditional missing": (["audit", "DATA", *AUDIT, "--conditional", "1:income=20"], "income"),
    "project many groups": (
        ["project", "FOLDER/crowd.csv", *replaced(PROJECT, "--protected", "name"), "-o", "OUT.csv"],
        "more than 1000 groups",
    ),
    "project impossible": (
        [
            *("project", "FOLDER/apart.csv", "--score", "p", "--protected", "sex", "--residuals", "0.1"),
            *("--target", "t", "--bounds", "0", "1", "-o", "OUT.csv"),
        ],
        "No scores satisfy these constraints together: equalized residuals, sex: female - male.",
    ),
    "predict no model": (["predict", "FOLDER", "DATA", "-o", "OUT.csv"], "has no model.json"),
    "columns alike": (["fit", "FOLDER/alike.csv", *FIT, "-o", "OUT"], "columns 'sex' and 'Sex'"),
    "card over the report": (
        ["audit", "DATA", *AUDIT, "-o", "OUT.html", "--card", "OUT.html"],
        "is where the report goes",
    ),
    "project nobody": (
        ["project", "DATA", *replaced(PROJECT, "--protected", "age=200"), "-o", "OUT.csv"],
        "nothing to compare",
    ),
    "predict format": (["predict", "MODEL", "DATA", "-o", "OUT.xlsx"], ".csv or .parquet"),
    "predict over the state": (
        ["predict", "MODEL", "DATA", "-o", "OUT.csv", "--mode", "stream", "--state", "OUT.csv"],
        "is the table itself",
    ),
    "predict mode": (["predict", "MODEL", "DATA", "-o", "OUT.csv", "--mode", "magic"], "'magic'"),
    "predict no state": (["predict", "MODEL", "DATA", "-o", "OUT.csv", "--mode", "stream"], "--state decisions.db"),
    "predict state alone": (["predict", "MODEL", "DATA", "-o", "OUT.csv", "--state", "x.db"], "--mode stream"),
    "predict no feature": (["predict", "MODEL", "FOLDER/noage.csv", "-o", "OUT.csv"], "no column 'age'"),
    "predict no group": (["predict", "MODEL", "FOLDER/nosex.csv", "-o", "OUT.csv"], "no column 'sex'"),
    "predict bad number": (["predict", "MODEL", "FOLDER/oldage.csv", "-o", "OUT.csv"], "'old' in row 1"),
    "predict again": (["predict", "MODEL", "FOLDER/again.csv", "-o", "OUT.csv"], "--prefix"),
    "predict new group": (
        ["predict", "MODEL", "FOLDER/martian.csv", "-o", "OUT.csv", "--mode", "frozen"],
        "race 'martian': the model was not trained with this group",
    ),
    "predict new group in a batch": (
        ["predict", "MODEL", "FOLDER/martian.csv", "-o", "OUT.csv", "--mode", "batch"],
        "It knows 'black', 'other', 'white'. Correct the spelling, or add --new-groups",
    ),
    "predict new group in a stream": (
        ["predict", "MODEL", "FOLDER/martian.csv", "-o", "OUT.csv", "--mode", "stream", "--state", "OUT.db"],
        "race 'martian': the model was not trained with this group",
    ),
    "predict one row": (
        ["predict", "MODEL", "FOLDER/one.csv", "-o", "OUT.csv"],
        "one.csv has only one group of sex, 'female', so there is nothing to compare it with. Choose a mode: --mode "
        "frozen",
    ),
    "max minutes": (
        ["fit", "DATA", *FIT, "--max-minutes", "0", "-o", "OUT"],
        "--max-minutes: the time must be above 0",
    ),
    "tolerance of nobody": (
        ["fit", "DATA", *replaced(FIT, "--parity", "age=0.1"), "-o", "OUT"],
        "--parity: 'age' is not a protected attribute",
    ),
    "over nobody": (["audit", "DATA", *AUDIT, "--over", "sex+town"], "--over: 'town' is not a protected attribute"),
    "residual mean without targets": (
        ["project", "DATA", *PROJECT, "--residual-mean", "1", "-o", "OUT.csv"],
        "--residual-mean compares scores with the actual outcomes: add --target COLUMN.",
    ),
    "facts no file": (["fit", "DATA", *FIT, "--facts", "FOLDER/none.json", "-o", "OUT"], "--facts: "),
    "facts no JSON": (["fit", "DATA", *FIT, "--facts", "DATA", "-o", "OUT"], "is not JSON"),
    "facts unknown": (["fit", "DATA", *FIT, "--facts", "FOLDER/facts.json", "-o", "OUT"], "'shoe size'; a card has"),
    "facts no card": (["audit", "DATA", *AUDIT, "--facts", "FOLDER/facts.json"], "--card"),
    "experiment": (["reproduce", "everything"], "There is no experiment 'everything'"),
    "suite": (["bench", "everything"], "There is no suite 'everything'"),
    "demo output": (["demo", "-o", "DATA"], "is a file"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files, most of them with something wrong."""
    folder = tmp_path_factory.mktemp("files")
    frame = people(120)
    write(frame, folder / "people.csv")
    shutil.copy(folder / "people.csv", folder / "people.xlsx")
    (folder / "some.csv").mkdir()
    (folder / "some.csv" / "thesis.tex").write_text("irreplaceable")
    (folder / "empty.csv").touch()
    (folder / "header.csv").write_text(",".join(frame.columns) + "\n")
    (folder / "wrong.parquet").write_bytes(b"PAR1 not really")
    (folder / "latin.csv").write_bytes("name,sex,approved\nJürgen,m,yes\nJörg,m,no\n".encode("latin-1"))
    (folder / "ragged.csv").write_text("name,sex,approved\n" + "a,m,yes\n" * 50 + "a,m,yes,and more\n")
    (folder / "twice.csv").write_text("sex,sex,approved\nf,f,yes\nm,m,no\n")
    (folder / "alike.csv").write_text("sex,Sex,approved\nf,f,yes\nm,m,no\n")
    write(frame.assign(approved="yes"), folder / "constant.csv")
    write(frame[frame["sex"] == "male"], folder / "group.csv")
    write(frame.iloc[:10], folder / "few.csv")
    write(frame.assign(approved=""), folder / "notarget.csv")
    write(frame.drop(columns="age"), folder / "noage.csv")
    write(frame.drop(columns="sex"), folder / "nosex.csv")
    write(frame.assign(age="old"), folder / "oldage.csv")
    write(frame.assign(age=["old", *frame["age"][1:]]), folder / "onewrong.csv")
    write(frame.assign(probability=0.5), folder / "again.csv")
    write(frame.assign(race=np.where(frame["race"] == "black", "martian", frame["race"])), folder / "martian.csv")
    write(frame[frame["sex"] == "female"].iloc[:1], folder / "one.csv")
    (folder / "facts.json").write_text('{"shoe size": 43}')
    write(people(1200), folder / "crowd.csv")
    apart = frame.assign(p=0.5, t=(frame["sex"] == "male") * 5.0)
    write(apart, folder / "apart.csv")
    return folder


@pytest.mark.parametrize("case", CASES)
def test_one_line(run, folder, classifier, tmp_path, case):
    arguments, sentence = CASES[case]
    names = {"DATA": folder / "people.csv", "FOLDER": folder, "OUT": tmp_path / "out", "MODEL": classifier}

    def filled(argument):
        for name, path in names.items():
            if argument == name or argument.startswith((f"{name}/", f"{name}.")):
                return str(path) + argument[len(name) :]
        return argument

    before = sorted(path.name for path in folder.iterdir())
    result = run(*map(filled, arguments))
    assert result.exit_code == 2, result.stdout + result.stderr
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("fairlayer: ")
    assert sentence in lines[0]
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (folder / "some.csv" / "thesis.tex").read_text() == "irreplaceable"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_permissions(run, folder, tmp_path, mode):
    locked = tmp_path / "locked"
    locked.mkdir()
    data = write(people(100), locked / "people.csv")
    if mode == 0o000:
        os.chmod(data, mode)
        result = run("fit", data, *FIT, "-o", tmp_path / "model")
    else:
        locked.chmod(mode)
        result = run("fit", folder / "people.csv", *FIT, "-o", locked / "model")
        locked.chmod(0o755)
    assert result.exit_code == 2
    assert "no permission" in result.stderr


def test_an_interrupted_write_leaves_the_old_file(run, classifier, tmp_path, monkeypatch):
    data = write(people(120), tmp_path / "new.csv")
    out = tmp_path / "out.csv"
    out.write_text("precious")
    monkeypatch.setattr("pandas.DataFrame.to_csv", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left")))
    result = run("predict", classifier, data, "-o", out)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "fairlayer: No space left."
    assert out.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "out.csv"]
