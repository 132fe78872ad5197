"""Rounding in huge features, and entries that are stored in parts, change no certificate's validity."""

import numpy as np
import pytest
from scipy import sparse

from skfw import HFWLogisticRegression

KINDS = [np.asarray, sparse.csr_matrix, sparse.csc_matrix]
SETTINGS = [
    {"momentum": "adaptive"},
    {"momentum": "none", "corrective": False},
    {"momentum": "weighted", "step_size": "directional"},
]


def random_problem(seed, shift, left_out):
    """A feature is shifted in all rows but so many of each class."""
    rng = np.random.default_rng(seed)
    n_samples, n_features = int(rng.integers(8, 60)), int(rng.integers(1, 6))
    X, y = rng.normal(size=(n_samples, n_features)), rng.permutation(n_samples) % 2
    for label in (0, 1):
        X[np.flatnonzero(y == label)[left_out:], 0] += shift
    return X, y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shift", [-1.7e9, 1.7e9])
@pytest.mark.parametrize("left_out", [0, 1])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("constraint", ["l1", "l2"])
@pytest.mark.parametrize("radius", [1e-3, 1.0])
def test_no_bound_exceeds_what_another_fit_reaches(shift, left_out, intercept, constraint, radius):
    for seed in range(4):
        X, y = random_problem(seed, shift, left_out)
        data = [kind(X) for kind in KINDS]
        if intercept and not left_out:
            back = X.copy()
            back[:, 0] -= shift  # exact, and the intercept makes up for it
            data.append(back)
        models = [
            HFWLogisticRegression(
                constraint, radius, fit_intercept=intercept, tol=1e-14, max_iter=8, **setting
            ).fit(features, y)
            for features in data
            for setting in SETTINGS
        ]
        # The bounds of the problem shifted back are left out: they are finer than the rounding of the other
        # objectives.
        bounds = [model.lower_bound_ for model in models[: len(KINDS) * len(SETTINGS)]]
        assert max(bounds) <= min(model.objective_ for model in models)


def in_parts(X):
    """The same matrix with each entry stored as two, which sum to it exactly."""
    whole = sparse.csr_matrix(X)
    data = np.repeat(whole.data, 2)
    data[::2], data[1::2] = 3.0 * whole.data, -2.0 * whole.data
    parts = sparse.csr_matrix((data, np.repeat(whole.indices, 2), 2 * whole.indptr), shape=whole.shape)
    assert parts.nnz == 2 * whole.nnz
    return whole, parts


@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "simplex"])
@pytest.mark.parametrize("step_size", ["line_search", "smooth", "directional"])
@pytest.mark.parametrize("corrective", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_entries_in_parts_are_their_sums(constraint, step_size, corrective, n_classes):
    rng = np.random.default_rng(0)
    X = rng.integers(-8, 9, (60, 12)) / 4.0 * (rng.uniform(size=(60, 12)) < 0.4)  # with exact sums
    whole, parts = in_parts(X)
    y = rng.integers(0, n_classes, 60)
    model = HFWLogisticRegression(constraint, 2.0, step_size=step_size, corrective=corrective, max_iter=20)
    expected = {name: value for name, value in vars(model.fit(whole, y)).items() if name.endswith("_")}
    before = parts.copy()
    model.fit(parts, y)
    for name, value in expected.items():
        if name != "trace_":
            np.testing.assert_array_equal(getattr(model, name), value, err_msg=name)
    np.testing.assert_array_equal(model.trace_["gap"], expected["trace_"]["gap"])
    # The caller's matrix is left as it was.
    assert parts.nnz == before.nnz
    np.testing.assert_array_equal(parts.data, before.data)
