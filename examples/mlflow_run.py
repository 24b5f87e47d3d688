"""A run in MLflow: the model as a folder, the audit page and the gaps, in one place. Needs `mlflow`.

Model folders hold no pickle, so they are logged as artifacts, and read again with `fairlayer.estimators.folder.load`.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

import mlflow
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from fairlayer import MeanParity, audit
from fairlayer.estimators.folder import load, save
from fairlayer.sklearn import FairClassifier


def people(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, whether they repaid, and their sex."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    features = rng.normal(size=(n, 5)) + 0.5 * (sex == "m")[:, None]
    return features, (features.sum(axis=1) + rng.normal(size=n) > 1).astype(int), sex


def main(n: int = 1500) -> None:
    X, y, sex = people(n, 0)
    new, truth, groups = people(n, 1)
    model = FairClassifier([MeanParity(0.02)], estimator=HistGradientBoostingClassifier(max_iter=30, random_state=0))
    model.fit(X, y, sensitive_features=sex)
    scores = model.predict_proba(new, sensitive_features=groups)[:, 1]
    result = audit(scores, {"sex": groups}, [MeanParity(0.02)], targets=truth, tradeoff=False)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow.set_tracking_uri(f"sqlite:///{folder}/runs.db" if _has_sql() else Path(folder, "runs").as_uri())
        with mlflow.start_run() as run:
            mlflow.log_params({"constraints": "; ".join(result.settings.constraints), "model": "boosted trees"})
            mlflow.log_metrics({f"gap {finding.name}".replace(",", ""): finding.gap for finding in result.findings})
            mlflow.log_metric("kept", float(result.satisfied))
            save(model, Path(folder, "model"))
            mlflow.log_artifacts(str(Path(folder, "model")), "model")
            mlflow.log_artifact(str(result.to_html(Path(folder, "report.html"))))
        logged = mlflow.get_run(run.info.run_id)
        again = load(Path(folder, "model"))
    print(result.headline)
    print({name: round(value, 4) for name, value in logged.data.metrics.items()})
    assert (again.predict_proba(new, sensitive_features=groups)[:, 1] == scores).all()


def _has_sql() -> bool:
    """Whether MLflow can keep runs in a database; the small package, mlflow-skinny, keeps them in files."""
    return importlib.util.find_spec("sqlalchemy") is not None


if __name__ == "__main__":
    main()
