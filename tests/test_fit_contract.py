"""What callers may rely on around a fit: warnings, interrupts, clocks, callbacks, scores."""

import time
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer

from skfw import HFWLogisticRegression, HFWLogisticRegressionCV, hfw_logistic_path
from skfw.engine import Constraint, L1Ball

X, y = make_classification(200, 8, flip_y=0.2, random_state=0)
BOTH = pytest.mark.parametrize(
    "estimator",
    [HFWLogisticRegression(radius=2.0), HFWLogisticRegressionCV(radii=[1.0, 2.0], cv=3)],
    ids=["single", "cv"],
)


class OwnBall(Constraint):
    """An l1 ball made outside of the package, that counts and times its oracle's calls."""

    contains_zero = True
    calls, seconds, fail_at, pause = 0, 0.0, None, 0.0

    def __init__(self, radius=2.0):
        self.radius = radius

    def lmo(self, direction, hint=None):
        began = time.perf_counter()
        OwnBall.calls += 1
        if OwnBall.calls == OwnBall.fail_at:
            raise KeyboardInterrupt
        time.sleep(OwnBall.pause)
        minimum = L1Ball(self.radius).lmo(direction)
        OwnBall.seconds += time.perf_counter() - began
        return minimum

    def diameter(self, shape):
        return 2.0 * self.radius


@pytest.fixture(autouse=True)
def fresh_counts():
    """The counts belong to the class, because cross-validation works with copies of the ball."""
    OwnBall.calls, OwnBall.seconds, OwnBall.fail_at, OwnBall.pause = 0, 0.0, None, 0.0


def fitted_attributes(estimator):
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name == "trace_":
            for column in value.keys() - {"seconds"}:
                np.testing.assert_array_equal(found[name][column], value[column], err_msg=column)
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@BOTH
def test_a_warning_that_is_an_error_leaves_the_new_fit_behind(estimator):
    other, labels = make_classification(150, 5, n_classes=3, n_informative=5, n_redundant=0, random_state=1)
    model = clone(estimator).fit(X, y).set_params(max_iter=1, tol=1e-9)
    expected = clone(model)
    with pytest.warns(ConvergenceWarning):
        expected.fit(other, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            model.fit(other, labels)
    assert_same(fitted_attributes(model), fitted_attributes(expected))
    assert model.predict(other).shape == labels.shape


@BOTH
@pytest.mark.parametrize("fail_at", [1, 3, 5, -1])
def test_an_interrupted_fit_leaves_the_old_one_behind(estimator, fail_at):
    model = clone(estimator).set_params(constraint=OwnBall(), tol=1e-6).fit(X, y)
    OwnBall.calls = 0
    clone(model).fit(X[:, :3], y)
    last, OwnBall.calls = OwnBall.calls, 0
    before = dict(vars(model))
    OwnBall.fail_at = fail_at if fail_at > 0 else last
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :3], y)
    after = dict(vars(model))
    assert after.keys() == before.keys()
    assert all(after[name] is value for name, value in before.items())
    OwnBall.fail_at = None
    assert model.predict(X).shape == y.shape


@BOTH
@pytest.mark.parametrize("momentum", ["adaptive", "none"])
def test_restart_needs_a_momentum_that_it_can_restart(estimator, momentum):
    with pytest.raises(ValueError, match=rf"(?s)(restart.*momentum|momentum.*restart).*{momentum!r}"):
        clone(estimator).set_params(momentum=momentum, restart=True).fit(X, y)
    clone(estimator).set_params(momentum="weighted", restart=True, tol=1e-2).fit(X, y)


MANY_X, MANY_Y = make_classification(20_000, 5, flip_y=0.2, random_state=0)


def test_seconds_count_the_start_from_a_sample():
    OwnBall.pause = 0.01
    model = HFWLogisticRegression(OwnBall()).fit(MANY_X, MANY_Y)
    assert model.trace_["seconds"][-1] >= 0.9 * OwnBall.seconds > 0.0
    assert np.all(np.diff(model.trace_["seconds"]) >= 0.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_max_iter_limits_the_start_from_a_sample_too():
    model = HFWLogisticRegression(OwnBall(), max_iter=1, tol=1e-9)
    model.fit(MANY_X[:400], MANY_Y[:400])
    few, OwnBall.calls = OwnBall.calls, 0
    model.fit(MANY_X, MANY_Y)
    # 20,000 rows have a sample of 2,500, and no smaller one inside that.
    assert OwnBall.calls <= 2 * few
    assert model.n_iter_ == 1


@pytest.mark.parametrize("scoring", [None, "neg_log_loss", "balanced_accuracy", "roc_auc"])
@pytest.mark.parametrize("weighted", [False, True])
def test_score_is_what_was_asked_for(scoring, weighted):
    weights = {"sample_weight": np.where(y == 1, 3.0, 1.0)} if weighted else {}
    model = HFWLogisticRegressionCV(radii=[1.0, 2.0], cv=3, scoring=scoring).fit(X, y)
    expected = get_scorer(scoring or "accuracy")(model, X, y, **weights)
    assert model.score(X, y, **weights) == expected


def test_score_takes_a_callable():
    model = HFWLogisticRegressionCV(radii=[1.0], cv=3, scoring=lambda model, X, y: float(len(y)))
    assert model.fit(X, y).score(X[:7], y[:7]) == 7.0


@pytest.mark.parametrize("constraint", ["l1", "l2", "simplex"])
def test_one_automatic_radius_is_in_the_middle(constraint):
    grids = []
    for number in (1, 2, 3):
        path = hfw_logistic_path(X, y, number, constraint=constraint, tol=0.1)[0]
        model = HFWLogisticRegressionCV(constraint, number, cv=2, tol=0.1).fit(X, y)
        np.testing.assert_array_equal(model.radii_, path)
        grids.append(path)
    np.testing.assert_allclose(grids[0], [np.sqrt(grids[1][0] * grids[1][1])], rtol=1e-9)
    np.testing.assert_allclose(grids[2], [grids[1][0], grids[0][0], grids[1][1]], rtol=1e-9)


class Recorder:
    """A callback that keeps the names of the tasks that it is told of, and the models."""

    def __init__(self):
        self.tasks, self.objectives = [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
        self.tasks.append(context.task_name)
        if context.task_name == "iteration":
            errors = -fitted_estimator.predict_log_proba(X)[np.arange(len(y)), y]
            self.objectives.append(errors.mean())


def test_callbacks_reach_the_final_fit_of_cross_validation():
    pytest.importorskip("sklearn.callback")
    model = HFWLogisticRegressionCV(radii=[1.0, 2.0], cv=3, tol=1e-8)
    model.set_callbacks(recorder := Recorder())
    model.fit(X, y)
    rows = model.n_iter_ + 1
    assert rows > 2
    assert recorder.tasks.count("iteration") >= rows
    np.testing.assert_allclose(recorder.objectives[-rows:], model.trace_["objective"], rtol=1e-9)
    assert recorder.tasks[-1] != "iteration"  # the fit itself ends last


FITS = {
    "single": lambda: HFWLogisticRegression(max_iter=1, tol=1e-9).fit(X, y),
    "path": lambda: hfw_logistic_path(X, y, [1.0, 2.0], max_iter=1, tol=1e-9),
    "cv": lambda: HFWLogisticRegressionCV(radii=[1.0, 2.0], max_iter=1, tol=1e-9).fit(X, y),
    "cv in parallel": lambda: HFWLogisticRegressionCV(radii=[1.0, 2.0], max_iter=1, tol=1e-9, n_jobs=2).fit(
        X, y
    ),
}


@pytest.mark.parametrize("which", FITS)
def test_a_convergence_warning_points_at_the_caller(which):
    with pytest.warns(ConvergenceWarning) as record:
        FITS[which]()
    assert {warning.filename for warning in record} == {__file__}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("constraint", ["simplex", "l1", "l2", "linf"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_gap_is_never_negative(constraint, intercept):
    """Separable data, with radii at which the loss is a denormal number or zero."""
    data, labels = np.array([[-1.0], [1.0]] * 3), np.array([0, 1] * 3)
    smallest = np.inf
    for radius in (*np.arange(700.0, 760.0, 5.0), 1e3, 1e6):
        model = HFWLogisticRegression(constraint, radius, fit_intercept=intercept, warm_start=True)
        model.set_params(tol=0.0, max_iter=3).fit(data, labels)
        model.coef_ = np.full((1, 1), radius)  # the solution, which the steps alone may not reach
        model.fit(data, labels)
        smallest = min(smallest, model.objective_)
        assert model.gap_ == model.objective_ - model.lower_bound_
        assert model.gap_ >= 0.0
        assert model.trace_["gap"].min() >= 0.0
        assert model.lower_bound_ >= 0.0
    assert smallest == 0.0
