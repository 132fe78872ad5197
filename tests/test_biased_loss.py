from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import check_grad

from skfw.engine import (
    Adaptive,
    AveragePlane,
    BiasedSquaredLoss,
    NuclearBall,
    ObservedEntries,
    Problem,
    SquaredLoss,
    best_corrector,
    frank_wolfe,
)

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
    monkeypatch.setattr("skfw.engine.losses._biased._MAX_STEPS", 1)
    for point in points:
        found = loss.evaluate(point)
        assert found.value >= best_by_least_squares(loss, point)[0] - 1e-12
        planes = [found.offset + found.residual @ other for other in points]
        assert np.all(np.array(planes) <= np.array(values) + 1e-12)


@pytest.mark.parametrize("which", PENALTIES)
def test_rough_evaluations_are_near_and_have_no_plane(which):
    loss, rng = problem(which, n=400)
    predictions = rng.normal(size=400)
    exact = loss.evaluate(predictions)
    for given in (predictions, predictions.astype(np.float32)):
        found = loss.evaluate_roughly(given)
        assert exact.value * (1 - 1e-6) <= found.value <= exact.value * (1 + 1e-4)
        assert found.residual.dtype == found.intercept.dtype == np.float32
        np.testing.assert_allclose(found.residual, exact.residual, atol=0.03 * np.abs(exact.residual).max())
        assert found.offset == -np.inf


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


# Two entries that have nothing in common, for which the best biases have a formula.
DIAGONAL = ObservedEntries(np.arange(2), np.arange(2), (2, 2))


def exact_diagonal_value(loss, predictions):
    """The loss of two entries without a common row or column, in fractions."""
    value = Fraction(0)
    for target, weight, prediction in zip(loss.targets, loss.weights, predictions, strict=True):
        error, weight = Fraction(float(prediction)) - Fraction(float(target)), Fraction(float(weight))
        # At least the given penalty: where a least penalty takes its place, the loss is larger.
        penalty = max(Fraction(loss.row_penalty), Fraction(1e-12) * weight)
        # Both biases are the same number t, which minimises weight (error + 2 t)^2 / 2 + penalty t^2.
        value += weight * penalty * error**2 / (2 * weight + penalty) / 2
    return value


@pytest.mark.parametrize("share", [1e-170, 1e-30, 0.5])
@pytest.mark.parametrize("penalty", [3.0, 1e-6])
def test_plane_is_below_the_loss_even_where_squares_underflow(share, penalty):
    weights = np.array([1.0 - share, share])
    loss = BiasedSquaredLoss(np.array([0.0, 1.0]), weights, DIAGONAL, penalty * share, penalty * share)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 2)) * 10.0 ** rng.uniform(-3, 3, size=(60, 1))
    points[::2, 0] = 0.0  # where the heavy entry is fitted, only the light one is left
    values = [exact_diagonal_value(loss, point) for point in points]
    for point in points:
        found = loss.evaluate(point)
        allowance = Fraction(64 * np.finfo(np.float64).eps * AveragePlane.tangent(found).offset_size)
        for other, value in zip(points, values, strict=True):
            parts = [Fraction(float(found.residual[i])) * Fraction(float(other[i])) for i in range(2)]
            assert Fraction(found.offset) + sum(parts) <= value + allowance


def test_a_run_where_squares_underflow():
    share = 1e-170
    loss = BiasedSquaredLoss(np.array([0.0, 1.0]), np.array([1.0, share]), DIAGONAL, 3.0 * share, 3.0 * share)
    problem = Problem(loss, DIAGONAL, NuclearBall(0.1))
    result = frank_wolfe(problem, corrector=best_corrector(problem), max_iter=30)
    # A model of the set: the best that there is for the second entry.
    assert result.lower_bound <= exact_diagonal_value(loss, np.array([0.0, 0.1]))


@pytest.mark.parametrize("penalty", [5e7, 1e-9])
def test_equations_for_biases_whose_squares_are_nothing(penalty):
    """Conjugate gradients divide by squares, which are zero while the numbers are not."""
    loss = BiasedSquaredLoss(np.array([-1.5, 1.5]), np.full(2, 0.5), DIAGONAL, penalty, penalty)
    share = penalty / (1.0 + penalty)  # of a change that the two biases leave to the error
    for exponent in np.arange(0.0, 320.0, 0.25):
        tiny = 10.0**-exponent * np.array([1.0, 0.7])
        assert np.isfinite(loss.evaluate(loss.targets + tiny).value)
        np.testing.assert_allclose(
            loss.hessian(None).apply(tiny), 0.5 * share * tiny, rtol=1e-4, atol=max(1e-150, 1e-8 * tiny[0])
        )


def test_a_run_to_a_fit_without_error():
    loss = BiasedSquaredLoss(np.array([-1.5, 1.5]), np.full(2, 0.5), DIAGONAL, 5e7, 5e7)
    problem = Problem(loss, DIAGONAL, NuclearBall(15.0))
    result = frank_wolfe(problem, momentum=Adaptive(), corrector=best_corrector(problem), max_iter=30)
    assert result.objective <= 1e-15


@pytest.mark.parametrize("penalty", [1e-14, 1e-101, 1e-300])
def test_a_penalty_that_is_nothing_beside_the_weights(penalty):
    """It is replaced by the least one that biases can be found with: the certificate does not suffer."""
    loss, _ = problem()
    loss = BiasedSquaredLoss(loss.targets, loss.weights, loss.entries, penalty, penalty)
    completion = Problem(loss, loss.entries, NuclearBall(0.5))
    result = frank_wolfe(completion, corrector=best_corrector(completion), max_iter=60)
    assert result.objective - 1e-6 * completion.null.value <= result.lower_bound <= result.objective
    almost = BiasedSquaredLoss(loss.targets, loss.weights, loss.entries, 1e-10, 1e-10)
    assert loss.evaluate(np.zeros(40)).value == pytest.approx(almost.evaluate(np.zeros(40)).value, rel=1e-6)


@pytest.mark.parametrize("which", PENALTIES)
def test_sizes_are_at_least_those_of_the_parts(which):
    loss, rng = problem(which)
    for scale in (1e-3, 1.0, 1e3):
        predictions = rng.normal(scale=scale, size=40)
        found = loss.evaluate(predictions)
        squares = 0.5 * found.residual**2 / loss.weights
        sums = loss.entries.marginals(found.residual)
        penalties = np.repeat([loss.row_penalty, loss.column_penalty], SHAPE)
        # Minus the conjugate, which does not know of the biases found.
        conjugate = squares.sum() + found.residual @ loss.targets + (0.5 * sums**2 / penalties).sum()
        assert found.offset == pytest.approx(-conjugate, rel=1e-9, abs=1e-12)
        biased = found.intercept != 0.0
        shrinkage = penalties[biased] * found.intercept[biased] ** 2 / 2
        parts = [*squares, *(found.residual * predictions), *shrinkage]
        assert found.offset_size >= np.abs(parts).sum() * (1 - 1e-12)
        assert found.size >= np.abs(found.residual).sum()


@pytest.mark.parametrize("penalty", [3e-5, 1e-9, 1e-30])
@pytest.mark.parametrize("biases", ["rows", "columns"])
def test_plane_of_long_rows(penalty, biases):
    """A row's residuals are added up in sequence: the plane is below the loss all the same.

    Of predictions that are zero, with one row, everything is known: in terms of the mean target the loss is
    that of the biases alone.
    """
    n = 100_000
    one, many = np.zeros(n, dtype=np.intp), np.arange(n)
    for first in (3.7, 9.1):
        targets = np.where(many < 0.6 * n, first, 0.1)
        weights = np.full(n, 1.0 / n)
        if biases == "rows":
            entries, penalties = ObservedEntries(one, many, (1, n)), (penalty, np.inf)
        else:
            entries, penalties = ObservedEntries(many, one, (n, 1)), (np.inf, penalty)
        loss = BiasedSquaredLoss(targets, weights, entries, *penalties)
        found = loss.evaluate(np.zeros(n))
        total = weights.astype(np.longdouble).sum()
        mean = (weights.astype(np.longdouble) * targets).sum()
        ridge = max(np.longdouble(penalty), np.finfo(np.float64).eps * total)
        square = (weights * targets.astype(np.longdouble) ** 2).sum()
        exact = 0.5 * (square - mean**2 / (total + ridge))
        allowance = 64 * np.finfo(np.float64).eps * found.offset_size
        assert found.offset <= exact + allowance
        assert found.offset >= exact * (1 - 1e-4)  # and it is of use
        assert found.value >= exact * (1 - 1e-13)


def test_blocks_of_entries(monkeypatch):
    """What is computed block by block is the same as all at once."""
    loss, rng = problem()
    predictions, change = rng.normal(size=(2, 40))
    whole = loss.evaluate(predictions), loss.evaluate_roughly(predictions)
    moved = loss.hessian(whole[0]).apply(change)
    monkeypatch.setattr("skfw.engine.losses._biased._BLOCK", 7)
    for found, expected, atol in zip(
        (loss.evaluate(predictions), loss.evaluate_roughly(predictions)), whole, (1e-14, 1e-7), strict=True
    ):
        assert found.residual.dtype == expected.residual.dtype
        assert found.value == pytest.approx(expected.value, rel=atol)
        np.testing.assert_allclose(found.residual, expected.residual, atol=atol)
    np.testing.assert_allclose(loss.hessian(whole[0]).apply(change), moved, atol=1e-14)


def test_biases_whose_squares_overflow():
    """Light entries leave the bias of a row to follow predictions that are immense."""
    weights = np.array([1.0, 1e-200])
    loss = BiasedSquaredLoss(np.array([1.0, 1.0]), weights, DIAGONAL, 1e-210, 1e-210)
    found = loss.evaluate(np.array([1.0, 1e160]))
    assert np.isfinite([found.value, found.offset, found.size, found.offset_size]).all()


def test_errors_of_marginals_are_allowed_for():
    """One long row, many short ones: what rounding in their sums may cost is taken off the plane."""
    n = 100_000
    entries = ObservedEntries(np.append(np.zeros(n, dtype=np.intp), [1, 2]), np.arange(n + 2), (3, n + 2))
    weights = np.full(n + 2, 1 / (n + 2))
    loss = BiasedSquaredLoss(np.linspace(-1.0, 1.0, n + 2), weights, entries, 1e-30, np.inf)
    residual = 0.1 * weights
    sums, exact = entries.marginals(residual)[:3], np.zeros(3, dtype=np.longdouble)
    np.add.at(exact, entries.row_indices, residual.astype(np.longdouble))
    penalties = np.finfo(np.float64).eps * entries.marginals(weights)[:3]  # their floor
    half_square = 0.5 * np.sum(residual**2 / weights)
    error = 0.5 * float(np.sum((sums - exact) ** 2 / penalties))
    assert 0.0 < error <= loss._marginals_error * half_square
    # And it is taken off where the biases are the best, so that nothing else is.
    found = loss.evaluate(np.zeros(n + 2))
    half_square = 0.5 * np.sum(found.residual**2 / weights)
    assert found.value - found.offset >= 0.99 * loss._marginals_error * half_square
