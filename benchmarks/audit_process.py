"""Audit one file in a process of its own, whose peak memory is then that of the audit. See suites/audit.py."""

import json
import sys
import time

from fairlayer import EqualizedOdds, EqualizedResiduals, MeanParity, audit
from measure import OtherWork, peak_mb


def main(path: str) -> dict[str, float]:
    """Audit a file and say what it took."""
    loaded = peak_mb()
    constraints = [
        MeanParity(0.05),
        MeanParity(0.05, over=("sex", "race"), name="parity of both"),
        EqualizedOdds(0.1, over="sex"),
        EqualizedResiduals(0.1),
    ]
    began, others = time.perf_counter(), OtherWork()
    result = audit(path, ["sex", "race", "region"], constraints, prediction="p", target="y", raw="z")
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "rows_per_second": result.settings.samples / seconds,
        "loaded_mb": loaded,
        "peak_mb": peak_mb(),
        "findings": len(result.findings),
        "other_cores": others.cores(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
