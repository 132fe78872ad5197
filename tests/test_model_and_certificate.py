"""The fitted model is the one that the certificate speaks of, and lies in its set."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.preprocessing import StandardScaler

from skfw import HFWLogisticRegression

X2, y2 = load_breast_cancer(return_X_y=True)
X2 = StandardScaler().fit_transform(X2)[:, :8]
X3, y3 = load_iris(return_X_y=True)
X3 = StandardScaler().fit_transform(X3)
PROBLEMS = pytest.mark.parametrize("X, y", [(X2, y2), (X3, y3)], ids=["binary", "multiclass"])
NOT_CONVERGED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def loss_of(model, X, y, weights=None):
    """The weighted mean log-loss of what the model predicts."""
    known = np.isin(y, model.classes_)
    columns = np.searchsorted(model.classes_, y[known])
    errors = -model.predict_log_proba(X[known])[np.arange(len(columns)), columns]
    return np.average(errors, weights=None if weights is None else weights[known])


@NOT_CONVERGED
@PROBLEMS
@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "simplex"])
@pytest.mark.parametrize("momentum", ["weighted", "none", 0.5])
def test_the_model_is_the_best_iterate_where_the_last_is_not(X, y, constraint, momentum):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    worse = 0
    for max_iter in range(1, 8):
        model = HFWLogisticRegression(
            constraint, 30.0, momentum=momentum, step_size="parameter_free", corrective=False, tol=0.0
        ).set_params(max_iter=max_iter)
        model.fit(X, y, weights)
        assert loss_of(model, X, y, weights) == pytest.approx(model.objective_, rel=1e-12)
        assert model.objective_ == pytest.approx(model.trace_["objective"].min(), rel=1e-12)
        worse += model.trace_["objective"][-1] > 1.001 * model.objective_
    assert worse > 0  # else the last iterate was the best, and nothing has been tested


@PROBLEMS
@pytest.mark.parametrize("corrective", [True, False])
@pytest.mark.parametrize("tol", [1.0, 0.3])
def test_a_warm_start_cannot_bring_negative_coefficients_into_the_simplex(X, y, corrective, tol):
    X = X * np.where(HFWLogisticRegression("l1", radius=3.0).fit(X, y).coef_[0] < 0.0, -1.0, 1.0)
    X[:, 2] *= -1.0
    model = HFWLogisticRegression("l1", 3.0, warm_start=True).fit(X, y)
    model.coef_ = model.coef_ + (0.1 if len(y) == len(y3) else 0.0)  # the classes' coefficients sum to zero
    assert model.coef_.min() < 0.0 < model.coef_.sum()
    model.set_params(constraint="simplex", corrective=corrective, tol=tol).fit(X, y)
    assert model.converged_
    assert model.coef_.min() >= 0.0
    assert model.coef_.sum() == pytest.approx(3.0, rel=1e-12)
    assert 0.0 <= model.gap_ <= tol * np.log(len(model.classes_))
    cold = HFWLogisticRegression("simplex", 3.0, tol=1e-8).fit(X, y)
    assert model.lower_bound_ <= cold.objective_ <= model.objective_ + 1e-8


@pytest.mark.parametrize("n_classes, n_features", [(2, 6), (2, 400), (3, 6), (3, 60)])
@pytest.mark.parametrize("corrective", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_simplex_has_its_sum_also_where_less_would_be_better(
    n_classes, n_features, corrective, intercept
):
    """Features are positive and the last class is rare, so that zero would be better for two classes."""
    rng = np.random.default_rng(0)
    X, y = np.abs(rng.normal(size=(300, n_features))), rng.integers(0, n_classes - 1, 300)
    y[::10] = n_classes - 1
    for radius in (0.5, 10.0):
        options = {"fit_intercept": intercept, "corrective": corrective, "tol": 1e-4 if corrective else 0.1}
        model = HFWLogisticRegression("simplex", radius, warm_start=True, **options).fit(X, y)
        cold = model.objective_
        model.coef_ = np.ones_like(model.coef_)  # many nonzero coefficients at once
        model.fit(X, y)
        assert model.converged_
        assert model.coef_.min() >= 0.0
        assert model.coef_.sum() == pytest.approx(radius, rel=1e-9)
        assert model.gap_ >= 0.0
        assert model.lower_bound_ <= cold


@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "simplex", "nuclear"])
@PROBLEMS
def test_multiplier_is_minus_the_slope_of_the_smallest_loss(constraint, X, y):
    if constraint == "nuclear" and len(np.unique(y)) == 2:
        pytest.skip("the nuclear ball is one of matrices")

    def fit(radius):
        return HFWLogisticRegression(constraint, radius, tol=1e-11, max_iter=10_000).fit(X, y)

    width = 1e-3
    low, middle, high = (fit(1.0 + shift) for shift in (-width, 0.0, width))
    slope = (high.objective_ - low.objective_) / (2.0 * width)
    assert abs(slope) > 1e-3
    assert middle.multiplier_ == pytest.approx(-slope, rel=1e-3)


def test_the_multiplier_of_a_simplex_that_is_too_large_is_negative():
    rng = np.random.default_rng(0)
    X, y = np.abs(rng.normal(size=(200, 5))), rng.integers(0, 2, 200)
    low, middle, high = (
        HFWLogisticRegression("simplex", radius, tol=1e-11).fit(X, y) for radius in (2.999, 3.0, 3.001)
    )
    assert high.objective_ > low.objective_ + 1e-6
    assert middle.multiplier_ == pytest.approx((low.objective_ - high.objective_) / 0.002, rel=1e-3)


@PROBLEMS
@pytest.mark.parametrize("scale", [1.7e308, 1e300, 1e-300, 1e-308, 1e-310])
def test_the_size_of_the_weights_does_not_matter(X, y, scale):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = HFWLogisticRegression("l1", radius=3.0).fit(X, y)
        scaled = HFWLogisticRegression("l1", radius=3.0).fit(X, y, np.full(len(y), scale))
        balanced = HFWLogisticRegression("l1", radius=3.0, class_weight="balanced")
        scaled_balanced = clone(balanced).fit(X, y, np.full(len(y), scale))
        balanced.fit(X, y)
    for model, reference in ((scaled, plain), (scaled_balanced, balanced)):
        np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.intercept_, reference.intercept_, rtol=1e-6, atol=1e-9)
        assert model.objective_ == pytest.approx(reference.objective_, rel=1e-9)
        assert model.lower_bound_ == pytest.approx(reference.lower_bound_, rel=1e-9)


@pytest.mark.parametrize(
    "class_weight",
    [
        {0: 1e12, 1: 1.0, 2: 1e-12},
        {0: 1e-150, 1: 1e150, 2: 1.0},
        {0: 0.0, 1: 1e-6, 2: 1e6},
        {0: 1e150, 1: 0.0, 2: 1e150},
        {0: 1.0, 1: 1.0, 2: 1e-300},
    ],
    ids=str,
)
@pytest.mark.parametrize("intercept", [False, True])
@NOT_CONVERGED
def test_objective_is_the_log_loss_for_any_class_weights(class_weight, intercept):
    largest = max(class_weight.values())
    weights = np.array([class_weight[label] / largest for label in y3])
    model = HFWLogisticRegression("l1", radius=3.0, class_weight=class_weight, fit_intercept=intercept).fit(
        X3, y3
    )
    assert model.classes_.tolist() == [label for label, weight in class_weight.items() if weight > 0.0]
    assert loss_of(model, X3, y3, weights) == pytest.approx(model.objective_, rel=1e-9)
    assert 0.0 <= model.gap_ == model.objective_ - model.lower_bound_


@pytest.mark.parametrize("constraint", ["l1", "l2", "simplex", "linf"])
@PROBLEMS
def test_a_warm_start_from_float32_goes_on_where_it_ended(constraint, X, y):
    X = X.astype(np.float32)
    model = HFWLogisticRegression(constraint, 3.0, warm_start=True, tol=1e-3).fit(X, y)
    assert model.coef_.dtype == np.float32
    began, ended = model.trace_["objective"][0], model.objective_
    model.fit(X, y)
    assert model.trace_["objective"][0] == pytest.approx(ended, rel=1e-6)
    assert ended < 0.9 * began
