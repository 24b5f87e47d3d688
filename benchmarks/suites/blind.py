"""Blind serving: the true groups' gaps, what is stated of them, and what it costs, over many calibration samples."""

import time
from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from experiments import datasets
from fairlayer import FairLayer, MeanParity, SoftGroup, audit, freeze
from fairlayer.estimators.blind import GroupModel
from fairlayer.estimators.models import make_estimator
from fairlayer.frozen.blind import OutOfReachError
from fairlayer.metrics import mean_parity_difference
from records import Target, figure, markdown_table, write_csv, write_settings

CONFIDENCE = 0.95
TOLERANCE = 0.02
TRAIN, CALIBRATION = 8000, 3000  # rows at most, and at most half of them
HIDDEN = {"adult": ["sex", "race"], "credit_card": ["SEX", "MARRIAGE"], "acs": ["SEX", "RAC1P", "HISP"]}
SETTINGS = (("adult", "sex"), ("adult", "race"), ("credit_card", "sex"), ("acs", "sex"))
TITLE = f"""# Blind serving

Boosted trees predict the outcome, others how likely each group is, both without the protected columns among their
inputs. The rows that neither has learned from are the population. From it calibration samples are drawn with
replacement; each gives shifts for a gap of {TOLERANCE} between the true groups, and a statement at confidence
{CONFIDENCE}. *wrong*: samples whose stated bound the population's true gap exceeds. *audit wrong*: those where the
interval of an audit of the rows kept for the statement does not contain the true gap, with its sign. *aware*: the same
with shifts by the groups themselves. *out of reach*: samples for which no shifts keep the tolerance. Race is White
against all others. Accuracies, AUC and gaps are of the population, on average over the samples.

"""


class Population(NamedTuple):
    """Rows that no model has learned from."""

    z: np.ndarray
    positive: np.ndarray
    group: np.ndarray
    proxy: SoftGroup


def main(args: Namespace) -> list[Target]:
    """Learn once per data set, then draw, choose shifts, and compare what is stated with the truth."""
    draws = 10 if args.quick else 200
    rows = [
        resample(name, what, learn(name, what, args.seed), draws, np.random.default_rng((args.seed, number)))
        for number, (name, what) in enumerate(SETTINGS)
    ]
    write_csv(args.results / "blind.csv", rows)
    lines = [[figure(cell) if isinstance(cell, float) else cell for cell in row.values()] for row in rows]
    header = [name.replace("_", " ") for name in rows[0]]
    (args.results / "blind.md").write_text(TITLE + markdown_table(header, lines) + "\n")
    write_settings(args.results / "blind.json", args, confidence=CONFIDENCE, tolerance=TOLERANCE, draws=draws)
    return [
        Target(
            f"blind, {row['data']}, {row['protected']}: share of {draws - row['out_of_reach']} statements wrong",
            row["wrong"] / max(1, draws - row["out_of_reach"]),
            1 - CONFIDENCE,
        )
        for row in rows
    ]


def learn(name: str, what: str, seed: int) -> Population:
    """Both models, and the rows left."""
    data = getattr(datasets, name)()
    X = data.features.drop(columns=HIDDEN[name])
    y = np.asarray(data.target)
    positive = y == np.unique(y)[-1]
    group = np.asarray(data.protected[what]).astype(str).astype(object)
    if what == "race":
        group = np.where(group == "White", "White", "other").astype(object)
    order = np.random.default_rng(seed).permutation(len(y))
    used, rest = np.split(order, [min(TRAIN, len(y) // 2)])
    model = make_estimator("boosting", X, True, 0).fit(X.iloc[used], positive[used])
    groups = GroupModel.fit(X.iloc[used], {what: group[used]}, [what], 0)
    z = model.predict_proba(X.iloc[rest])[:, 1]
    return Population(z, positive[rest], group[rest], groups(X.iloc[rest])[what])


def resample(name: str, what: str, people: Population, draws: int, random: np.random.Generator) -> dict[str, Any]:
    """Shifts and statements from many calibration samples, beside the truth."""
    began = time.perf_counter()
    layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    z, group, proxy = people.z, people.group, people.proxy
    first, second = sorted(set(group.tolist()))
    n = min(CALIBRATION, len(z) // 2)
    found: dict[str, list[float]] = {key: [] for key in ("stated", "true", "low", "high", "signed")}
    blind, aware = [], []
    for seed in range(draws):
        rows = random.integers(0, len(z), n)
        sample, likely = group[rows], SoftGroup(proxy.probabilities[rows], proxy.labels)
        try:
            frozen = freeze(layer, z[rows], {what: sample}, proxies={what: likely}, confidence=CONFIDENCE, seed=seed)
        except OutOfReachError:
            continue
        assert frozen.certificate is not None
        served = frozen.predict(z, {what: proxy})
        signed = float(served[group == first].mean() - served[group == second].mean())
        kept = rows[np.sort(np.random.default_rng(seed).permutation(n)[: round(0.5 * n)])]  # as `freeze` draws them
        low, high = interval(served[kept], group[kept], what, f"{first} - {second}")
        for key, value in zip(found, (frozen.certificate.gap, abs(signed), low, high, signed), strict=True):
            found[key].append(value)
        blind.append(quality(people, served))
        known = freeze(layer, z[rows], {what: sample}, confidence=CONFIDENCE, seed=seed)
        aware.append(quality(people, known.predict(z, {what: group})))
    stated, true, low, high, signed = (np.array(values) for values in found.values())
    (raw, raw_auc, raw_gap), blind_mean, aware_mean = quality(people, z), np.mean(blind, axis=0), np.mean(aware, axis=0)
    row = {
        "data": name,
        "protected": what,
        "rows": n,
        "draws": draws,
        "out_of_reach": draws - len(true),
        "wrong": int((true > stated).sum()),
        "mean_stated_bound": float(stated.mean()),
        "audit_wrong": int(((signed < low) | (signed > high)).sum()),
        "mean_audit_interval": f"{low.mean():.3f} to {high.mean():.3f}",
        "raw_gap": raw_gap,
        "blind_gap": float(blind_mean[2]),
        "largest_blind_gap": float(true.max()),
        "aware_gap": float(aware_mean[2]),
        "raw_accuracy": raw,
        "blind_accuracy": float(blind_mean[0]),
        "aware_accuracy": float(aware_mean[0]),
        "raw_AUC": raw_auc,
        "blind_AUC": float(blind_mean[1]),
        "aware_AUC": float(aware_mean[1]),
    }
    print(f"  {row}, {time.perf_counter() - began:.0f} s", flush=True)
    return row


def interval(y: np.ndarray, group: np.ndarray, what: str, pair: str) -> tuple[float, float]:
    """What an audit says of the population's gap."""
    result = audit(y, {what: group}, [MeanParity(TOLERANCE)], bounds=(0.0, 1.0), confidence=CONFIDENCE, tradeoff=False)
    (finding,) = [entry for entry in result.findings if pair in entry.name]
    return finding.interval


def quality(people: Population, y: np.ndarray) -> tuple[float, float, float]:
    """Accuracy, AUC, gap of the true groups."""
    return (
        float(((y >= 0.5) == people.positive).mean()),
        float(roc_auc_score(people.positive, y)),
        float(mean_parity_difference(None, y, sensitive_features=people.group)),
    )
