"""Tables that outgrow a machine: `project`, `audit`, `freeze` and `predict` over a Ray Data dataset.

    import ray, fairlayer.ray
    people = ray.data.read_parquet("people/")
    fair = fairlayer.ray.project(people, score="p", protected=["sex"], constraints=[MeanParity(0.02)], bounds=(0, 1))
    fair.dataset.write_parquet("fair/")

Workers take exact sums of their blocks, the sums are added up and solved here, and workers move the scores. The answer
is that of `fairlayer project` on a file with the same rows, to the bit, however the rows are divided into blocks.
"""

from fairlayer.ray.audit import audit
from fairlayer.ray.freeze import freeze
from fairlayer.ray.predict import predict
from fairlayer.ray.project import Projected, project

__all__ = ["Projected", "audit", "freeze", "predict", "project"]
