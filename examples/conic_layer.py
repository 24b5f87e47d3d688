"""Any convex layer: cvxpylayers states what fairlayer does not know, and fairlayer makes the group means exact.

    min ||y - z||_1    s.t.    |mean(y | a) - mean(y | b)| <= 0.05,  0 <= y <= 1,  y does not fall as experience grows

fairlayer has neither the absolute distance nor the monotone order. cvxpylayers solves the whole problem with a general
conic solver and differentiates it, up to the solver's tolerance. The fairness layer behind it closes the rest of the
gap, some billionths, so that the constraint on the means holds exactly; the others hold to the solver's tolerance. A
problem is built for each batch, so this is much slower than fairlayer alone.

    pip install cvxpylayers clarabel
    python examples/conic_layer.py
"""

import cvxpy
import torch
from cvxpylayers.torch import CvxpyLayer

from fairlayer import FairLayer, MeanParity

TOLERANCE = 0.05
SOLVER = {"solve_method": "Clarabel"}


def conic_layer(sex: torch.Tensor) -> CvxpyLayer:
    """The layer for a batch in the order of experience, with these groups."""
    n = len(sex)
    y, z = cvxpy.Variable(n), cvxpy.Parameter(n)
    means = [(sex == label).double().numpy() / int((sex == label).sum()) for label in (0, 1)]
    stated = [cvxpy.abs((means[0] - means[1]) @ y) <= TOLERANCE, y >= 0, y <= 1, cvxpy.diff(y) >= 0]
    return CvxpyLayer(cvxpy.Problem(cvxpy.Minimize(cvxpy.norm1(y - z)), stated), [z], [y])


def gap(y: torch.Tensor, sex: torch.Tensor) -> float:
    """The difference of the groups' means."""
    return abs((y[sex == 0].mean() - y[sex == 1].mean()).item())


def main() -> None:
    torch.manual_seed(0)
    experience = torch.linspace(0, 1, 60, dtype=torch.float64)
    sex = (torch.rand(60) < 0.2 + 0.6 * experience).long()
    z = (0.2 + 0.4 * experience + 0.3 * sex + 0.05 * torch.randn(60, dtype=torch.float64)).requires_grad_()

    (nearly,) = conic_layer(sex)(z, solver_args=SOLVER)
    fair = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    y = fair(nearly, groups={"sex": sex})
    y.square().sum().backward()  # through both layers

    print(f"means differ by {gap(z, sex):.3f} before, {gap(y, sex):.3f} after; {fair.solution.status.name}")
    moved, fall = float((y - nearly).detach().abs().max()), -float(y.detach().diff().min())
    print(f"the second layer moved outputs by {moved:.0e} at most; they fall by {max(fall, 0.0):.0e} at most")
    assert fair.solution.satisfied
    assert max(moved, fall) < 1e-6
    assert bool(z.grad.isfinite().all())


if __name__ == "__main__":
    main()
