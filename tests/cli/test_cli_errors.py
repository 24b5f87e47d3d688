"""Every mistake gets one clear line, exit code 2, and leaves nothing behind."""

from __future__ import annotations

import os

import numpy as np
import pytest
from people import people, write

WORDS = {  # stand for several, to keep the cases short
    "fit": "fit DATA -o OUT --target approved --protected sex",
    "fit-amount": "fit DATA -o OUT --target amount --ignore approved --protected sex",
    "audit": "audit DATA --prediction amount --protected sex --parity 1",
    "project": "project DATA --score amount --protected sex --parity 1 -o OUT.csv",
    "predict": "predict MODEL DATA -o OUT.csv",
    "rates": "project DATA --score p --protected sex -o OUT.csv",
    "STREAM": "--mode stream --state",
}
CASES = [
    # options and commands
    ("fti", "Did you mean 'fit'?"),
    ("fit --parity 0.05 --prity 1", "No such option: --prity (Possible options: --parity"),
    ("fit", "add for instance --parity 0.05"),
    ("fit/ DATA -o OUT --protected sex --parity 1", "Missing option '--target'"),
    ("fit --parity 0.05 --task ranking", "'--task': 'ranking' is not one of 'classification'"),
    ("--import no_such_module fit --parity 1", "--import: no_such_module cannot be imported"),
    # tolerances and groups
    ("fit --parity small", "--parity: the tolerance 'small' is not a number"),
    ("fit --parity -1", "--parity: tolerance must be one finite number"),
    ("fit --rate 2", "Write 0.02 for 2 percent"),
    ("fit --odds 0.1:a,b", "not cut points"),
    ("fit --protected race --parity sxe=0.1", "--parity: 'sxe' is not a protected attribute. Did you mean 'sex'?"),
    ("fit --parity sex=0.1,0.2", "--parity: '0.2' does not say which groups it is for: write sex=0.2"),
    ("fit --parity sex=0.1,sex=0.2", "two tolerances for 'sex'"),
    ("fit --parity 0.1 --over sex+sex", "--over: 'sex+sex' names 'sex' twice"),
    ("audit --over sex+town", "--over: 'town' is not a protected attribute"),
    ("fit --parity 0.05 --conditional 0.1", "--conditional: "),
    ("fit --parity 0.05 --conditional 0.1:agee", "mean 'age'?"),
    ("fit --parity 0.05 --conditional 0.1:age", "cut points, such as age="),
    ("fit --parity 0.05 --conditional 0.1:income=20", "missing entries"),
    ("fit --parity 0.05 --conditional 0.1:job=cook|king", "'king'"),
    ("fit --parity 0.05 --conditional 0.1:job=cook,cook", "more than one"),
    ("audit --conditional 1:income=20", "income"),
    # constraints written as in Python
    ("project --constraint MeanParity(", "--constraint: 'MeanParity(' cannot be read as a constraint"),
    ("project --constraint MaenParity(0.1)", "there are Affine,"),
    ("project --constraint __import__('os').getcwd()", "cannot be read as a constraint"),
    ("project --constraint MeanParity(-1)", "tolerance must be one finite number"),
    ("project --constraint MeanParity(0.1,under='sex')", "under"),
    ("project --constraint MeanParity(0.1,over='town')", "over names attribute 'town'"),
    ("project --constraint Affine([[1.0]])", "not groups"),
    ("project --constraint EqualizedOdds(0.1)", "--constraint EqualizedOdds compares scores"),
    ("project --constraint ConditionalParity(0.1,regions={'agee':[(None,30)]})", "Did you mean 'age'?"),
    ("project --constraint ConditionalParity(0.1,regions={'income':[(None,30)]})", "--constraint: column 'income' has"),
    # what cannot be kept together, or at all
    ("fit --parity 0.05 --rate 0.1", "--rate is about decisions and --parity about means"),
    ("project --rate-ratio 0.8", "--rate-ratio is about decisions and --parity about means"),
    ("rates --parity 0.1 --threshold 0.3", "--threshold is for rates of decisions"),
    ("rates --parity 0.1 --given yes", "--given is for rates of decisions"),
    ("rates --score age --rate 0.1 --given yes", "--rate compares scores with the actual outcomes: add --target"),
    ("rates --score age --rate-ratio 1.5", "--rate-ratio: ratio must be"),
    ("rates --score age --ratio 0.9", "add --bounds 0 1"),
    ("fit --rate 0.05 --given perhaps", "'perhaps' is not a class of the target"),
    ("fit --rate 0.1 --given each --model logistic", "--rate compares rows with the same target"),
    ("fit --odds 0.1", "--odds compares rows with the same target, for each of its values. Targets are unknown"),
    ("fit-amount --rate 0.1", "add --threshold P"),
    ("fit --parity 0.1 --model linear", "use one of boosting, network, logistic, or auto"),
    ("fit --parity 0.1 --model auto --method projection", "--method projection is for --model network"),
    ("fit --parity 0.1 --model boosting --max-minutes 1", "--max-minutes is for networks"),
    ("fit --residuals 0.1 --confidence 0.95", "--residuals looks at their targets"),
    ("fit --rate 0.1 --serving blind", "--serving blind keeps means of outputs, and --rate is not about them"),
    ("fit-amount --parity 5 --serving blind", "--bounds LO HI"),
    ("audit --odds 1", "--target COLUMN"),
    ("project --residual-mean 1", "--residual-mean compares scores with the actual outcomes: add --target COLUMN."),
    ("project --odds 1:20 --target job", "--target: column 'job' has 120 entries that are not numbers"),
    (
        "project/ FOLDER/apart.csv -o OUT.csv --score p --protected sex --residuals 0.1 --target t --bounds 0 1",
        "No scores satisfy these constraints together: equalized residuals, sex: female - male.",
    ),
    # values of options
    ("fit --parity 0.05 --bounds 0 2", "between 0 and 1"),
    ("fit --parity 0.05 --bounds 2 1", "--bounds: LO must be below HI"),
    ("fit --parity 0.05 --test 1.5", "--test"),
    ("fit --parity 0.05 --max-minutes 0", "--max-minutes: the time must be above 0"),
    ("fit --parity 0.05 --positive maybe", "no value 'maybe'"),
    ("fit --parity 0.05 --task regression", "does not hold numbers"),
    ("fit --parity 0.05 --facts FOLDER/none.json", "--facts: "),
    ("fit --parity 0.05 --facts DATA", "is not JSON"),
    ("fit --parity 0.05 --facts FOLDER/facts.json", "'shoe size'; a card has"),
    ("audit --facts FOLDER/facts.json", "--card"),
    ("audit --positive yes", "add --target"),
    ("audit --positive maybe --target approved", "no value 'maybe'; it has 'no', 'yes'"),
    ("audit --protected age=30 --conditional 1:age=50", "leave out its cut points"),
    # columns
    ("fit --target aproved --parity 1", "mean 'approved'?"),
    ("fit --parity 0.05 --protected zzz", "It has 'name', 'income'"),
    ("fit --parity 0.05 --ignore nam", "--ignore"),
    ("fit --parity 0.05 --protected sex", "twice"),
    ("fit --parity 0.05 --protected approved", "cannot be both"),
    ("fit --parity 0.05 --protected age", "--protected age="),
    ("fit --parity 0.05 --protected name", "--merge-rare"),
    ("fit --parity 0.05 --protected race=1,2", "entries that are not numbers"),
    ("fit --parity 0.05 --protected age=50,30", "increase"),
    ("audit/ DATA --protected sex --parity 1 --prediction name", "such as 'person 0' in row 1"),
    ("audit/ DATA --protected sex --parity 1 --prediction amount --raw age,amount", "--raw names 2 columns"),
    (
        "audit/ FOLDER/onewrong.csv --protected sex --parity 1 --prediction age",
        "column 'age' has 1 entry that is not a number, such as 'old' in row 1: correct it",
    ),
    ("project --protected amount", "--score: column 'amount' is protected too"),
    ("project --score job", "not numbers"),
    ("project --keep-raw age", "already"),
    ("project/ DATA -o OUT.csv --score amount --parity 1 --protected age=200", "nothing to compare"),
    ("project/ FOLDER/crowd.csv -o OUT.csv --score amount --parity 1 --protected name", "more than 1000 groups"),
    # files
    ("fit/ FOLDER/peple.csv FIT", "people.csv?"),
    ("fit/ FOLDER/none/people.csv FIT", "There is no folder"),
    ("fit/ FOLDER/some.csv FIT", "is a folder"),
    ("fit/ FOLDER/header.csv FIT", "no rows"),
    ("fit/ FOLDER/latin.csv FIT", "UTF-8"),
    ("fit/ FOLDER/wrong.parquet FIT", "cannot be read"),
    ("fit/ FOLDER/ragged.csv FIT", "Line: 52"),
    ("fit/ FOLDER/twice.csv FIT", "two columns 'sex'"),
    ("fit/ FOLDER/alike.csv FIT", "columns 'sex' and 'Sex'"),
    ("fit/ FOLDER/constant.csv FIT", "is constant, always 'yes'"),
    ("fit/ FOLDER/group.csv FIT", "only one group, 'male'"),
    ("fit/ FOLDER/few.csv FIT", "at least 40"),
    ("fit/ FOLDER/notarget.csv FIT", "has no entries"),
    ("project/ FOLDER/group.csv -o OUT.csv --score amount --protected sex --parity 1", "only one group"),
    # places to write to
    ("fit --parity 1 -o DATA", "is a file"),
    ("fit --parity 1 -o FOLDER/some.csv", "files that are not part of a model"),
    ("fit --parity 1 -o FOLDER/none/model", "no folder"),
    ("audit -o OUT.txt", ".html"),
    ("audit -o OUT.html --card OUT.html", "is where the report goes"),
    ("audit --format ll144 -o OUT.txt", ".csv or .html"),
    ("audit --format ll144 --card OUT.md", "--card goes with --format report"),
    ("project -o DATA", "the input itself"),
    ("predict -o OUT.xlsx", ".csv or .parquet"),
    # predict
    ("predict/ FOLDER DATA -o OUT.csv", "has no model.json"),
    ("predict STREAM OUT.csv", "is the table itself"),
    ("predict STREAM FOLDER", "is a folder"),
    ("predict --mode stream", "--state decisions.db"),
    ("predict --state x.db", "belong to --mode stream"),
    ("predict --mode blind", "fit one with --serving blind"),
    ("predict/ MODEL FOLDER/noage.csv -o OUT.csv", "no column 'age'"),
    ("predict/ MODEL FOLDER/nosex.csv -o OUT.csv", "no column 'sex'"),
    ("predict/ MODEL FOLDER/oldage.csv -o OUT.csv", "'old' in row 1"),
    ("predict/ MODEL FOLDER/again.csv -o OUT.csv", "--prefix"),
    (
        "predict/ MODEL FOLDER/martian.csv -o OUT.csv --mode frozen",
        "race 'martian': the model was not trained with this group. It knows ",
    ),
    (
        "predict/ MODEL FOLDER/martian.csv -o OUT.csv --mode batch",
        "It knows 'black', 'other', 'white'. Correct the spelling, or add --new-groups",
    ),
    ("predict/ MODEL FOLDER/martian.csv -o OUT.csv STREAM OUT.db", "race 'martian': the model was not trained"),
    (
        "predict/ MODEL FOLDER/one.csv -o OUT.csv",
        "one.csv has only one group of sex, 'female', so there is nothing to compare it with. Choose a mode: --mode "
        "frozen",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files, most of them with something wrong."""
    folder = tmp_path_factory.mktemp("files")
    frame = people(120)
    write(frame, folder / "people.csv")
    (folder / "some.csv").mkdir()
    (folder / "some.csv" / "thesis.tex").write_text("irreplaceable")
    (folder / "header.csv").write_text(",".join(frame.columns) + "\n")
    (folder / "latin.csv").write_bytes("name,sex,approved\nJürgen,m,yes\nJörg,m,no\n".encode("latin-1"))
    (folder / "wrong.parquet").write_bytes(b"PAR1 not really")
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
    write(frame.assign(p=0.5, t=(frame["sex"] == "male") * 5.0), folder / "apart.csv")
    return folder


def arguments(text, **names):
    """A case as arguments: a word that is followed by a slash is itself, other words may stand for several."""
    words = " ".join(WORDS.get(word, word.removesuffix("/")) for word in text.split(" "))
    words = words.replace(" FIT", " -o OUT --target approved --protected sex --parity 0.05")
    for word in words.split(" "):
        name, mark, rest = word.partition("/") if "/" in word else word.partition(".")
        yield f"{names[name]}{mark}{rest}" if name in names else word


@pytest.mark.parametrize(("text", "sentence"), CASES, ids=[text for text, _ in CASES])
def test_one_line(run, folder, classifier, tmp_path, text, sentence):
    places = {"DATA": folder / "people.csv", "FOLDER": folder, "OUT": tmp_path / "out", "MODEL": classifier}
    before = sorted(path.name for path in folder.iterdir())
    result = run(*arguments(text, **places))
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
    asked = ["--target", "approved", "--protected", "sex", "--parity", "0.05", "-o"]
    if mode == 0o000:
        os.chmod(data, mode)
        result = run("fit", data, *asked, tmp_path / "model")
    else:
        locked.chmod(mode)
        result = run("fit", folder / "people.csv", *asked, locked / "model")
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
