"""Algorithm 1 of the paper, against its pseudo-code written out with a general solver."""

from itertools import combinations

import clarabel
import numpy as np
import pytest
from arrivals import arrivals
from scipy import sparse

from fairlayer import MeanParity, Stream


def difference_rows(groups):
    """One row per two groups of an attribute that are both here: their means' difference, as coefficients."""
    rows = []
    for column in groups.values():
        for a, b in combinations(np.unique(column), 2):
            rows.append((column == a) / (column == a).sum() - (column == b) / (column == b).sum())
    return np.array(rows).reshape(len(rows), len(next(iter(groups.values()))))


def solve(P, q, A, limit):
    """min 1/2 x'Px + q'x subject to Ax <= limit."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cones = [clarabel.NonnegativeConeT(len(limit))]
    return np.array(
        clarabel.DefaultSolver(sparse.csc_matrix(P), q, sparse.csc_matrix(A), limit, cones, settings).solve().x
    )


def transcription(batches, tolerance, eta, b_tau, bounds=None):
    """The pseudo-code, line by line. Yields what it emits and lambda afterwards."""
    dual, t = 0.0, 0
    for z, groups in batches:
        b, rows = len(z), difference_rows(groups)
        box = np.zeros((0, b)), np.zeros(0)
        if bounds is not None:
            box = np.vstack([np.eye(b), -np.eye(b)]), np.repeat([bounds[1], -bounds[0]], b)
        if b < b_tau:
            step = eta / np.sqrt(t + 1)
            # argmin ||y - z||^2 + lambda b v, with v >= |row| for every row
            P = np.diag([2.0] * b + [0.0])
            q = np.append(-2.0 * z, dual * b)
            column = -np.ones((len(rows), 1))
            A = np.vstack([np.hstack([rows, column]), np.hstack([-rows, column]), np.append(np.zeros(b), -1.0)])
            A = np.vstack([A, np.hstack([box[0], np.zeros((len(box[0]), 1))])])
            y = solve(P, q, A, np.concatenate([np.zeros(2 * len(rows) + 1), box[1]]))[:b]
            if len(rows):
                violation = b * (np.abs(rows @ y).max() - tolerance)
                dual = max(0.0, dual + step * violation)
                t += 1
        else:
            A, limit = np.vstack([rows, -rows, box[0]]), np.append(np.full(2 * len(rows), tolerance), box[1])
            y = solve(2.0 * np.eye(b), -2.0 * z, A, limit)
        yield y, dual


@pytest.mark.parametrize(("names", "bounds"), [(("sex",), (0.2, 0.9)), (("sex", "age"), None)])
def test_it_is_the_pseudo_code(names, bounds):
    batches = list(arrivals(120, (1, 13), seed=3, names=names))
    stream = Stream([MeanParity(0.05)], bounds=bounds, policy="primal-dual", eta=0.3, b_tau=10)
    duals = []
    for (z, groups), (y, dual) in zip(batches, transcription(batches, 0.05, 0.3, 10, bounds), strict=True):
        solution = stream.update(z, groups)
        # The pseudo-code's price is followed to 1e-6 of its solver; so is what it emits.
        np.testing.assert_allclose(solution.value, y, atol=2e-5)
        duals.append(dual)
        certificate = stream.certificate()
        assert certificate.multiplier == pytest.approx(dual, abs=2e-4)
        assert certificate.largest_multiplier == pytest.approx(max(duals), abs=2e-4)
    assert max(duals) > 0.2  # otherwise nothing was tested
    assert {len(z) >= 10 for z, _ in batches} == {True, False}


def test_large_batches_are_projected_and_make_no_dual_step():
    stream = Stream([MeanParity(0.05)], policy="primal-dual", b_tau=4)
    for z, groups in arrivals(20, 40):
        value = stream.update(z, groups).value
        assert np.abs(difference_rows(groups) @ value).max() <= 0.05 + 1e-12
    assert stream.certificate().multiplier == 0.0
    assert stream.certificate().accumulated_excess_bound == 0.0


@pytest.mark.parametrize("b_tau", [7, 8])
def test_the_threshold_is_inclusive(b_tau):
    """A batch of 7 is projected when b_tau is 7, and pays a price (0 at first: it is left alone) when b_tau is 8."""
    z, groups = next(iter(arrivals(1, 7, seed=4)))
    value = Stream([MeanParity(0.01)], policy="primal-dual", b_tau=b_tau).update(z, groups).value
    assert (value == z).all() == (b_tau == 8)


def test_a_batch_without_a_gap_is_predicted_and_makes_no_dual_step():
    stream = Stream([MeanParity(0.01)], bounds=(0.0, 1.0), policy="primal-dual", b_tau=64)
    for z, groups in arrivals(10, 8):
        stream.update(z, groups)
    before = stream.certificate()
    assert before.multiplier > 0.0
    solution = stream.update(np.array([0.3, 1.7]), {"sex": np.array([1, 1]), "age": np.array([2, 2])})
    after = stream.certificate()
    np.testing.assert_array_equal(solution.value, [0.3, 1.0])
    assert after.samples == before.samples + 2
    for name in ("multiplier", "accumulated_excess", "accumulated_excess_bound", "weighted_average_gap"):
        assert getattr(after, name) == getattr(before, name)


def test_reports_and_the_bound_on_accumulated_excess():
    tolerance, eta = 0.02, 0.5
    stream = Stream([MeanParity(tolerance)], policy="primal-dual", eta=eta, b_tau=64)
    excess = weighted = judged = 0.0
    for number, (z, groups) in enumerate(arrivals(400, (2, 12), seed=6)):
        rows = difference_rows(groups)
        value = stream.update(z, groups).value
        if len(rows):
            gap = np.abs(rows @ value).max()
            excess += len(z) * (gap - tolerance)
            weighted += len(z) * gap
            judged += len(z)
        if number % 20 == 19:
            certificate = stream.certificate()
            assert certificate.accumulated_excess == pytest.approx(excess, rel=1e-9)
            assert certificate.weighted_average_gap == pytest.approx(weighted / judged, rel=1e-9)
            assert excess <= certificate.accumulated_excess_bound + 1e-9
    assert excess > 0.0
    assert "Algorithm 1" in str(stream.certificate())
