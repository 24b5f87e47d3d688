"""fairness-training's online step on one of our streams, in its own environment: `python -m streams.authors REQUEST`.

REQUEST is JSON: a scenario's settings, and the seconds it may take. Prints JSON: milliseconds of each step. What it
emitted goes to the file named in the request.
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np

from measure import OtherWork
from streams.scenarios import WIDE, Scenario


def run(scenario: Scenario, seconds: float, outputs: str) -> dict[str, Any]:
    """Decide the stream until it ends or time is up."""
    import torch
    from fairness_training import FairModel

    class Given(torch.nn.Module):
        """A network whose output is set from outside."""

        output: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.output[:, None]

    network = Given()
    model = FairModel(
        input_dim=scenario.attributes,
        protected_attr_idx=list(range(scenario.attributes)),
        prediction_bounds=scenario.bounds or (-10.0 * WIDE, 10.0 * WIDE),  # it always has a box
        fairness_tolerance=scenario.tolerance,
        custom_network=network,
        b_tau=max(64, scenario.batch + 1),
        eta_0=0.5,
    )
    model.eval()
    z, groups = scenario.draw()
    emitted: list[np.ndarray] = []
    times: list[float] = []
    failures: list[str] = []
    began, others = time.perf_counter(), OtherWork()
    for at in scenario.batches():
        network.output = torch.tensor(z[at], dtype=torch.float32)
        x = torch.tensor(groups[at], dtype=torch.float32)
        start = time.perf_counter()
        try:
            with torch.no_grad():
                value = model(x, inference=True)[:, 0].numpy()
        except Exception as error:  # no prediction: the raw outputs stand in for it
            failures.append(type(error).__name__)
            value = z[at]
        times.append(1e3 * (time.perf_counter() - start))
        emitted.append(np.asarray(value, dtype=np.float64))
        if time.perf_counter() - began > seconds:
            break
    np.save(outputs, np.concatenate(emitted))
    return {
        "median_ms": float(np.median(times[3:])) if len(times) > 3 else None,
        "steps": len(times),
        "failed": len(failures),
        "other_cores": others.cores(),
    }


if __name__ == "__main__":
    # The package prints to standard output; send that to standard error, keep ours clean.
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.argv[1])
    print(json.dumps(run(Scenario(**request["scenario"]), request["seconds"], request["outputs"])), file=reply)
