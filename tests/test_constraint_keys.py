"""What a stored stream knows a constraint by is the same in every process."""

import os
import subprocess
import sys

PROGRAM = """
from fairlayer import ConditionalParity
print(ConditionalParity(0.05, regions={"town": [{"Aachen", "Bonn", "Celle", "Dresden"}, {"Essen"}]}).key)
"""


def test_sets_of_values_have_one_order():
    keys = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(keys) == 1
