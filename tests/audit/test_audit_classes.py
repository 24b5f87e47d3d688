"""Audits of class probabilities: gaps by class, shares of the predicted class, the page, and what is refused."""

import json

import numpy as np
import pytest

from fairlayer import EqualizedOdds, InputError, MeanParity, RatioParity, audit, project
from fairlayer.audit import Audit

RNG = np.random.default_rng(0)
N = 1200
SEX = np.where(RNG.random(N) < 0.4, "f", "m")
TRUE = RNG.integers(0, 3, N)
LOGITS = RNG.normal(size=(N, 3)) + 1.5 * np.eye(3)[TRUE] + (SEX == "f")[:, None] * [0.8, 0.0, -0.8]
RAW = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
NAMES = ["low", "middle", "high"]
LABELS = np.array(NAMES)[TRUE]


def test_every_class_is_judged_and_the_worst_comes_first():
    result = audit(RAW, {"sex": SEX}, [MeanParity(0.05)], targets=LABELS, classes=NAMES)
    assert not result.satisfied
    assert result.verdict == "violated"
    gaps = RAW[SEX == "f"].mean(axis=0) - RAW[SEX == "m"].mean(axis=0)
    assert len(result.findings) == 3
    found = {finding.name: finding for finding in result.findings}
    for name, gap in zip(NAMES, gaps, strict=True):
        finding = found[f"mean parity, sex: f - m, class {name}"]
        assert finding.gap == pytest.approx(gap)
        assert finding.interval[0] < gap < finding.interval[1]
    assert abs(result.worst.gap) == pytest.approx(np.abs(gaps).max())
    assert list(result.classes) == NAMES
    assert result.classes["low"].overall.target_mean == pytest.approx((TRUE == 0).mean())
    assert result.classes["low"].overall.calibration


def test_shares_of_the_predicted_class():
    result = audit(RAW, {"sex": SEX}, [MeanParity(0.05)], targets=LABELS, classes=NAMES)
    predicted = RAW.argmax(axis=1)
    rates = {group.name: group.decision_rate.value for group in result.selections}
    for j, name in enumerate(NAMES):
        expected = (predicted[SEX == "f"] == j).mean()
        assert rates[f"sex & class: f & {name}"] == pytest.approx(expected)
    assert result.least_selected.selection.impact_ratio < 0.8
    assert "Predicted classes: sex & class" in result.headline
    assert f"right for {(predicted == TRUE).mean():.1%}" in result.table()
    assert "class high" in result.table()
    assert "f & high" in result.table()
    assert result.overall.accuracy.value == pytest.approx((predicted == TRUE).mean())


def test_fair_outputs_satisfy_it_and_changes_are_shown():
    fair = project(RAW, {"sex": SEX}, [MeanParity(0.01)], discrepancy="entropy", simplex=True).value
    result = audit(fair, {"sex": SEX}, [MeanParity(0.01)], raw=RAW)
    assert result.satisfied
    assert list(result.classes) == ["0", "1", "2"]
    change = result.classes["2"].overall.change
    assert change.mean_absolute == pytest.approx(np.abs(fair[:, 2] - RAW[:, 2]).mean())


def test_the_page_and_json(tmp_path):
    result = audit(RAW, {"sex": SEX}, [MeanParity(0.05)], targets=LABELS, classes=NAMES, raw=RAW)
    page = result.to_html(tmp_path / "report.html").read_text()
    assert "class high" in page
    assert page.count('<section id="') == len(set(page.split('<section id="')[1:]))
    assert 'id="calibration-2"' in page
    assert result.to_card(tmp_path / "card.md").read_text().count("class high")
    result.to_json(tmp_path / "report.json")
    again = Audit.from_json(tmp_path / "report.json")
    assert again.to_dict() == json.loads((tmp_path / "report.json").read_text())
    assert again.classes["middle"].overall == result.classes["middle"].overall


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["low"] * 3}, "3 entries for 1200"),
        ({"targets": ["other"] * N, "classes": NAMES}, "none of the classes"),
        ({"classes": ["a", "b"]}, "classes names 2"),
        ({"threshold": 0.5}, "one output per sample"),
        ({"raw": RAW[:, :2]}, "must be alike"),
        ({"constraints": [RatioParity(0.8)]}, "does not go with"),
        ({"predictions": RAW[:, 0], "classes": ["low"]}, "leave it out"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        audit(**{"predictions": RAW, "groups": {"sex": SEX}, "constraints": [MeanParity(0.05)], **options})


@pytest.mark.parametrize("names", [NAMES, None])
def test_odds_within_true_classes_can_be_told(names, tmp_path):
    """Names of classes that are numbers are no numbers to compare probabilities with."""
    targets = TRUE if names is None else LABELS
    result = audit(RAW, {"sex": SEX}, [EqualizedOdds(0.1)], targets=targets, classes=names)
    assert len(result.findings) == 9
    assert "everybody" in result.table()
    assert "RMSE" not in result.table()
    assert all(own.overall.bias is None for own in result.classes.values())
    assert result.to_html(tmp_path / "page.html").exists()
    assert result.to_card(tmp_path / "card.md").exists()
    fair = project(RAW, {"sex": SEX}, [EqualizedOdds(0.01)], targets=targets, simplex=True).value
    assert audit(fair, {"sex": SEX}, [EqualizedOdds(0.01)], targets=targets, classes=names).satisfied
