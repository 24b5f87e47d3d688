"""Shifts for groups that are unknown when serving: chosen for the true groups, applied by probabilities of them.

    minimise over nu   mean (y_i - z_i)^2,    y_i = clip(z_i - sum_g q_ig nu_g, lo, hi)
    subject to         the gaps of y between the true groups, on the sample, within their tolerances.

q_ig: how likely sample i belongs to group g, as far as is known when serving. The means are of the true groups, so a
poor q costs change, not the promise. There are as many unknowns as groups, and however many samples there are, a step
needs only sums over them: sequential quadratic programming, from two starts, with a slack that says by how much the
gaps are out of reach where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from fairlayer.errors import InputError
from fairlayer.problem.row_plan import PresentRows

MOST_ROWS = 1000  # comparisons of two groups, which the quadratic programs list one by one
CRUMB = 1e-5  # of the spread of the outputs: how much closer than the tolerance is aimed at, and missed at most
PRICES = (10.0, 1e3, 1e5)  # of the slack, until nobody wants to pay
FARTHEST = 30.0  # spreads that a shift may have; beyond, samples differ too little in their probabilities


class OutOfReachError(InputError):
    """No shifts by probabilities of the groups keep the tolerances, or none that are of use."""


@dataclass(eq=False)
class TrueGaps:
    """A sample whose groups are known, and what its outputs must satisfy. Changes are told in units of z's spread."""

    z: np.ndarray  # (n,) raw outputs
    moved: np.ndarray  # (n, K) probabilities, which the shifts are taken over
    member: np.ndarray  # (n, K) 1 where the sample belongs to the group
    offset: np.ndarray  # (K,) what is subtracted from the mean of each group, the targets' for residuals
    lo: float
    hi: float
    view: PresentRows
    allowed: np.ndarray  # (m,) the tolerance of each row

    def __post_init__(self) -> None:
        plus, minus, m = self.view.plus, self.view.minus, len(self.view.names)
        relative = np.zeros(m, dtype=bool) if self.view.relative is None else self.view.relative
        if m > MOST_ROWS:
            raise InputError(
                f"The constraints compare {m} pairs of groups; shifts by probabilities are chosen for at most "
                f"{MOST_ROWS}: merge rare groups, or compare fewer."
            )
        self.spread = float(self.z.std()) or 1.0
        total = self.member.sum(axis=0)
        self.share = (self.member / np.where(total > 0, total, 1.0)).T  # (K, n): means are share @ y
        # Gaps are allowed where matrix @ means <= room; row_of: which row each of these limits belongs to.
        here, first, second = np.arange(m), np.zeros((m, len(total))), np.zeros((m, len(total)))
        first[here, plus] = 1.0
        second[here[minus >= 0], minus[minus >= 0]] = 1.0
        keep = np.where(relative, 1.0 - self.allowed, 1.0)[:, None]  # a share of the larger is the least
        matrix = np.concatenate([keep * first - second, keep * second - first])
        present = ((matrix != 0) <= (total > 0)).all(axis=1)  # groups without samples are not compared
        self.matrix, self.row_of = matrix[present], np.concatenate([here, here])[present]
        exactly = np.where(relative, 0.0, self.allowed)[self.row_of]
        roomy = self.allowed[self.row_of] > np.where(relative[self.row_of], CRUMB, CRUMB * self.spread)
        self.room = exactly - CRUMB * self.spread * roomy
        self.by_sample = self.matrix @ self.share  # (limits, n)

    def outputs(self, nu: np.ndarray) -> np.ndarray:
        """(n,) what the shifts make of the sample."""
        return np.clip(self.z - self.moved @ nu, self.lo, self.hi)

    def means(self, y: np.ndarray) -> np.ndarray:
        """(K,) what is compared of the groups, at outputs y."""
        return self.share @ y - self.offset

    def excess(self, nu: np.ndarray) -> np.ndarray:
        """By how much each limit is exceeded, in spreads."""
        return (self.matrix @ self.means(self.outputs(nu)) - self.room) / self.spread

    def missed(self, nu: np.ndarray) -> float:
        """By how much the worst limit is exceeded, in spreads."""
        return float(self.excess(nu).max(initial=0.0))

    def change(self, nu: np.ndarray) -> float:
        """Mean squared change; 1 is that of one output for everybody, the mean."""
        return float(np.mean((self.outputs(nu) - self.z) ** 2)) / self.spread**2

    def descend(self, start: np.ndarray) -> np.ndarray:
        """The nearest outputs that the method finds from a start; its unknowns are nu / spread, and the slack."""
        size, spread, n = len(start), self.spread, len(self.z)

        def free(nu: np.ndarray) -> np.ndarray:
            shifted = self.z - self.moved @ nu
            return ((shifted > self.lo) & (shifted < self.hi)).astype(np.float64)

        def limits(x: np.ndarray) -> np.ndarray:
            return x[-1] - self.excess(x[:-1] * spread)

        def limits_slope(x: np.ndarray) -> np.ndarray:
            by_shift = (self.by_sample * free(x[:-1] * spread)) @ self.moved
            return np.hstack([by_shift, np.ones((len(self.room), 1))])

        def cost(x: np.ndarray, price: float) -> tuple[float, np.ndarray]:
            nu = x[:-1] * spread
            slope = 2.0 * ((self.z - self.outputs(nu)) * free(nu)) @ self.moved / (n * spread)
            # A little of nu itself: probabilities add up to 1 in every attribute, so a part of nu may move nobody.
            value = self.change(nu) + 1e-9 * float(x[:-1] @ x[:-1]) + price * x[-1]
            return value, np.append(slope + 2e-9 * x[:-1], price)

        x = np.append(np.clip(start / spread, -FARTHEST, FARTHEST), 0.0)
        for price in PRICES:
            x[-1] = self.missed(x[:-1] * spread)
            found = minimize(
                cost,
                x,
                args=(price,),
                jac=True,
                method="SLSQP",
                bounds=[(-FARTHEST, FARTHEST)] * size + [(0.0, None)],
                constraints={"type": "ineq", "fun": limits, "jac": limits_slope},
                options={"maxiter": 200, "ftol": 1e-10},
            )
            if np.isfinite(found.x).all():
                x = found.x
            if self.missed(x[:-1] * spread) <= CRUMB:
                break
        return x[:-1] * spread

    def unclipped(self) -> np.ndarray:
        """The least change if there were no bounds and nothing but equal gaps would do: a start, not an answer."""
        size = self.moved.shape[1]
        slopes = self.by_sample @ self.moved
        now = self.matrix @ self.means(self.z)
        over = now > self.room
        if not over.any():
            return np.zeros(size)
        curved = self.moved.T @ self.moved / len(self.z) + 1e-6 * np.eye(size)
        system = np.block([[curved, slopes[over].T], [slopes[over], np.zeros((int(over.sum()),) * 2)]])
        wanted = np.concatenate([np.zeros(size), (now - self.room)[over]])
        return np.asarray(np.linalg.lstsq(system, wanted, rcond=None)[0][:size])


def blind_shifts(sample: TrueGaps) -> np.ndarray:
    """(K,) the shifts; an error where none of them bring the gaps of the true groups within their tolerances."""
    tries = [sample.descend(start) for start in (np.zeros(sample.moved.shape[1]), sample.unclipped())]
    reached = [nu for nu in tries if sample.missed(nu) <= CRUMB]
    if not reached:
        nearest = min(tries, key=sample.missed)
        row = int(sample.row_of[int(sample.excess(nearest).argmax())])
        gap = abs(float(sample.view.values(sample.means(sample.outputs(nearest)))[row]))
        raise OutOfReachError(
            f"No shifts by probabilities of the groups bring {sample.view.names[row]} to its tolerance on the sample: "
            f"at best it is about {gap:.3g}, and {sample.allowed[row]:.3g} is asked for. What is known when serving "
            "says too little about the groups (where the two are independent, nothing can be moved). Raise the "
            "tolerance, serve with the groups themselves, or bring inputs that say more about the groups."
        )
    nu = min(reached, key=sample.change)
    if sample.change(nu) > 1.0:
        raise OutOfReachError(
            "The groups can hardly be told apart by what is known when serving: shifts by their probabilities that "
            "keep the tolerances would change the outputs more than the same output for everyone. Raise the "
            "tolerances, serve with the groups themselves, or bring inputs that say more about the groups."
        )
    return nu
