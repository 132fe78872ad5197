"""Shapes, scales, weights and ids no one thought of."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from skfw import HFWLogisticRegression, HFWMatrixCompletion
from skfw._params import LINEAR_CONSTRAINTS, make_constraint

fast = settings(max_examples=60)
scales = st.sampled_from([1e-8, 1e-2, 1.0, 30.0, 1e6])


@fast
@given(
    seed=st.integers(0, 10_000),
    n_samples=st.integers(3, 25),
    n_features=st.integers(2, 8),
    n_classes=st.integers(2, 4),
    scale=scales,
    radius=scales,
    weight_spread=st.sampled_from([0.0, 1.0, 15.0]),
    constraint=st.sampled_from(LINEAR_CONSTRAINTS),
    step_size=st.sampled_from(["parameter_free", "smooth", "directional", "line_search"]),
    momentum=st.sampled_from(["adaptive", "weighted", "uniform", "none", 0.3]),
    restart=st.booleans(),
    corrective=st.booleans(),
    fit_intercept=st.booleans(),
)
def test_no_feasible_model_beats_the_lower_bound(
    seed, n_samples, n_features, n_classes, scale, radius, weight_spread, constraint, restart, **params
):
    params["restart"] = restart and params["momentum"] not in ("adaptive", "none")  # which refuse it
    rng = np.random.default_rng(seed)
    n_samples = max(n_samples, n_classes)
    X = scale * rng.normal(size=(n_samples, n_features)) * (rng.uniform(size=n_features) < 0.8)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n_samples - n_classes))
    weights = np.exp(weight_spread * rng.normal(size=n_samples))
    if constraint == "nuclear" and n_classes == 2:
        constraint = "l2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HFWLogisticRegression(constraint, radius, max_iter=25, tol=1e-6, **params).fit(X, y, weights)
    assert np.isfinite(model.coef_).all()
    assert model.gap_ >= 0.0
    assert log_loss(model, X, y, weights, model.coef_) <= model.objective_ * (1 + 1e-9) + 1e-12
    ball = make_constraint(constraint, radius, LINEAR_CONSTRAINTS, support_size=2)
    for _ in range(10):
        other = rng.normal(size=model.coef_.T.shape)
        other = ball.scale_into(1e9 * (np.abs(other) if constraint == "simplex" else other)).T
        for share in (0.0, 0.01, 1.0):  # near the solution too
            mixture = (1 - share) * model.coef_ + share * other
            assert log_loss(model, X, y, weights, mixture) >= model.lower_bound_ * (1 - 1e-9) - 1e-12


def log_loss(model, X, y, weights, coef):
    """Log-loss of these coefficients with the model's intercept."""
    scores = X @ coef.T + model.intercept_
    if len(coef) == 1:
        losses = np.logaddexp(0.0, np.where(y == 1, -1, 1) * scores[:, 0])
    else:
        losses = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(y)), y]
    return np.average(losses, weights=weights)


@fast
@given(
    entries=st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 4), st.floats(-100, 100), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    ),
    radius=st.sampled_from([0.1, 1.0, 10.0]),
    biases=st.sampled_from(["none", "mean", "rows", "columns", "both"]),
    bias_penalty=st.sampled_from([None, 0.1, 10.0]),
    momentum=st.sampled_from(["adaptive", "weighted", "none"]),
    corrective=st.booleans(),
)
def test_completion_of_any_entries(entries, radius, bias_penalty, **params):
    X = np.array([entry[:2] for entry in entries])
    y, weights = np.array([entry[2:] for entry in entries]).T
    weights[0] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HFWMatrixCompletion(
            radius,
            constraint="nuclear",
            bias_penalty=bias_penalty,
            max_iter=50,
            random_state=0,
            **params,
        ).fit(X, y, weights)
    error = model.predict(X) - y
    ridge = 0.0 if bias_penalty is None else 0.5 * bias_penalty / weights.sum()
    ridge *= model.row_biases_ @ model.row_biases_ + model.column_biases_ @ model.column_biases_
    objective = 0.5 * np.average(error**2, weights=weights) + ridge
    assert np.isclose(model.objective_, objective, rtol=1e-6, atol=1e-9)
    assert model.gap_ >= 0.0
    assert np.isfinite(model.predict([[0, 0], [99, 0], [0, 99], [99, 99]])).all()
    # Other feasible models: rank-one matrices with the norm that the model's matrix has.
    rng = np.random.default_rng(0)
    row_of, column_of = (
        np.searchsorted(ids, X[:, i]) for i, ids in enumerate([model.row_ids_, model.column_ids_])
    )
    seen = weights > 0
    base = model.mean_ + model.row_biases_[row_of[seen]] + model.column_biases_[column_of[seen]]
    for _ in range(10):
        left, right = rng.normal(size=len(model.row_ids_)), rng.normal(size=len(model.column_ids_))
        matrix = np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
        matrix *= model.singular_values_.sum()
        other = y[seen] - base - matrix[row_of[seen], column_of[seen]]
        objective = 0.5 * np.average(other**2, weights=weights[seen]) + ridge
        assert objective >= model.lower_bound_ * (1 - 1e-9) - 1e-9
