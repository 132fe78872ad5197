import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import lsq_linear, minimize
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skfw import HFWLogisticRegression, HFWRegressor, HFWRegressorCV
from skfw.engine import Box, FreeCoordinates, LInfBall, Problem, SquaredLoss, best_corrector, design_matrix
from skfw.engine.correctors._box_quadratics import descend_over_box, solve_over_box

RNG = np.random.default_rng(3)
LOWER, UPPER = np.array([0.5, -1.0, -2.0, 0.3]), np.array([2.0, 1.0, -1.0, 0.3])
SHAPES = [(4,), (4, 3)]


def random_points(shape, count=200):
    lower, upper = Box(LOWER, UPPER).bounds(shape)
    return [RNG.uniform(lower, upper) for _ in range(count)]


@pytest.mark.parametrize("shape", SHAPES)
def test_oracle_is_at_the_best_corner(shape):
    box = Box(LOWER, UPPER)
    box.check(shape)
    for _ in range(20):
        direction = RNG.normal(size=shape)
        minimum = box.lmo(direction)
        atom = np.zeros(shape) + minimum.atom
        np.testing.assert_array_equal(box.scale_into(atom), atom)
        assert np.vdot(direction, atom) == pytest.approx(minimum.value, abs=1e-12)
        assert 0.0 < minimum.slack <= 1e-12
        assert min(np.vdot(direction, point) for point in random_points(shape)) >= minimum.value
        others = [
            np.vdot(direction, np.zeros(shape) + box.lmo(RNG.normal(size=shape)).atom) for _ in range(9)
        ]
        assert min(others) >= minimum.value - 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_diameter_and_effect_of_errors(shape):
    box = Box(LOWER, UPPER)
    points = random_points(shape)
    ends = [np.zeros(shape) + box.lmo(sign * np.ones(shape)).atom for sign in (1.0, -1.0)]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(box.diameter(shape))
    error = RNG.uniform(size=shape)
    effect = box.error_effect(error, np.zeros(shape))
    reached = max((error * np.abs(point)).sum() for point in points)
    largest = np.maximum(np.abs(box.bounds(shape)[0]), np.abs(box.bounds(shape)[1]))
    assert reached <= effect == pytest.approx((error * largest).sum())


def test_a_sum_that_cancels_has_its_rounding_in_the_slack():
    """Products of 1e16 and -1e16 leave a sum of order one that is mostly rounding."""
    box = Box(np.array([1e16, -1e16, 1.0 / 3.0]), np.array([1e16, -1e16, 1.0 / 3.0]))
    direction = np.array([1.0, 1.0 + 2**-52, 1.0])
    minimum = box.lmo(direction)
    exact = 1e16 - 1e16 * (1.0 + 2**-52) + 1.0 / 3.0
    assert minimum.value - minimum.slack <= exact <= minimum.value + minimum.slack
    assert minimum.slack >= 1.0


def test_contains_zero_and_scaling():
    assert Box(-1.0, 0.0).contains_zero
    assert not Box(np.array([-1.0, 0.1]), 1.0).contains_zero
    np.testing.assert_array_equal(
        Box(np.array([0.0, 1.0]), 3.0).scale_into(np.array([[-1.0, 2.0], [0.0, 4.0]])),
        [[0.0, 2.0], [1.0, 3.0]],
    )


@pytest.mark.parametrize(
    "box, message",
    [
        (Box(1.0, 0.0), "lower must not be above upper; got 1 above 0 for feature 0"),
        (Box(np.zeros(3), np.array([1.0, 1.0, -1.0])), "got 0 above -1 for feature 2"),
        (
            Box(0.0, np.inf),
            "upper must be one number, or one for each of 3 features, all finite; got upper=inf",
        ),
        (Box(None, 1.0), "lower must be one number"),
        (Box(np.zeros(4), 1.0), "lower must be one number, or one for each of 3 features"),
        (Box(np.zeros((3, 1)), 1.0), "lower must be"),
        (Box(np.full(9, np.nan), 1.0), r"got lower=an array of shape \(9,\)"),
        (Box("small", 1.0), "got lower='small'"),
    ],
    ids=str,
)
def test_wrong_bounds(box, message):
    with pytest.raises(ValueError, match=message):
        HFWRegressor(box).fit(RNG.normal(size=(9, 3)), np.arange(9.0))


# The quadratic models.


def quadratic(size, rank, seed):
    """Return a model, and its minimum over a box by another solver."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(rank, size)), rng.normal(size=rank)
    low, high = -rng.uniform(size=size), rng.uniform(size=size)
    low[: size // 3] = 0.0
    reference = lsq_linear(X, y, (low - 1e-300, high), tol=1e-14, method="bvls").x
    hessian, slope = X.T @ X, -X.T @ y

    def value(u):
        return slope @ u + 0.5 * u @ hessian @ u

    return hessian, slope, low, high, value, value(reference)


@pytest.mark.parametrize("size, rank", [(1, 3), (5, 20), (30, 40), (30, 10), (60, 80)])
@pytest.mark.parametrize("seed", range(5))
def test_models_are_minimised_over_a_box(size, rank, seed):
    hessian, slope, low, high, value, best = quadratic(size, rank, seed)
    exact = solve_over_box(hessian, slope, low, high)
    assert np.all((low <= exact) & (exact <= high))
    # Where coordinates depend on each other, pivoting may not come to an end, and a descent is slow.
    independent = rank > size
    assert value(exact) == pytest.approx(best, rel=1e-9 if independent else 1e-2)
    found, n_products = descend_over_box(
        lambda u: hessian @ u, slope, low, high, np.diag(hessian), 1e-12, 1e-8, max_products=2000
    )
    assert np.all((low <= found) & (found <= high))
    assert best - 1e-9 <= value(found) <= best + (1e-6 if independent else 1e-3) * abs(best)
    assert 1 <= n_products <= 2000 + 8  # the last pass may shorten two steps four times each


def test_few_products_still_go_down():
    hessian, slope, low, high, value, best = quadratic(40, 60, 1)
    for limit in (1, 2, 5, 20):
        found, n_products = descend_over_box(
            lambda u: hessian @ u, slope, low, high, np.diag(hessian), 0.0, 0.1, max_products=limit
        )
        assert best < value(found) < 0.0
        assert n_products <= limit + 4


def test_flat_directions_go_to_a_bound():
    """Where a coordinate has a slope and no curvature, as beyond the kink of Huber's loss."""
    hessian, slope = np.diag([1.0, 0.0, 0.0]), np.array([-0.5, 1.0, 0.0])
    change = solve_over_box(hessian, slope, np.full(3, -2.0), np.full(3, 3.0))
    np.testing.assert_allclose(change, [0.5, -2.0, 0.0], atol=1e-12)
    assert solve_over_box(np.zeros((2, 2)), np.ones(2), -np.ones(2), np.ones(2)) is None


# The corrector, and the estimators.


@pytest.mark.parametrize("make", [lambda size: Box(-size, 2 * size), LInfBall], ids=["box", "linf"])
@pytest.mark.parametrize("shape, size", [((200, 30), 0.1), ((40, 120), 0.05), ((100, 500), 0.005)])
def test_a_run_takes_few_steps(make, shape, size):
    constraint = make(size)
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=shape), rng.normal(size=shape[0])
    problem = Problem(SquaredLoss(y, np.full(len(y), 1 / len(y))), design_matrix(X), constraint)
    assert isinstance(best_corrector(problem), FreeCoordinates)
    model = HFWRegressor(constraint, fit_intercept=False, tol=1e-7).fit(X, y)
    lower, upper = constraint.bounds((shape[1],))
    assert model.converged_
    assert model.n_iter_ <= 15
    assert np.all((lower <= model.coef_) & (model.coef_ <= upper))
    assert np.any(model.coef_ == lower)
    reference = lsq_linear(X, y, (lower, upper), tol=1e-12, lsq_solver="exact", max_iter=500)
    optimum = reference.cost / len(y)
    assert model.lower_bound_ <= optimum * (1 + 1e-9)
    assert model.objective_ <= optimum + model.gap_ + 1e-12


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_signs_and_ranges_of_coefficients(kind, n_targets):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(150, 6)) * (rng.uniform(size=(150, 6)) < 0.7)
    y = X @ rng.normal(size=(6, n_targets)) + rng.normal(size=(150, n_targets)) + 3.0
    lower, upper = np.array([0.0, -1.0, 0.0, -9.0, 0.2, -0.1]), np.array([1.0, 0.0, 9.0, 9.0, 0.2, 0.1])
    model = HFWRegressor(Box(lower, upper), tol=1e-10).fit(kind(X), y if n_targets > 1 else y[:, 0])
    assert np.isnan(model.radius_)
    assert np.isnan(model.multiplier_)
    centred, targets = X - X.mean(axis=0), y - y.mean(axis=0)
    optimum = 0.0
    for column, coef in zip(targets.T, np.atleast_2d(model.coef_), strict=True):
        room = np.maximum(upper - lower, 1e-12)
        reference = lsq_linear(centred, column, (lower, lower + room), tol=1e-14)
        np.testing.assert_allclose(coef, reference.x, atol=1e-6)
        optimum += reference.cost / len(y) / n_targets
    assert model.lower_bound_ <= optimum + 1e-12
    assert model.objective_ == pytest.approx(optimum, rel=1e-9)
    assert np.all(np.atleast_2d(model.coef_)[:, 4] == 0.2)


def test_bounded_classifier_agrees_with_another_solver():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(120, 5))
    signs = np.sign(X @ [1.0, -1.0, 0.5, 0.0, 2.0] + rng.logistic(size=120))
    model = HFWLogisticRegression(Box(0.0, 0.7), tol=1e-9).fit(X, signs)

    def loss(variables):
        margins = signs * (X @ variables[:5] + variables[5])
        slope = -signs / (1.0 + np.exp(margins)) / len(X)
        return np.logaddexp(0.0, -margins).mean(), np.append(X.T @ slope, slope.sum())

    options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000}
    bounds = [(0.0, 0.7)] * 5 + [(None, None)]
    reference = minimize(loss, np.zeros(6), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    assert model.lower_bound_ <= reference.fun
    np.testing.assert_allclose(model.coef_[0], reference.x[:5], atol=1e-5)


def test_bounds_can_be_searched_and_cloned():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=80)
    search = GridSearchCV(HFWRegressor(Box(0.0, 1.0)), {"constraint__upper": [0.5, 2.0, 4.0]}).fit(X, y)
    assert search.best_params_ == {"constraint__upper": 4.0}
    again = clone(search.best_estimator_).fit(X, y)
    np.testing.assert_array_equal(again.coef_, search.best_estimator_.coef_)


def test_warm_starts_are_moved_into_the_box():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, 2.0, 3.0]
    model = HFWRegressor(Box(-5.0, 5.0), warm_start=True).fit(X, y)
    model.set_params(constraint__upper=1.5).fit(X, y)
    assert model.coef_.max() == 1.5
    assert model.converged_


def test_a_search_over_radii_needs_a_radius():
    with pytest.raises(
        ValueError, match=r"Box has none; GridSearchCV .*: constraint__lower, constraint__upper\."
    ):
        HFWRegressorCV(Box(0.0, 1.0)).fit(RNG.normal(size=(20, 3)), np.arange(20.0))


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_units_of_the_features(scale):
    rng = np.random.default_rng(10)
    X, y = rng.normal(size=(60, 4)), rng.normal(size=60)
    model = HFWRegressor(Box(-0.1 / scale, 0.05 / scale), tol=1e-8).fit(scale * X, y)
    plain = HFWRegressor(Box(-0.1, 0.05), tol=1e-8).fit(X, y)
    np.testing.assert_allclose(scale * model.coef_, plain.coef_, atol=1e-9)
    assert model.converged_
