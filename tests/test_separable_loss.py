"""What the base class does once for all separable losses: the built-in ones, and two of one's own."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse
from scipy.special import xlogy

from skfw.engine import (
    AveragePlane,
    DiagonalHessian,
    HuberLoss,
    L2Ball,
    LogisticLoss,
    PoissonLoss,
    Problem,
    SeparableLoss,
    SquaredLoss,
    best_corrector,
    design_matrix,
    frank_wolfe,
)

EPSILON = np.finfo(np.float64).eps
# What a lower bound gives way by, relative to the sizes of what it is a sum of.
ALLOWANCE = 64 * EPSILON


@dataclass(frozen=True)
class UnshiftedPoisson(SeparableLoss):
    """The Poisson loss without the constant that makes it a deviance: it has both signs."""

    curvature: ClassVar[float] = np.inf

    def sample_value(self, predictions):
        return np.exp(predictions) - self.targets * predictions

    def sample_slope(self, predictions):
        return np.exp(predictions) - self.targets

    def sample_curvature(self, slope):
        return np.maximum(slope + self.targets, 0.0)

    def sample_conjugate(self, slope):
        mean = np.maximum(slope + self.targets, 0.0)
        return xlogy(mean, mean) - mean


N = 30
KINDS = {
    "huber": HuberLoss,
    "poisson": PoissonLoss,
    "unshifted": UnshiftedPoisson,
    "squared": SquaredLoss,
    "logistic": LogisticLoss,
}
COUNTS = ("poisson", "unshifted")
# Targets of large mean make sense for some of them.
CASES = [(kind, mean) for kind in ("huber", "poisson", "unshifted", "squared") for mean in (0.0, 1e8)]
CASES += [("logistic", 0.0)]
with_all_cases = pytest.mark.parametrize("kind, mean", CASES)
with_and_without_intercept = pytest.mark.parametrize("intercept", [False, True])


def make_loss(kind, mean, intercept):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.2, 2.0, N)
    if kind in COUNTS:
        targets = (1.0 + mean) * rng.poisson(3.0, N)
    elif kind == "logistic":
        targets = np.where(rng.uniform(size=N) < 0.3, 1.0, -1.0)
    else:
        targets = mean + rng.normal(scale=2.0, size=N)
    return KINDS[kind](targets.astype(np.float64), weights / weights.sum(), intercept)


def predictions_for(kind, mean, intercept, seed=0, scale=1.0):
    """Predictions about as large as the targets, where no intercept takes care of that."""
    centre = 0.0 if intercept else np.log1p(mean) if kind in COUNTS else mean
    return centre + scale * np.random.default_rng(seed).normal(size=N)


def without_intercept(loss):
    return type(loss)(loss.targets, loss.weights)


@with_all_cases
@with_and_without_intercept
def test_value_is_the_weighted_mean_at_the_intercept(kind, mean, intercept):
    loss, z = make_loss(kind, mean, intercept), predictions_for(kind, mean, intercept)
    point = loss.evaluate(z)
    values = without_intercept(loss).sample_value(z + point.intercept)
    assert point.value == pytest.approx(loss.weights @ values, rel=1e-7 if mean else 1e-13)
    assert intercept or point.intercept == 0.0


# Small changes of predictions that are themselves large would be rounded.
@pytest.mark.parametrize(
    "kind, mean, intercept",
    [(kind, mean, True) for kind, mean in CASES] + [(kind, 0.0, False) for kind in KINDS],
)
def test_residual_and_curvature_match_finite_differences(kind, mean, intercept):
    loss, z = make_loss(kind, mean, intercept), predictions_for(kind, mean, intercept)
    change, h = np.random.default_rng(1).normal(size=N), 1e-5
    here, ahead, behind = (loss.evaluate(z + step * change) for step in (0.0, h, -h))
    difference = (ahead.value - behind.value) / (2 * h)
    assert here.residual @ change == pytest.approx(difference, abs=1e-7 * here.size)
    slopes = (ahead.residual - behind.residual) / (2 * h)
    curvature = loss.curvature_along(here, change)
    assert curvature == pytest.approx(slopes @ change, rel=1e-5)
    assert loss.curvature_bound(change) >= curvature * (1 - 1e-12)
    np.testing.assert_allclose(
        loss.hessian(here).apply(change), slopes, atol=1e-6 * np.abs(slopes).max(), rtol=1e-5
    )


def plane_allowance(point, product):
    return ALLOWANCE * (AveragePlane.tangent(point).offset_size + abs(product))


@with_all_cases
@with_and_without_intercept
def test_plane_is_below_the_loss_everywhere(kind, mean, intercept):
    """Near and far, and for every intercept: the loss with the best one is the lowest of them."""
    loss, raw = make_loss(kind, mean, intercept), without_intercept(make_loss(kind, mean, intercept))
    rng = np.random.default_rng(2)
    touches = 0
    for scale in (1e-3, 1.0, 3.0) if kind in COUNTS else (1e-3, 1.0, 1e3, 1e7):
        point = loss.evaluate(predictions_for(kind, mean, intercept, scale=scale))
        for far in (1e-3, 1.0, 3.0) if kind in COUNTS else (1e-3, 1.0, 1e3, 1e7):
            for seed in range(5):
                other = predictions_for(kind, mean, intercept, seed, far)
                product = point.residual @ other
                allowance = plane_allowance(point, point.size * np.abs(other).max())
                value = loss.evaluate(other)
                assert point.offset + product <= value.value + allowance
                touches += point.offset + product >= value.value - 1e-6 * abs(value.value)
                if intercept and kind not in COUNTS:
                    anywhere = other + value.intercept + far * rng.normal()
                    assert point.offset + product <= raw.evaluate(anywhere).value + allowance
    assert touches > 0


@with_all_cases
def test_intercept_is_the_best(kind, mean):
    loss = make_loss(kind, mean, True)
    for scale in (0.1, 1.0, 2.0):
        z = predictions_for(kind, mean, True, seed=3, scale=scale)
        point = loss.evaluate(z)
        assert abs(point.residual.sum()) <= 4 * EPSILON * point.size
        # Counted from the origin, as the four functions are: else digits would be lost.
        best = point.intercept - loss.intercept_origin
        values = [loss.weights @ loss.sample_value(z + best + delta) for delta in (-1e-2, 0.0, 1e-2)]
        assert values[1] == pytest.approx(point.value, rel=1e-12)
        assert values[1] <= min(values)
        # Where the search starts makes no difference to where it ends.
        for guess in (point.intercept, point.intercept + 5.0, -1e3):
            again = loss.evaluate(z, guess)
            assert again.value == pytest.approx(point.value, rel=1e-13)
            assert again.intercept == pytest.approx(point.intercept, rel=1e-9, abs=1e-9)


@with_all_cases
@pytest.mark.parametrize("error", [-2.0, 0.5, 3.0])
def test_balance_keeps_the_plane_below_for_every_intercept(kind, mean, error, monkeypatch):
    """Even with an intercept that is not the best one the residual sums to zero, to within rounding."""
    loss = make_loss(kind, mean, True)
    points = [predictions_for(kind, mean, True, seed) for seed in range(6)]
    best = [loss.evaluate(z) for z in points]
    monkeypatch.setattr(type(loss), "_best_intercept", lambda self, z, guess: guess)
    for z, exact in zip(points, best, strict=True):
        off = loss.evaluate(z, exact.intercept + error)
        assert off.value > exact.value
        assert abs(off.residual.sum()) <= 4 * EPSILON * off.size
        assert np.abs(off.residual).sum() <= off.size * (1 + 4 * EPSILON)
        for other, value in zip(points, best, strict=True):
            product = off.residual @ other
            allowance = plane_allowance(off, off.size * np.abs(other).max())
            assert off.offset + product <= value.value + allowance


@with_all_cases
@with_and_without_intercept
def test_sizes_are_at_least_those_of_the_parts(kind, mean, intercept):
    loss = make_loss(kind, mean, intercept)
    for scale in (1e-3, 1.0, 3.0):
        z = predictions_for(kind, mean, intercept, scale=scale)
        point = loss.evaluate(z)
        assert np.abs(point.residual).sum() <= point.size * (1 + EPSILON)
        at = z + (point.intercept - loss.intercept_origin)
        conjugates = loss.sample_conjugate(loss.sample_slope(at))
        assert point.offset == pytest.approx(-loss.weights @ conjugates, rel=1e-6, abs=1e-9 * point.size)
        parts = loss.weights @ np.abs(conjugates)
        assert AveragePlane.tangent(point).offset_size >= parts * (1 - 1e-9)


def test_values_of_both_signs_count_with_their_sizes():
    """Their mean may be nothing, and still be made of numbers whose rounding is something."""
    # At the best predictions a Poisson loss is t - t log t: of one sign below e, of the other above.
    targets = np.array([1.0, 4.4])
    values = targets - targets * np.log(targets)
    loss = UnshiftedPoisson(targets, np.array([-values[1], values[0]]) / (values[0] - values[1]))
    point = loss.evaluate(np.log(targets))
    assert abs(point.value) < 1e-12
    assert AveragePlane.tangent(point).offset_size >= loss.weights @ np.abs(values) * (1 - 1e-9)


@pytest.mark.parametrize("kind", ["huber", "squared"])
@pytest.mark.parametrize("mean", [1e4, 1e8, 1e12])
def test_large_means_cost_no_digits(kind, mean):
    """Targets with few binary digits, so that adding the mean is exact: the loss must not see it."""
    targets = np.round(1024 * np.random.default_rng(0).normal(size=N)) / 1024
    weights = np.full(N, 1 / N)
    small, large = (KINDS[kind](targets + shift, weights, True) for shift in (0.0, mean))
    z = np.random.default_rng(1).normal(size=N)
    expected, found = small.evaluate(z), large.evaluate(z)
    assert (found.value, found.offset) == pytest.approx((expected.value, expected.offset), rel=1e-12)
    np.testing.assert_allclose(found.residual, expected.residual, atol=1e-15)
    assert found.intercept - mean == pytest.approx(expected.intercept, abs=2 * EPSILON * mean + 1e-12)


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("seed", range(5))
def test_certificate_of_the_squared_loss_with_large_means(mean, seed):
    """The bound is below the loss of a point of the set that is almost optimal, computed exactly."""
    rng = np.random.default_rng(seed)
    X, weights = rng.normal(size=(40, 5)), rng.uniform(0.5, 2.0, 40)
    weights /= weights.sum()
    targets = np.round(1024 * (X @ rng.normal(size=5) + rng.normal(size=40))) / 1024  # adding means is exact
    design, ball = design_matrix(X), L2Ball(0.5)
    centred = Problem(SquaredLoss(targets, weights, True), design, ball)
    good = frank_wolfe(centred, corrector=best_corrector(centred), tolerance=1e-13, max_iter=100).x
    error = X.astype(np.longdouble) @ (good * min(1.0, 0.5 / np.linalg.norm(good)) * (1 - EPSILON)) - targets
    error -= weights.astype(np.longdouble) @ error / weights.astype(np.longdouble).sum()
    optimum = float(weights @ error**2 / 2)

    problem = Problem(SquaredLoss(targets + mean, weights, True), design, ball)
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-9 * optimum, max_iter=100)
    assert result.lower_bound <= optimum
    assert result.objective >= optimum * (1 - 1e-12)
    # Nor is it bought with a bound that says nothing.
    assert result.status == "converged"
    plain = frank_wolfe(problem, max_iter=20)
    assert plain.lower_bound <= optimum <= plain.objective * (1 + 1e-12)


def test_predictions_that_are_huge():
    """Slopes are steps there, and the intercept is at one of them: found without halving all the way."""
    loss = make_loss("logistic", 0.0, True)
    for scale in (1e10, 1e100, 1e300):
        point = loss.evaluate(scale * np.random.default_rng(0).normal(size=N))
        assert np.isfinite([point.value, point.offset, point.intercept]).all()
        assert abs(point.residual.sum()) <= 4 * EPSILON * point.size


@pytest.mark.parametrize("kind", [PoissonLoss, UnshiftedPoisson])
def test_targets_that_leave_no_best_intercept(kind):
    """Without any count the Poisson loss falls forever, and no plane balances the one that is found."""
    with pytest.raises(ValueError, match="There is no best intercept"):
        kind(np.zeros(3), np.full(3, 1 / 3), True).evaluate(np.array([0.0, 1.0, 2.0]))


@pytest.mark.parametrize("seed", range(10))
def test_many_intercepts_that_are_best(seed):
    """Between two groups of targets the Huber loss is flat: planes nearby balance nothing."""
    rng = np.random.default_rng(seed)
    half = rng.uniform(0.2, 1.0, 15)
    weights = np.append(half, rng.permutation(half)) / (2.0 * half.sum())
    loss = HuberLoss(np.repeat([0.0, 100.0], 15), weights, True)
    z = rng.normal(size=30)
    point = loss.evaluate(z)
    assert point.offset + point.residual @ z == pytest.approx(point.value, rel=1e-12)
    assert abs(point.residual.sum()) <= 4 * EPSILON * point.size
    for _ in range(20):
        other = 10.0 * rng.normal(size=30)
        assert point.offset + point.residual @ other <= loss.evaluate(other).value * (1 + ALLOWANCE)


def test_balance_by_a_plane_that_is_almost_balanced_itself():
    """Large counts that are all alike: the planes aside are near, and almost all weight goes to one."""
    targets = 1e8 + np.random.default_rng(0).poisson(3.0, N)
    loss = PoissonLoss(targets, np.full(N, 1 / N), True)
    far = without_intercept(loss).evaluate(np.full(N, 15.0) + np.random.default_rng(1).normal(size=N))
    balanced = loss._balanced(far)
    assert abs(balanced.residual.sum()) <= 4 * EPSILON * balanced.size
    assert balanced.offset_size >= abs(balanced.offset)


def test_subset():
    loss = make_loss("huber", 0.0, True)
    rows = np.arange(0, N, 3)
    part = loss.subset(rows)
    assert isinstance(part, HuberLoss)
    assert part.fit_intercept
    assert part.weights.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(part.targets, loss.targets[rows])
    np.testing.assert_allclose(part.weights * loss.weights[rows].sum(), loss.weights[rows])


@pytest.mark.parametrize("kind", ["huber", "poisson"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_loss_of_ones_own_in_a_run(kind, intercept):
    rng = np.random.default_rng(0)
    X = 0.3 * rng.normal(size=(N, 4))
    loss = make_loss(kind, 0.0, intercept)
    problem = Problem(loss, design_matrix(X), L2Ball(1.0))
    result = frank_wolfe(problem, tolerance=1e-4, max_iter=2000)
    assert result.status == "converged"
    for _ in range(200):
        x = rng.normal(size=4)
        assert loss.evaluate(X @ (x / np.linalg.norm(x))).value >= result.lower_bound


def test_an_offset_is_minus_the_conjugate_far_from_the_targets():
    """Value less slope times prediction would be a difference of two large numbers."""
    loss = make_loss("huber", 0.0, False)
    predictions = loss.targets + np.where(np.arange(len(loss.targets)) % 2, 1e9, -1e9)
    found = loss.evaluate(predictions)
    expected = -loss.weights @ loss.sample_conjugate(loss.sample_slope(predictions))
    assert found.offset == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("beyond", [1.0, 1.0 + 1e-15])
def test_curvature_is_not_negative_where_rounding_took_a_residual_out_of_range(beyond):
    loss = LogisticLoss(np.array([1.0, -1.0]), np.array([0.5, 0.5]))
    point = replace(loss.evaluate(np.zeros(2)), residual=beyond * np.array([-0.5, 0.5]))
    assert np.all(loss.hessian(point).diagonal >= 0.0)
    assert loss.curvature_along(point, np.ones(2)) >= 0.0


def test_second_derivatives_over_some_of_the_samples():
    rng = np.random.default_rng(0)
    design, rows = design_matrix(rng.normal(size=(12, 3))), np.array([1, 4, 5, 9])
    hessian = DiagonalHessian(rng.uniform(size=12), fit_intercept=True)
    (found,) = hessian.output_grams(design.subset(rows), rows)
    expected = DiagonalHessian(hessian.diagonal[rows], fit_intercept=True).gram(design.subset(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    (everything,) = hessian.output_grams(design)
    np.testing.assert_allclose(everything, hessian.gram(design), rtol=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize("intercept", [False, True])
def test_samples_that_hardly_bend_the_loss_are_left_out_of_a_rough_second_derivative(
    intercept, make, monkeypatch
):
    rng = np.random.default_rng(0)
    design, diagonal = design_matrix(make(rng.normal(size=(40, 3)) + 1.0)), rng.uniform(0.5, 1.0, 40)
    diagonal[8:] *= 1e-3
    hessian, used, rough_gram = DiagonalHessian(diagonal, intercept), [], type(design).rough_gram
    monkeypatch.setattr(
        type(design), "rough_gram", lambda self, weights: used.append(weights) or rough_gram(self, weights)
    )
    rough, exact = hessian.rough_gram(design), hessian.gram(design)
    np.testing.assert_array_equal(np.flatnonzero(used[0]), np.arange(8))
    assert np.linalg.eigvalsh(rough).min() > 0.0
    np.testing.assert_allclose(rough, exact, atol=0.05 * np.diag(exact).max())
    if not intercept:
        np.testing.assert_allclose(np.diag(rough), np.diag(exact), rtol=1e-12)
    assert not DiagonalHessian(np.zeros(40), intercept).rough_gram(design).any()
