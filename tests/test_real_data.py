"""The authors' numbers and the paper's claims, on the data they used. Skipped where it is not there."""

from itertools import product

import numpy as np
import pytest

from skfw import HFWLogisticRegression, HFWMatrixCompletion
from skfw.engine import design_matrix

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# f(x_k) at k = 1, 10, 100, 1000 on mushrooms, radius 70, no intercept, from the authors' own program.
AUTHORS_NUMBERS = """
l1 none     parameter_free 1.4261084  2.5662009  0.13161112    0.0024280551
l1 none     smooth         0.68542765 0.62866437 0.40554886    0.16499365
l1 none     directional    0.4822681  0.18905643 0.055112186   0.015110401
l1 weighted parameter_free 1.4261084  0.24014432 0.012828599   0.0017335159
l1 weighted smooth         0.68542765 0.62866437 0.40724703    0.16564709
l1 weighted directional    0.4822681  0.19485412 0.061125217   0.01592317
l1 uniform  parameter_free 1.4261084  0.5673965  0.015988468   0.0026343833
l1 uniform  smooth         0.68542765 0.62866437 0.41063894    0.16867806
l1 uniform  directional    0.4822681  0.19526054 0.10360825    0.018548113
l2 none     parameter_free 6.6815315  4.3008492  0.077298112   0.00081502793
l2 none     smooth         0.63506958 0.38027227 0.13751316    0.041697215
l2 none     directional    0.32310838 0.13041627 0.010226838   0.00059659822
l2 weighted parameter_free 6.6815315  0.99870632 7.0645807e-05 5.7841505e-07
l2 weighted smooth         0.63506958 0.38144834 0.14400409    0.045729191
l2 weighted directional    0.32310838 0.10672495 0.0089953073  0.00055474932
l2 uniform  parameter_free 6.6815315  0.38359827 0.0013645327  9.4721916e-06
l2 uniform  smooth         0.63506958 0.38268838 0.15694842    0.060051119
l2 uniform  directional    0.32310838 0.14310231 0.032943614   0.0010688944
""".strip().splitlines()


@pytest.mark.parametrize("row", AUTHORS_NUMBERS, ids=lambda row: "-".join(row.split()[:3]))
def test_authors_numbers(mushrooms, row):
    X, y = mushrooms
    constraint, momentum, step_size, *expected = row.split()
    model = HFWLogisticRegression(
        constraint,
        70.0,
        momentum=momentum,
        step_size=step_size,
        corrective=False,
        fit_intercept=False,
        lipschitz=(X.data**2).sum() / (4 * len(y)),
        tol=0.0,
        max_iter=1000,
    ).fit(X, y)
    reached = model.trace_["objective"][[1, 10, 100, 1000]]
    np.testing.assert_allclose(reached, np.array(expected, dtype=float), rtol=1e-6)


@pytest.mark.parametrize("constraint", ["l1", "l2", "n_support"])
@pytest.mark.parametrize("step_size", ["parameter_free", "smooth", "directional", "line_search"])
@pytest.mark.parametrize(
    "momentum, extra",
    [
        *product(["weighted", "uniform"], ["none", "restart", "corrector"]),
        *product(["adaptive"], ["none", "corrector"]),
    ],
)
def test_guarantees(mushrooms, constraint, step_size, momentum, extra):
    X, y = mushrooms
    radius = 20.0
    model = HFWLogisticRegression(
        constraint,
        radius,
        momentum=momentum,
        step_size=step_size,
        restart=extra == "restart",
        corrective=extra == "corrector",
        fit_intercept=False,
        max_iter=15 if extra == "corrector" else 100,
        tol=0.0,
    ).fit(X, y)
    objective, bound = model.trace_["objective"], model.trace_["lower_bound"]
    k = np.arange(1, len(objective))
    gap = (objective - bound)[1:]
    scale = design_matrix(X).squared_norm(np.full(len(y), 1 / len(y))) / 4 * (2 * radius) ** 2
    if momentum in ("weighted", "adaptive"):
        assert np.all(gap <= 2 * scale / (k + 1))
    elif extra != "restart":
        assert np.all(gap <= scale * np.cumsum(1 / k) / (2 * k))
    if step_size != "parameter_free":
        assert np.diff(objective).max() <= 1e-14  # rounding of the mean
    assert np.all(np.minimum.accumulate(objective)[-1] >= bound)


@pytest.fixture(scope="session")
def ratings(real_data):
    table = np.loadtxt(real_data / "ml-100k" / "u.data", dtype=int)
    return table[:, :2], table[:, 2].astype(float)


def test_movielens(ratings):
    """Weighted momentum reaches a lower objective than none and uniform after 200 iterations."""
    models = {
        momentum: HFWMatrixCompletion(
            3.0,
            implicit="none",
            constraint="nuclear",
            bias_penalty=None,
            momentum=momentum,
            step_size="parameter_free",
            corrective=False,
            tol=0.0,
            max_iter=200,
            random_state=0,
        ).fit(*ratings)
        for momentum in ("weighted", "none", "uniform")
    }
    last = {momentum: model.trace_["objective"][-1] for momentum, model in models.items()}
    assert last["weighted"] < last["none"] < last["uniform"]
    for model in models.values():
        sizes = [np.size(value) for value in vars(model).values() if isinstance(value, np.ndarray)]
        assert max(sizes) <= (943 + 1682) * 201 < 943 * 1682
    optimum_at_most = min(model.objective_ for model in models.values())
    assert all(model.lower_bound_ <= optimum_at_most for model in models.values())


def test_movielens_defaults_beat_the_biases(ratings):
    entries, values = ratings
    held_out = np.random.default_rng(0).uniform(size=len(values)) < 0.2
    model = HFWMatrixCompletion(clip=(1, 5), random_state=0).fit(entries[~held_out], values[~held_out])
    error = np.sqrt(np.mean((model.predict(entries[held_out]) - values[held_out]) ** 2))
    assert model.converged_
    assert error < 0.915  # the biases alone are at about 0.945
