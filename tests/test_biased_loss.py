import numpy as np
import pytest
from scipy.optimize import check_grad

from skfw.engine import BiasedSquaredLoss, ObservedEntries, SquaredLoss

SHAPE = (5, 4)
PENALTIES = {"both": (0.1, 0.3), "rows": (0.1, np.inf), "columns": (np.inf, 0.2)}


def problem(which="both", n=40, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, SHAPE[0], n), rng.integers(0, SHAPE[1] - 1, n)  # a column without entries
    weights = rng.uniform(0.2, 1.0, n)
    entries = ObservedEntries(rows, columns, SHAPE)
    loss = BiasedSquaredLoss(rng.normal(size=n), weights / weights.sum(), entries, *PENALTIES[which])
    return loss, rng


def best_by_least_squares(loss, predictions):
    """Return the loss and the biases from the normal equations, densely."""
    one_hot = np.hstack(
        [np.eye(SHAPE[0])[loss.entries.row_indices], np.eye(SHAPE[1])[loss.entries.column_indices]]
    )
    penalties = np.repeat([loss.row_penalty, loss.column_penalty], SHAPE)
    used = np.isfinite(penalties)
    design, penalties = one_hot[:, used], penalties[used]
    values = loss.targets - predictions
    matrix = design.T @ (loss.weights[:, np.newaxis] * design) + np.diag(penalties)
    biases = np.linalg.solve(matrix, design.T @ (loss.weights * values))
    error = values - design @ biases
    everywhere = np.zeros(len(used))
    everywhere[used] = biases
    return 0.5 * (loss.weights @ error**2 + penalties @ biases**2), everywhere


@pytest.mark.parametrize("which", PENALTIES)
def test_biases_are_the_best_ones(which):
    loss, rng = problem(which)
    predictions = rng.normal(size=40)
    value, biases = best_by_least_squares(loss, predictions)
    for guess in (0.0, rng.normal(size=9)):
        if isinstance(guess, np.ndarray):
            guess[np.isinf(np.repeat([loss.row_penalty, loss.column_penalty], SHAPE))] = 0.0
        found = loss.evaluate(predictions, guess)
        assert found.value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(found.intercept, biases, atol=1e-6)


@pytest.mark.parametrize("which", PENALTIES)
def test_residual_is_the_derivative(which):
    loss, rng = problem(which)
    at = rng.normal(size=40)
    assert check_grad(lambda z: loss.evaluate(z).value, lambda z: loss.evaluate(z).residual, at) < 1e-6
    assert loss.evaluate(at).size >= np.abs(loss.evaluate(at).residual).sum()


@pytest.mark.parametrize("which", PENALTIES)
def test_plane_is_below_the_loss_even_for_inexact_biases(which, monkeypatch):
    loss, rng = problem(which)
    points = [rng.normal(scale=scale, size=40) for scale in (0.01, 1.0, 10.0) for _ in range(10)]
    values = [best_by_least_squares(loss, point)[0] for point in points]
    exact = loss.evaluate(points[3])
    assert exact.offset + exact.residual @ points[3] == pytest.approx(exact.value, rel=1e-9)
    monkeypatch.setattr("skfw.engine._biased_loss._MAX_STEPS", 1)
    for point in points:
        found = loss.evaluate(point)
        assert found.value >= best_by_least_squares(loss, point)[0] - 1e-12
        planes = [found.offset + found.residual @ other for other in points]
        assert np.all(np.array(planes) <= np.array(values) + 1e-12)


@pytest.mark.parametrize("which", PENALTIES)
def test_curvature(which):
    loss, rng = problem(which)
    at, change = rng.normal(size=40), rng.normal(size=40)
    evaluation = loss.evaluate(at)
    ahead, behind = loss.evaluate(at + change), loss.evaluate(at - change)
    second = ahead.value + behind.value - 2.0 * evaluation.value  # exact: the loss is quadratic
    assert loss.curvature_along(evaluation, change) == pytest.approx(second, rel=1e-6)
    assert loss.curvature_bound(change) >= second
    np.testing.assert_allclose(
        loss.hessian(evaluation).apply(change), ahead.residual - evaluation.residual, atol=1e-6
    )
    assert loss.subset(np.arange(3)) is None


def test_no_biases_are_a_plain_squared_loss():
    loss, rng = problem()
    at = rng.normal(size=40)
    without = BiasedSquaredLoss(loss.targets, loss.weights, loss.entries, np.inf, np.inf).evaluate(at)
    plain = SquaredLoss(loss.targets, loss.weights).evaluate(at)
    assert (without.value, without.offset) == pytest.approx((plain.value, plain.offset))
    np.testing.assert_allclose(without.residual, plain.residual)


def test_weight_is_repetition():
    loss, rng = problem()
    counts = rng.integers(1, 4, 40)
    at = rng.normal(size=40)
    weighted = BiasedSquaredLoss(loss.targets, counts / counts.sum(), loss.entries, 0.1, 0.1).evaluate(at)
    many = np.repeat(np.arange(40), counts)
    repeated = BiasedSquaredLoss(
        loss.targets[many],
        np.full(len(many), 1 / len(many)),
        ObservedEntries(loss.entries.row_indices[many], loss.entries.column_indices[many], SHAPE),
        0.1,
        0.1,
    ).evaluate(at[many])
    assert weighted.value == pytest.approx(repeated.value)
    np.testing.assert_allclose(weighted.intercept, repeated.intercept, atol=1e-7)
