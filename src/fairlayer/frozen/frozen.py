"""`Frozen`: a projection that was solved once, as a plain function of one sample. Made by `freeze`.

`FrozenClasses` is one of probabilities of classes; `FrozenDecisions` keeps a threshold in every cell instead of shifts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.arrays import as_numpy
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.constraints.regions import Condition, Region, region_text
from fairlayer.constraints.regions import inside as is_inside
from fairlayer.core.discrepancies import find_discrepancy, inner_limits
from fairlayer.decisions.project import read_threshold
from fairlayer.decisions.scores import threshold_in
from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.frames import is_frame
from fairlayer.frozen.certificate import Certificate
from fairlayer.layer import FairLayer
from fairlayer.plural import plural
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.families import read_feature
from fairlayer.problem.groups import CodedGroups, SoftGroup, group_columns, read_column
from fairlayer.problem.row_plan import RowPlan

MOST_SHIFTS = 100_000


class Family(NamedTuple):
    """Groups that one constraint compares: all combinations of labels of some attributes."""

    attributes: tuple[Name, ...]
    condition: int  # position of the condition within which they are compared, or -1


class Frozen(nn.Module):
    """Raw outputs and groups of any number of samples -> outputs, each a function of its own sample.

    Made by `freeze`. `labels` holds the known labels of every attribute; `certificate` what is known of the gaps.
    With a backbone the first argument of the call is the backbone's input.
    """

    shifts: Tensor
    seen: Tensor
    limits: Tensor

    def __init__(self, layer: FairLayer, labels: Mapping[Name, Sequence[Label]], backbone: nn.Module | None = None):
        super().__init__()
        self.backbone = backbone
        self.labels = {name: tuple(known) for name, known in labels.items()}
        self.constraints: list[Any] = list(layer.rules.constraints)
        self.bounds = layer.bounds
        self.discrepancy = find_discrepancy(layer.discrepancy)
        self.certificate: Certificate | None = None
        self.conditions: list[tuple[Condition, Region]] = []  # a feature, and one of its regions
        self.families = self._lay_out(layer.rules)
        count = sum(math.prod(len(self.labels[name]) for name in family.attributes) for family in self.families)
        if count > MOST_SHIFTS:
            raise InputError(
                f"The constraints compare {count:,} combinations of labels; a frozen layer keeps shifts of at most "
                f"{MOST_SHIFTS:,}: merge rare groups, or compare fewer attributes together."
            )
        self.place: dict[tuple[int, tuple[Label, ...]], int] = {}  # of the shift of each combination of a family
        for f, family in enumerate(self.families):
            for combination in product(*(self.labels[name] for name in family.attributes)):
                self.place[f, combination] = len(self.place)
        self.register_buffer("shifts", torch.zeros(len(self.place), dtype=torch.float64))
        self.register_buffer("seen", torch.ones(len(self.place), dtype=torch.bool))  # whether the fit had samples of it
        self._keep("limits", self._limits)

    def _lay_out(self, rules: ConstraintSet) -> list[Family]:
        """The families, in the order in which the constraints state their groups."""
        families = []
        groupings, _ = rules.groupings(tuple(self.labels))
        for constraint, compared in zip(self.constraints, groupings, strict=True):
            parts = [(condition, region) for condition in constraint.conditions for region in condition.regions or ()]
            where = range(len(self.conditions), len(self.conditions) + len(parts)) if parts else [-1]
            self.conditions += parts
            families += [Family(grouping, condition) for condition, grouping in product(where, compared)]
        return families

    def _limits(self, dtype: torch.dtype) -> tuple[float, float]:
        """What outputs of a dtype lie within."""
        box = read_bounds(self.bounds, 1, dtype).within(*inner_limits(self.discrepancy, dtype))
        return float(box.lo[0]), float(box.hi[0])

    def _keep(self, name: str, make: Callable[[torch.dtype], tuple[float, float]]) -> None:
        """Keep a pair of numbers as outputs of each dtype have it, in buffers: ONNX rounds plain numbers."""
        for suffix, dtype in (("", torch.float64), ("_single", torch.float32)):
            self.register_buffer(name + suffix, torch.tensor(make(dtype), dtype=dtype))

    def _kept(self, name: str, dtype: torch.dtype) -> Tensor:
        """(2,) the pair for outputs of a dtype."""
        return getattr(self, name if dtype == torch.float64 else f"{name}_single").to(dtype)

    def forward(self, x: Any, groups: Tensor) -> Tensor:
        """Outputs for raw outputs (or backbone inputs) x and what `encode` makes of the groups.

        groups: (n, k) integer codes, or (n, K) probabilities of all labels side by side, in float64. A code that is
        none of a label is refused; so are combinations without a shift of their own.
        """
        z = x if self.backbone is None else self.backbone(x)
        if not z.is_floating_point():
            raise InputError(f"x holds {z.dtype}, and shifts are no whole numbers: pass floats.")
        member = self.membership(groups)
        if not groups.is_floating_point():
            member = member + self._refuse_unknown(groups, member)
        shift, device = member @ self.shifts, z.device
        z = z.to(self.shifts.device)  # outputs may come from elsewhere, and go back there
        return self.respond(z, shift.unsqueeze(-1) if z.ndim > shift.ndim else shift).to(device)

    def respond(self, z: Tensor, shift: Tensor) -> Tensor:
        """Raw outputs moved by shifts in float64, of the same shape."""
        return self.discrepancy.response(z, shift.to(z.dtype), *self._kept("limits", z.dtype))

    def _refuse_unknown(self, codes: Tensor, member: Tensor) -> Tensor:
        """(n, 1) zeros; an error where a sample's groups are not known.

        An exported program cannot raise, but looking up place 1 in a table of one entry makes its runtime do so.
        """
        sizes = torch.tensor([len(known) for known in self.labels.values()], device=codes.device)
        labels = codes[..., : len(sizes)]
        unknown = ((labels < 0) | (labels >= sizes)).any(dim=-1) | ((member * ~self.seen).sum(dim=-1) > 0)
        if not torch.compiler.is_compiling() and bool(unknown.any()):
            raise InputError(
                "groups holds codes that stand for no label, or combinations of labels that have no shift: make codes "
                "with `encode`, which says which labels they are."
            )
        return torch.nn.functional.embedding(unknown.long(), self.shifts.new_zeros(1, 1))

    def membership(self, groups: Tensor) -> Tensor:
        """(n, number of shifts): whether, or with what probability, each sample belongs to each group."""
        sizes, parts = [len(known) for known in self.labels.values()], []
        if groups.is_floating_point():
            *columns, conditions = groups.double().split([*sizes, len(self.conditions)], dim=-1)
        else:
            labels, conditions = groups[..., : len(sizes)], groups[..., len(sizes) :].double()
            columns = [
                (labels[..., j : j + 1] == torch.arange(size, device=groups.device)).double()
                for j, size in enumerate(sizes)
            ]
        members = dict(zip(self.labels, columns, strict=True))
        for family in self.families:
            part, *others = (members[name] for name in family.attributes)
            for other in others:
                part = (part.unsqueeze(-1) * other.unsqueeze(-2)).flatten(-2)
            if family.condition >= 0:
                part = part * conditions[..., family.condition : family.condition + 1]
            parts.append(part)
        return torch.cat(parts, dim=-1)

    def encode(self, groups: Any, features: Any = None, unseen: Literal["raise", "unshifted"] = "raise") -> Tensor:
        """Turn labels, in any form that `project` takes, into what the module takes.

        A label that the calibration sample did not have is refused, or with unseen="unshifted" not shifted. Where an
        intersection is constrained, its combinations of labels must have occurred as well.
        """
        if unseen not in ("raise", "unshifted"):
            raise InputError(f"unseen must be 'raise' or 'unshifted'; got {unseen!r}.")
        given = _named(groups, list(self.labels))
        n = len(next(iter(given.values())))
        columns = [read_column(name, given[name], n) for name in self.labels]
        inside = np.zeros((n, len(self.conditions)))
        for j, (condition, region) in enumerate(self.conditions):
            inside[:, j] = is_inside(read_feature(features, condition.name), region, condition.argument)
        # Codes say which label a sample has; that it has none that is known, only probabilities of 0 can say.
        if unseen == "unshifted" or any(isinstance(column, SoftGroup) for column in columns):
            parts = [self._probabilities(name, one, unseen) for name, one in zip(self.labels, columns, strict=True)]
            return torch.from_numpy(np.concatenate([*parts, inside], axis=1))
        codes = [self._codes(name, one, unseen) for name, one in zip(self.labels, columns, strict=True)]
        table = torch.from_numpy(np.column_stack([*codes, inside.astype(np.int64)]))
        if missing := self.unseen(table):
            raise InputError(
                f"groups has samples of {missing[:5]}, of which the shifts were fitted without a sample. Freeze again "
                "with such samples, or pass unseen='unshifted' to leave them as they are."
            )
        return table

    def unseen(self, groups: Tensor) -> list[str]:
        """Combinations among encoded groups that a constraint compares by themselves and that have no shift."""
        if bool(self.seen.all()):
            return []
        met = (self.membership(groups).sum(dim=0) > 0) & ~self.seen
        return [name for name, found in zip(self.group_names(), met.tolist(), strict=True) if found]

    def _codes(self, name: Name, column: Any, unseen: str) -> np.ndarray:
        """(n,) the position of each label among the known ones, -1 where it is none of them."""
        known = {label: code for code, label in enumerate(self.labels[name])}
        labels, place = column.labels, as_numpy(column.values)
        if labels is None:
            found, place = np.unique(place, return_inverse=True)
            labels = found.tolist()
        codes = np.array([known.get(label, -1) for label in labels], dtype=np.int64)[place]
        if unseen == "raise" and (codes < 0).any():
            missing = [labels[at] for at in np.unique(place[codes < 0]).tolist()]
            raise InputError(
                f"groups[{name!r}] holds {missing[:5]}, which the calibration sample did not have: it has "
                f"{list(known)}. Freeze again with such samples, or pass unseen='unshifted' to leave them as they are."
            )
        return codes

    def _probabilities(self, name: Name, column: Any, unseen: str) -> np.ndarray:
        """(n, labels) of the known labels."""
        known = self.labels[name]
        if not isinstance(column, SoftGroup):
            return (self._codes(name, column, unseen)[:, None] == np.arange(len(known))).astype(np.float64)
        if set(column.labels) != set(known):
            raise InputError(f"groups[{name!r}] has probabilities of {list(column.labels)}, expected {list(known)}.")
        return column.probabilities[:, [column.labels.index(label) for label in known]]

    @torch.no_grad()
    def predict(
        self, x: Any, groups: Any, features: Any = None, unseen: Literal["raise", "unshifted"] = "raise"
    ) -> Any:
        """Outputs for labels as they come; an array for an array, and a tensor where x is."""
        codes = self.encode(groups, features, unseen)
        array = isinstance(x, np.ndarray) or (self.backbone is None and not isinstance(x, Tensor))
        raw = torch.from_numpy(np.ascontiguousarray(as_numpy(x, "x"))) if array else x
        if isinstance(raw, Tensor) and len(raw) != len(codes):  # a backbone may take anything
            rows = f"{len(codes)} {plural(len(codes), 'row')}"
            raise InputError(f"groups has {rows} for {len(raw)} of x: pass one label for each.")
        home = self.seen.device
        y = self(raw.to(home) if self.backbone is None else raw, codes.to(home)).cpu()
        odd = (~torch.isfinite(y)).nonzero()
        if len(odd):
            raise InputError(f"x[{int(odd[0, 0])}] leads to an output that is not finite: leave it out.")
        if array:
            return y.numpy()
        return y.to(x.device if isinstance(x, Tensor) else home)

    def export(self, x: Any, *, soft: bool = False) -> torch.export.ExportedProgram:
        """The module as a program of torch.export for any number of samples; x: an example input of two or more."""
        width = len(self.conditions)
        width += sum(map(len, self.labels.values())) if soft else len(self.labels)
        groups = torch.zeros(len(x), width, dtype=torch.float64 if soft else torch.int64)
        batch = torch.export.Dim.DYNAMIC
        return torch.export.export(self.eval(), (x, groups), dynamic_shapes=({0: batch}, {0: batch}))

    def to_onnx(self, path: Any, x: Any, *, soft: bool = False) -> None:
        """Write an ONNX file with inputs `x` and `groups` and output `y`; x: an example input of two or more.

        Its metadata say what the columns of `groups` are: see `describe_groups`. A runtime that checks its indices, as
        onnxruntime does, refuses codes that stand for no label.
        """
        with needs("Writing ONNX", "onnx", "onnxscript"):
            import onnx  # noqa: F401  # torch imports them, and fails without saying how to get them
            import onnxscript  # noqa: F401
        program = torch.onnx.export(
            self.export(x, soft=soft), input_names=["x", "groups"], output_names=["y"], verbose=False
        )
        assert program is not None
        told = program.model.metadata_props
        told["fairlayer.version"] = metadata.version("fairlayer")
        told["fairlayer.groups"] = json.dumps(self.describe_groups(), ensure_ascii=False, default=str)
        told["fairlayer.form"] = "probabilities" if soft else "codes"
        program.save(str(path))

    def describe_groups(self) -> list[dict[str, Any]]:
        """What the columns of `groups` are, in their order, as plain data.

        For an attribute its labels: the code of a label is its position; as probabilities, each label has a column. For
        a region of a feature that the constraints look within, a column that is 1 inside and 0 outside.
        """
        attributes = [{"attribute": str(name), "labels": list(known)} for name, known in self.labels.items()]
        regions = [{"feature": str(one.name), "region": region_text(region)} for one, region in self.conditions]
        return [*attributes, *regions]

    def places(self, plan: RowPlan) -> np.ndarray:
        """(K,) where the shift of each statistic of a plan is kept; the plan is one of the same constraints."""
        return np.array([self.place[f, one] for f, family in enumerate(plan.families) for one in family.groups])

    def group_names(self) -> list[str]:
        """What each of the shifts belongs to."""
        listed = []
        for f, combination in self.place:
            attributes, at = self.families[f]
            parts = [f"{name} {label}" for name, label in zip(attributes, combination, strict=True)]
            within = f" within {self.conditions[at][0].name} {region_text(self.conditions[at][1])}" if at >= 0 else ""
            listed.append(" & ".join(parts) + within)
        return listed

    def extra_repr(self) -> str:
        """Attributes and bounds."""
        return f"labels={self.labels}, bounds={self.bounds}"


class FrozenClasses(Frozen):
    """Class probabilities (n, d) and groups of any number of samples -> fair ones, each a function of its own sample.

    Made by `freeze` of a layer with simplex=True. `shifts` has a column for every class.
    """

    def __init__(self, layer: FairLayer, labels: Any, backbone: nn.Module | None = None, classes: int = 2):
        super().__init__(layer, labels, backbone)
        self.shifts = torch.zeros(len(self.shifts), classes, dtype=torch.float64)

    def respond(self, z: Tensor, shift: Tensor) -> Tensor:
        """Probabilities (n, d) moved by shifts, in float64, and as many."""
        if z.shape[-1] != self.shifts.shape[1]:
            raise InputError(
                f"z has shape {tuple(z.shape)}: {self.shifts.shape[1]} probabilities per sample are needed."
            )
        raw = z.double()
        if self.discrepancy.name == "entropy":
            weights = raw * torch.exp(shift.amin(-1, keepdim=True) - shift)
            return (weights / weights.sum(-1, keepdim=True)).to(z.dtype).clamp(min=torch.finfo(z.dtype).tiny)
        # The point of the simplex nearest to z - s: all less a threshold, which those above it share.
        moved = raw - shift
        ordered = torch.sort(moved, dim=-1, descending=True).values
        rank = torch.arange(1, moved.shape[-1] + 1, dtype=moved.dtype, device=moved.device)
        threshold = (torch.cumsum(ordered, -1) - 1.0) / rank
        above = (ordered > threshold).sum(-1, keepdim=True)
        return (moved - threshold.gather(-1, above - 1)).clamp(min=0.0).to(z.dtype)


class FrozenDecisions(Frozen):
    """Raw scores and groups of any number of samples -> scores that decide, each a function of its own sample.

    Made by `freeze` of a layer with `RateParity`. A raw score from its cell's threshold on comes out at the stated
    threshold or above, any other below it; scores that need no change keep their value. `shifts` holds, cell by cell,
    how far its threshold is from the stated one.
    """

    def __init__(self, layer: FairLayer, labels: Any, backbone: nn.Module | None = None):
        super().__init__(layer, labels, backbone)
        self._keep("ends", partial(threshold_in, read_threshold(layer.rules)))  # the threshold, and just below

    def _lay_out(self, rules: ConstraintSet) -> list[Family]:
        """One threshold for every combination of labels."""
        return [Family(tuple(self.labels), -1)]

    def respond(self, z: Tensor, shift: Tensor) -> Tensor:
        """Scores from raw ones, whose thresholds are moved by shifts in float64."""
        inside, (at, below) = torch.clamp(z, *self._kept("limits", z.dtype)), self._kept("ends", z.dtype)
        yes, no = torch.maximum(inside, at), torch.minimum(inside, below)
        return torch.where(z.double() >= shift + at.double(), yes, no)


def _named(groups: Any, names: list[Name]) -> dict[Name, Any]:
    """Columns of labels by name, in any form that `read_groups` takes, but with the labels as they are."""
    columns = group_columns(groups)
    absent = [name for name in names if name not in columns]
    if absent and not isinstance(groups, Mapping | CodedGroups) and not is_frame(groups):  # these have no names
        if len(columns) != len(names):
            raise InputError(
                f"groups has {len(columns)} without names, and the attributes are {names}: pass columns by name."
            )
        columns, absent = dict(zip(names, columns.values(), strict=True)), []
    if absent:
        raise InputError(f"groups has no {absent}: pass every attribute of the calibration sample, {names}.")
    return {name: columns[name] for name in names}
