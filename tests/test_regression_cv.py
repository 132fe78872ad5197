"""The path of a regression, and its cross-validation."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LassoCV
from sklearn.model_selection import GridSearchCV, KFold

from skfw import HFWRegressor, HFWRegressorCV, hfw_regression_path

RNG = np.random.default_rng(1)
X = RNG.normal(size=(90, 6))
LINEAR = X @ [1.0, -1.0, 0.0, 0.0, 0.5, 0.0]
Y = LINEAR + RNG.normal(size=90) + 10.0
TARGETS = {
    "squared_error": Y,
    "huber": Y,
    "poisson": RNG.poisson(np.exp(0.5 * LINEAR)),
    "several": np.column_stack([Y, -LINEAR]),
}


def loss_of(kind):
    return "squared_error" if kind == "several" else kind


@pytest.mark.parametrize("kind", TARGETS)
def test_path_is_that_of_single_fits(kind):
    y, radii = TARGETS[kind], [0.2, 1.0, 2.0]
    found, coefs, intercepts, gaps = hfw_regression_path(X, y, radii, loss=loss_of(kind), tol=1e-10)
    np.testing.assert_array_equal(found, radii)
    for radius, coef, intercept, gap in zip(radii, coefs, intercepts, gaps, strict=True):
        model = HFWRegressor("l1", radius, loss=loss_of(kind), tol=1e-10).fit(X, y)
        np.testing.assert_allclose(coef, model.coef_, atol=1e-4)
        np.testing.assert_allclose(intercept, model.intercept_, atol=1e-4)
        assert 0.0 <= gap <= 1e-10 * model.trace_["objective"][0]


def test_path_takes_no_single_radius():
    with pytest.raises(TypeError, match="takes radii, not radius"):
        hfw_regression_path(X, Y, radius=3.0)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("unit", [1.0, 2.0**300])
def test_chooses_what_a_grid_search_chooses(kind, unit):
    """By the loss of the held-out samples; folds whose targets have other units too."""
    loss, y = loss_of(kind), TARGETS[kind]
    scale = 1.0 if kind == "poisson" else unit
    radii, cv = scale * np.geomspace(0.05, 3.0, 6), KFold(4)
    epsilon = 1.35 * unit
    model = HFWRegressorCV("l1", radii, loss=loss, epsilon=epsilon, cv=cv, tol=1e-8).fit(X, unit * y)
    assert model.scores_.shape == (4, 6)
    means = np.zeros(6)
    for number, radius in enumerate(radii):
        for train, test in cv.split(X):
            single = HFWRegressor("l1", radius, loss=loss, epsilon=epsilon, tol=1e-8)
            means[number] -= mean_loss(single.fit(X[train], unit * y[train]), X[test], unit * y[test]) / 4
    np.testing.assert_allclose(model.scores_.mean(axis=0), means, rtol=1e-5)
    assert model.radius_ == radii[np.argmax(means)]
    final = HFWRegressor("l1", model.radius_, loss=loss, epsilon=epsilon, tol=1e-8).fit(X, unit * y)
    np.testing.assert_allclose(model.coef_ / scale, final.coef_ / scale, atol=1e-3)


def mean_loss(model, features, y):
    errors = model.predict(features) - y
    if model.loss == "squared_error":
        return np.mean(errors**2) / 2
    if model.loss == "huber":
        size = np.minimum(np.abs(errors), model.epsilon)
        return np.mean(size * (np.abs(errors) - size / 2))
    unit = y.max()
    logarithms = np.where(y > 0, y * np.log(np.where(y > 0, y, unit) / model.predict(features)), 0.0)
    return np.mean(logarithms + errors)


def test_scoring_is_what_is_maximised_and_returned():
    radii, cv = [0.3, 1.0, 3.0], KFold(3)
    model = HFWRegressorCV("l2", radii, scoring="neg_mean_absolute_error", cv=cv).fit(X, Y)
    search = GridSearchCV(
        HFWRegressor("l2"), {"radius": radii}, scoring="neg_mean_absolute_error", cv=cv
    ).fit(X, Y)
    assert model.radius_ == search.best_params_["radius"]
    assert model.score(X, Y) == pytest.approx(-np.mean(np.abs(model.predict(X) - Y)))


def test_an_automatic_grid_predicts_as_lassocv_does():
    features, y = load_diabetes(return_X_y=True)
    ours, theirs = HFWRegressorCV().fit(features, y), LassoCV().fit(features, y)
    assert ours.scores_.mean(axis=0).max() > -0.5 * theirs.mse_path_.mean(axis=1).min() * 1.01
    assert ours.radii_[0] < ours.radius_ < ours.radii_[-1]
    assert ours.converged_
