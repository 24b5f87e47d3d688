"""The authors' figures of the picture experiments, by the names of networks and methods that our tables have."""

from __future__ import annotations

from typing import Any

from experiments.pictures.inference import HARD, SOFT
from experiments.tables import published

METHODS = {"f_layer": "F-Layer", "projection": "Projection", "penalty": "Penalty", "strict_penalty": "Strict Penalty"}
NETWORKS = {
    "simple_cnn": "CustomCNN",
    "resnet18": "ResNet-18",
    "densenet121": "DenseNet-121",
    "swin_t": "Swin-T",
    "vit_b_16": "ViT-B/16",
}
Row = dict[str, Any]


def stored_runs(name: str) -> list[Row]:
    """Every network and method: test accuracy, pooled gap, and whether the authors' file says that it is satisfied."""
    return [
        {
            "network": NETWORKS[row["backbone"]],
            "method": METHODS[row["method"]],
            "accuracy": float(row["test_accuracy"]),
            "raw_accuracy": float(row["raw_accuracy"]) if row["raw_accuracy"] else None,
            "pooled_gap": float(row["max_pairwise_gap"]),
            "satisfied": row["flag_constraint_satisfied"] == "True",
        }
        for row in published(name)
    ]


def printed_wider(name: str) -> tuple[float, dict[tuple[str, str], float]]:
    """The paper's larger tolerance, and its accuracies by network and method."""
    rows = published("image_paper_larger_slack")
    column = next(column for column in rows[0] if column.startswith(name))
    accuracies = {(row["backbone"], METHODS[row["method"]]): float(row[column]) for row in rows}
    return float(column.rsplit("_", 1)[1]), accuracies


def printed_batch_sizes(name: str) -> dict[tuple[str, str, int], float]:
    """The paper's accuracies of F-Layer by network, regime and batch size.

    The table's rows are named by b_tau. No batch is smaller than 4, so the row 4 is read as hard projection; the stored
    files and the paper's text suggest that the two names were exchanged.
    """
    regimes = {"4": HARD, "1024": SOFT}
    return {
        (row["backbone"], regimes[row["b_tau_as_printed"]], int(column[1:])): float(value)
        for row in published(f"{name}_paper_btau")
        for column, value in row.items()
        if column[1:].isdigit()
    }


def stored_batch_sizes(name: str) -> dict[tuple[str, str, str, int], Row]:
    """Stored accuracies and pooled gaps by network, method, regime and batch size; there are some for FairFace."""
    if name != "fairface":
        return {}
    return {
        (
            NETWORKS[row["backbone"]],
            METHODS[row["method"]],
            SOFT if row["regime"] == "primal-dual" else HARD,
            int(row["b_infer"]),
        ): {"accuracy": float(row["accuracy"]), "pooled_gap": float(row["max_pairwise_gap"])}
        for row in published("fairface_threshold_ablation")
    }
