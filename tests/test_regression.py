"""HFWRegressor: agreement with other libraries, its units, its targets, and what it refuses."""

import warnings

import numpy as np
import pytest
from problems import COUNT_PROBLEMS, EPSILON, PROBLEMS, counts, data, problem, several_targets
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, Lasso, PoissonRegressor, Ridge
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfw import HFWRegressor
from skfw.engine import GroupBall, L1Ball

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 8)) * np.geomspace(0.3, 3.0, 8)
Y = X @ [2.0, 0.0, -1.0, 0.0, 0.0, 0.5, 0.0, 0.3] + RNG.normal(size=120) + 4.0
COUNTS = RNG.poisson(np.exp(0.2 * (Y - 4.0)))
TIGHT = {"tol": 1e-10, "max_iter": 10_000}
LOSSES = {"squared_error": Y, "huber": Y, "poisson": COUNTS}
every_loss = pytest.mark.parametrize("loss", LOSSES)


REGRESSIONS = [names for names in PROBLEMS + COUNT_PROBLEMS if names[0] not in ("logistic", "multinomial")]


@pytest.mark.parametrize("names", REGRESSIONS, ids=str)
def test_reaches_the_optimum_of_every_loss_and_set(names):
    loss_name, _, intercept = names
    X, weights, _, _, targets = data()
    y = {"poisson": counts(), "targets": several_targets()}.get(loss_name, targets)
    loss = {"squared": "squared_error", "targets": "squared_error"}.get(loss_name, loss_name)
    p = problem(*names)
    model = HFWRegressor(
        p.problem.constraint, loss=loss, epsilon=EPSILON, fit_intercept=intercept, tol=1e-9, max_iter=5000
    ).fit(X, y, weights)
    assert model.lower_bound_ <= p.optimum + 1e-9
    assert model.objective_ == pytest.approx(p.optimum, abs=1e-7)
    predictions = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.predict(X), np.exp(predictions) if loss == "poisson" else predictions)


@pytest.mark.parametrize("alpha", [0.5, 0.05])
@pytest.mark.parametrize("intercept", [False, True])
def test_agrees_with_lasso(alpha, intercept):
    theirs = Lasso(alpha, fit_intercept=intercept, tol=1e-14, max_iter=100_000).fit(X, Y)
    ours = HFWRegressor("l1", np.abs(theirs.coef_).sum(), fit_intercept=intercept, **TIGHT).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    assert ours.multiplier_ == pytest.approx(alpha, rel=1e-4)


@pytest.mark.parametrize("alpha", [1.0, 100.0])
@pytest.mark.parametrize("weights", [None, RNG.uniform(0.2, 2.0, 120)], ids=["plain", "weighted"])
def test_agrees_with_ridge(alpha, weights):
    theirs = Ridge(alpha, tol=1e-14).fit(X, Y, weights)
    radius = np.linalg.norm(theirs.coef_)
    ours = HFWRegressor("l2", radius, tol=1e-12).fit(X, Y, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    total = len(Y) if weights is None else weights.sum()
    assert total * ours.multiplier_ / radius == pytest.approx(alpha, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1.1, 2.0])
def test_agrees_with_huber(epsilon):
    y = np.where(np.arange(120) % 10 == 0, Y + 30.0, Y)
    theirs = HuberRegressor(epsilon=epsilon, alpha=1.0, tol=1e-10, max_iter=10_000).fit(X, y)
    threshold, penalty = epsilon * theirs.scale_, theirs.scale_ / (2 * len(y))

    def penalised(model):
        """Their objective at their scale: L-BFGS leaves it at some 1e-9, and coefficients at 1e-4."""
        errors = X @ model[:-1] + model[-1] - y
        slopes = np.clip(errors, -threshold, threshold) / len(y)
        sizes = np.minimum(np.abs(errors), threshold)
        value = np.mean(sizes * (np.abs(errors) - sizes / 2)) + penalty * model[:-1] @ model[:-1]
        return value, np.append(X.T @ slopes + 2 * penalty * model[:-1], slopes.sum())

    start = np.append(theirs.coef_, theirs.intercept_)
    best = minimize(penalised, start, jac=True, method="BFGS", options={"gtol": 1e-12}).x
    np.testing.assert_allclose(best, start, atol=1e-3)
    ours = HFWRegressor(
        "l2", np.linalg.norm(best[:-1]), loss="huber", epsilon=threshold, tol=1e-13, max_iter=10_000
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as small as rounding allows
        ours.fit(X, y)
    np.testing.assert_allclose(ours.coef_, best[:-1], atol=1e-6)
    assert ours.intercept_ == pytest.approx(best[-1], abs=1e-6)


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_agrees_with_poisson(alpha):
    theirs = PoissonRegressor(alpha=alpha, tol=1e-12, max_iter=10_000).fit(X, COUNTS)
    ours = HFWRegressor("l2", np.linalg.norm(theirs.coef_), loss="poisson", **TIGHT).fit(X, COUNTS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-5)
    assert ours.score(X, COUNTS) == pytest.approx(theirs.score(X, COUNTS), abs=1e-6)


def test_weights_on_a_simplex_agree_with_slsqp():
    found = minimize(
        lambda w: np.mean((X @ w - Y) ** 2) / 2,
        np.full(8, 1 / 8),
        bounds=[(0, None)] * 8,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    model = HFWRegressor("simplex", 1.0, fit_intercept=False, **TIGHT).fit(X, Y)
    np.testing.assert_allclose(model.coef_, found.x, atol=1e-5)
    assert model.lower_bound_ <= found.fun + 1e-12


def test_reduced_rank_regression():
    truth = RNG.normal(size=(8, 2)) @ RNG.normal(size=(2, 5))
    targets = X @ truth + 0.1 * RNG.normal(size=(120, 5))
    norm = np.linalg.svd(truth, compute_uv=False).sum()
    model = HFWRegressor("nuclear", 0.9 * norm, tol=1e-6).fit(X, targets)
    values = np.linalg.svd(model.coef_, compute_uv=False)
    assert model.coef_.shape == (5, 8)
    assert values.sum() <= 0.9 * norm * (1 + 1e-9)
    assert values[2:].sum() < 0.02 * values.sum()


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_several_targets_are_the_mean_of_their_losses(loss):
    y = LOSSES[loss]
    one = HFWRegressor("l2", 0.5, loss=loss, **TIGHT).fit(X, y)
    column = HFWRegressor("l2", 0.5, loss=loss, **TIGHT).fit(X, y[:, np.newaxis])
    assert (one.coef_.shape, np.shape(one.intercept_), one.predict(X).shape) == ((8,), (), (120,))
    assert (column.coef_.shape, column.intercept_.shape, column.predict(X).shape) == ((1, 8), (1,), (120, 1))
    np.testing.assert_array_equal(column.coef_[0], one.coef_)
    # The same target twice, in a ball of twice the square: the same model twice.
    twice = HFWRegressor("l2", 0.5 * np.sqrt(2.0), loss=loss, **TIGHT).fit(X, np.column_stack([y, y]))
    np.testing.assert_allclose(twice.coef_, np.tile(one.coef_, (2, 1)), atol=1e-5)
    assert twice.objective_ == pytest.approx(one.objective_, rel=1e-8)
    assert twice.score(X, np.column_stack([y, y])) == pytest.approx(one.score(X, y), abs=1e-6)


@every_loss
@pytest.mark.parametrize("exponent", [-500, -100, 100, 495])
def test_units_of_targets_and_features(loss, exponent):
    """Powers of two, so that the same bits are expected."""
    unit, y = 2.0**exponent, LOSSES[loss].astype(np.float64)
    fitted = HFWRegressor("l1", 1.5, loss=loss).fit(X, y)
    small = HFWRegressor("l1", 1.5 / unit, loss=loss).fit(unit * X, y)
    np.testing.assert_allclose(small.coef_ * unit, fitted.coef_, rtol=1e-12)
    assert small.gap_ == pytest.approx(fitted.gap_, rel=1e-6)
    if loss == "poisson":
        scaled = HFWRegressor("l1", 1.5, loss=loss).fit(X, unit * y)
        np.testing.assert_array_equal(scaled.coef_, fitted.coef_)
        assert scaled.intercept_ - np.log(unit) == pytest.approx(fitted.intercept_, abs=1e-12)
        assert scaled.objective_ == fitted.objective_ * unit
    else:
        scaled = HFWRegressor("l1", 1.5 * unit, loss=loss, epsilon=1.35 * unit).fit(X, unit * y)
        np.testing.assert_array_equal(scaled.coef_, fitted.coef_ * unit)
        assert scaled.intercept_ == fitted.intercept_ * unit
        assert scaled.gap_ == fitted.gap_ * unit * unit
        default = HFWRegressor(loss=loss, epsilon=1.35 * unit).fit(X, unit * y)
        expected = HFWRegressor(loss=loss).fit(X, y)
        assert default.radius_ == pytest.approx(expected.radius_ * unit)


def test_a_constraint_object_has_the_unit_of_the_targets():
    for factor in (1.0, 1000.0):
        model = HFWRegressor(L1Ball(1.5 * factor), **TIGHT).fit(X, factor * Y)
        np.testing.assert_allclose(
            model.coef_, factor * HFWRegressor("l1", 1.5, **TIGHT).fit(X, Y).coef_, rtol=1e-6, atol=1e-9
        )


@every_loss
def test_scores(loss):
    y = LOSSES[loss]
    model = HFWRegressor(loss=loss).fit(X, y)
    weights = RNG.uniform(size=120)
    if loss == "poisson":
        expected = d2_tweedie_score(y, model.predict(X), sample_weight=weights, power=1)
    else:
        expected = r2_score(y, model.predict(X), sample_weight=weights)
    assert model.score(X, y, weights) == pytest.approx(expected)
    assert model.score(X, y) > (0.2 if loss == "poisson" else 0.5)


@pytest.mark.parametrize(
    "loss, several",
    [(loss, several) for loss in LOSSES for several in (False, True) if loss != "poisson" or not several],
)
def test_weights_are_repetitions_and_sparse_data_is_data(loss, several):
    y = LOSSES[loss]
    y = np.column_stack([y, y[::-1]]) if several else y
    weights = RNG.integers(0, 3, 120)
    fits = [
        HFWRegressor("l1", 1.0, loss=loss, **TIGHT).fit(data, targets, weight)
        for data, targets, weight in (
            (X, y, weights),
            (np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0), None),
            (sparse.csr_matrix(X), y, weights),
            (sparse.csc_matrix(X), y, weights),
        )
    ]
    for other in fits[1:]:
        np.testing.assert_allclose(other.coef_, fits[0].coef_, atol=1e-5)
        assert other.objective_ == pytest.approx(fits[0].objective_, rel=1e-9)


@every_loss
def test_single_precision_stays(loss):
    model = HFWRegressor(loss=loss).fit(X.astype(np.float32), LOSSES[loss].astype(np.float32))
    assert model.coef_.dtype == model.predict(X.astype(np.float32)).dtype == np.float32


def test_sparsify_and_back():
    model = HFWRegressor("l1", 1.0).fit(X, Y)
    dense, predictions = model.coef_, model.predict(X)
    assert sparse.issparse(model.sparsify().coef_)
    np.testing.assert_allclose(model.predict(X), predictions)
    np.testing.assert_array_equal(model.densify().coef_, dense)


def test_warm_start():
    model = HFWRegressor("l1", 1.0, warm_start=True, tol=1e-8).fit(X, Y)
    n_iter = model.n_iter_
    assert model.fit(X, Y).n_iter_ < n_iter
    assert model.set_params(radius=2.0).fit(X, 1e6 * Y).converged_


def test_default_radius_predicts():
    features, y = load_diabetes(return_X_y=True)
    assert HFWRegressor().fit(features[::2], y[::2]).score(features[1::2], y[1::2]) > 0.4


def test_in_pipelines_and_searches():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), HFWRegressor()),
        {"hfwregressor__radius": [1.0, 3.0], "hfwregressor__loss": ["squared_error", "huber"]},
        cv=3,
    ).fit(X, Y)
    assert search.best_score_ > 0.5
    grouped = GridSearchCV(
        HFWRegressor(GroupBall(1.0, np.arange(8) // 2)), {"constraint__radius": [1.0, 4.0]}, cv=3
    ).fit(X, Y)
    assert grouped.best_params_ == {"constraint__radius": 4.0}
    assert clone(HFWRegressor("l2", 3.0)).radius == 3.0


@pytest.mark.parametrize(
    "params, y, message",
    [
        ({"loss": "poisson"}, -Y, "y must not be negative for loss='poisson'"),
        ({"loss": "poisson"}, np.zeros(120), "y must have a positive value"),
        ({"loss": "poisson"}, np.column_stack([COUNTS, COUNTS]), "y should be a 1d array"),
        ({"loss": "squared"}, Y, "loss must be one of .* did you mean 'squared_error'"),
        ({"epsilon": 0.0, "loss": "huber"}, Y, "epsilon must be a finite number above 0"),
        ({"loss": "poisson", "step_size": "smooth"}, COUNTS, "step_size must be 'line_search'"),
        (
            {"loss": "poisson", "restart": True, "momentum": "weighted"},
            COUNTS,
            "restart=True needs a Lipschitz",
        ),
        ({"constraint": "nuclear"}, Y, "nuclear-norm ball needs a matrix"),
        ({}, np.full(120, np.nan), "NaN"),
        ({}, Y[:-1], "inconsistent numbers of samples"),
        ({"radius": -1.0}, Y, "radius must be a finite number above 0"),
        ({"constraint": "simplex", "radius": "big"}, Y, "radius must be 'scale'"),
        ({"fit_intercept": "yes"}, Y, "fit_intercept must be True or False"),
    ],
)
def test_what_is_refused(params, y, message):
    model = HFWRegressor().fit(X, Y)
    before = model.coef_
    with pytest.raises(ValueError, match=message):
        model.set_params(**params).fit(X, y)
    assert model.coef_ is before


def test_targets_that_say_nothing():
    for y in (np.full(120, 7.0), np.zeros(120)):
        model = HFWRegressor().fit(X, y)
        np.testing.assert_allclose(model.predict(X), y, atol=1e-9)
