"""`fairlayer stream`: a store says itself what its streams are, and an auditor is handed a page."""

from __future__ import annotations

import json
import re
import sqlite3
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from people import people, write

from fairlayer import EqualizedOdds, MeanParity, Stream
from fairlayer.stream import stream_names
from fairlayer.stream.log import origin

TOLERANCE = 0.05


def batches(count=40, size=3):
    rng = np.random.default_rng(0)
    for _ in range(count):
        sex = rng.choice(["f", "m"], size, p=[0.7, 0.3])
        yield np.clip(rng.normal(0.4 + 0.2 * (sex == "m"), 0.15), 0, 1), sex


@pytest.fixture
def store(tmp_path):
    """A store of two streams, what the first emitted, and its raw outputs."""
    path, kept = tmp_path / "decisions.db", []
    loans = Stream([MeanParity(TOLERANCE, over="sex")], bounds=(0, 1), store=path, name="loans")
    for number, (z, sex) in enumerate(batches()):
        kept += zip(sex, loans.update(z, {"sex": sex}, batch_id=number).value, z, strict=True)
    loans.close()
    later = Stream([EqualizedOdds(0.1), MeanParity(0.2)], store=path, name="odds")
    later.update(np.array([0.2, 0.8]), {"sex": ["f", "m"]}, ids="ab")
    later.close()
    return path, kept


def test_list_and_show(run, store):
    path, kept = store
    assert stream_names(path) == ["loans", "odds"]
    listed = run("stream", "list", path, code=0)
    assert re.search(r"loans\s+ledger\s+mean parity 0.05\s+120\s+satisfied", listed.stdout)
    assert re.search(r"odds\s+ledger", listed.stdout)
    shown = run("stream", "show", path, "--name", "loans", code=0)
    assert "constraints: MeanParity(0.05, over='sex')" in shown.stdout
    assert "bounds: 0 to 1" in shown.stdout
    assert "The latest 10 of 40 entries" in shown.stdout
    assert f"{sum(sex == 'f' for sex, _, _ in kept)}" in shown.stdout


def test_verify(run, store):
    path, _ = store
    both = run("stream", "verify", path, code=0)
    assert "loans: 40 entries, as written" in both.stdout
    assert "odds: 1 entry, as written" in both.stdout
    head = Stream.open(path, "loans", read_only=True).certificate().hash
    run("stream", "verify", path, "--name", "loans", "--hash", head, code=0)
    run("stream", "verify", path, "--name", "loans", "--hash", "ab", code=1)
    run("stream", "verify", path, "--hash", head, code=2)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE fairlayer_log SET payload = replace(payload, 'OPTIMAL', 'ROUNDED')")
    changed = run("stream", "verify", path, "--name", "loans", code=1)
    assert "was changed" in changed.stdout
    run("stream", "certificate", path, "--name", "loans", "-o", path.with_name("c.html"), code=1)
    assert "The record of this stream was changed" in path.with_name("c.html").read_text()


def gap(kept):
    """The pooled gap, without rounding; None with one group."""
    means = []
    for sex in "fm":
        values = [Fraction(float(value)) for label, value, _ in kept if label == sex]
        if not values:
            return None
        means.append(sum(values) / len(values))
    return float(abs(means[0] - means[1]))


def test_the_certificate_as_text_data_and_page(run, store, tmp_path):
    path, kept = store
    page = tmp_path / "certificate.html"
    result = run("stream", "certificate", path, "--name", "loans", "-o", page, code=0)
    assert "Stream 'loans' (ledger): 120 decisions in 40 batches" in result.stdout
    assert "drawn up 20" in result.stdout
    assert "As a rule early decisions pay most" in result.stdout
    data = json.loads(page.with_suffix(".json").read_text())
    certificate = data["certificate"]
    assert certificate["satisfied"]
    assert certificate["entries"] == 40
    assert certificate["hash"] in result.stdout
    assert data["settings"]["constraints"][0]["over"] == "sex"
    assert data["verification"] == {"whole": True, "entries": 40, "problems": []}
    # Computed from what was emitted, not from the ledger.
    for step in data["timeline"]:
        expected = gap(kept[: step["samples"]])
        assert step["gaps"][0] == (None if expected is None else pytest.approx(expected, abs=1e-12))
        assert step["change"] == pytest.approx(
            sum(abs(y - z) for _, y, z in kept[step["samples"] - 3 : step["samples"]]), abs=1e-12
        )
    for group in certificate["groups"]:
        mine = [(y, z) for sex, y, z in kept if group["group"].endswith(sex)]
        assert group["count"] == len(mine)
        assert [group["mean"], group["raw_mean"]] == pytest.approx(np.mean(mine, axis=0).tolist())
    text = page.read_text()
    assert "The promise is kept over all 120 decisions" in text
    assert certificate["hash"] in text
    for anchor in ("gaps", "groups", "changes", "provenance"):
        assert f'id="{anchor}"' in text
    assert "<script" not in text
    assert not re.search(r"(src|href)=\"(?!#)", text)
    assert not re.search(r"url\(", text)
    for ending in (".json", ".txt"):
        alone = tmp_path / f"alone{ending}"
        run("stream", "certificate", path, "--name", "loans", "-o", alone, code=0)
        assert certificate["hash"] in alone.read_text()


def test_early_and_later_agreement(store):
    path, kept = store
    found = Stream.open(path, "loans", read_only=True).certificate()
    values = np.array([(y, z) for _, y, z in kept])
    assert found.early == 120
    assert found.early_agreement == pytest.approx(np.corrcoef(values.T)[0, 1])
    assert found.later_agreement is None
    assert "there are no later ones yet" in found.cost


def test_what_waits_is_not_certified(run, store):
    result = run("stream", "certificate", store[0], "--name", "odds", code=1)
    assert "2 decisions are waiting for their targets" in result.stdout


def test_export(run, store, tmp_path):
    path, kept = store
    run("stream", "export", path, "--name", "loans", "-o", tmp_path / "log.csv", code=0)
    frame = pd.read_csv(tmp_path / "log.csv")
    assert len(frame) == 40
    assert frame["decisions_so_far"].iloc[-1] == 120
    assert frame["gap, mean parity"].iloc[-1] == pytest.approx(gap(kept), abs=1e-12)
    run("stream", "export", path, "--name", "loans", "-o", tmp_path / "log.jsonl", code=0)
    head, *entries = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    previous = origin(head["stream"], head["configuration"])
    for entry, expected in zip(entries, (kept[i : i + 3] for i in range(0, 120, 3)), strict=True):
        assert entry["previous"] == previous
        previous = entry["hash"]
        assert np.frombuffer(bytes.fromhex(entry["emitted"])).tolist() == [value for _, value, _ in expected]


def test_names_from_data_stay_names(run, tmp_path):
    hostile = "<script>alert(1)</script>"
    stream = Stream([MeanParity(0.05, name=hostile)], store=tmp_path / "a.db", name=hostile)
    stream.update(np.array([0.2, 0.8]), {hostile: [hostile, "[bold]m"]})
    stream.close()
    run("stream", "list", tmp_path / "a.db", code=0)
    run("stream", "show", tmp_path / "a.db", code=0)
    run("stream", "certificate", tmp_path / "a.db", "-o", tmp_path / "c.html", code=0)
    assert "<script" not in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "STORE"], "several streams: add --name, one of loans, odds"),
        (["show", "STORE", "--name", "lones"], "has no stream 'lones'; it has 'loans', 'odds'"),
        (["list", "nowhere.db"], "does not exist"),
        (["list", "mysql://a/b"], "not known"),
        (["certificate", "STORE", "--name", "loans", "-o", "a.pdf"], "must end in"),
        (["export", "STORE", "--name", "loans", "-o", "STORE"], "must end in"),
        (["export", "STORE", "--name", "loans", "-o", "nowhere/a.csv"], "there is no folder"),
    ],
)
def test_errors_say_what_to_do(run, store, arguments, message):
    result = run("stream", *(str(store[0]) if word == "STORE" else word for word in arguments), code=2)
    assert message in " ".join(result.stderr.split())


def test_predict_with_a_warm_start(run, classifier, tmp_path):
    past, new = write(people(300, 1), tmp_path / "past.csv"), write(people(100, 2), tmp_path / "new.csv")
    arguments = ["predict", classifier, new, "-o", tmp_path / "out.csv", "--mode", "stream", "--batch-size", 1]
    cold = run(*arguments, "--state", tmp_path / "cold.db")
    warm = run(*arguments, "--state", tmp_path / "warm.db", "--warm-start", past)
    assert cold.exit_code == warm.exit_code == 0, warm.stderr
    streams = [Stream.open(tmp_path / f"{kind}.db", read_only=True) for kind in ("cold", "warm")]
    certificates = [stream.certificate() for stream in streams]
    assert [c.samples for c in certificates] == [100, 100]  # past rows do not count
    assert [c.entries for c in certificates] == [100, 101]
    assert [stream.ledger.state.totals.taught for stream in streams] == [0, 300]
    assert certificates[0].mean_change != certificates[1].mean_change
    again = run(*arguments, "--state", tmp_path / "warm.db", "--warm-start", past, code=0)
    assert "was ignored" in again.stderr
    alone = run("predict", classifier, new, "-o", tmp_path / "out.csv", "--warm-start", past, code=2)
    assert "--mode stream" in alone.stderr
