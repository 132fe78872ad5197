"""What callers may rely on around a fit: warnings, interrupts, clocks, callbacks, scores."""

import pickle
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import cross_val_score

import skfw
from skfw import (
    HFWImputer,
    HFWLogisticRegression,
    HFWLogisticRegressionCV,
    HFWMatrixCompletion,
    HFWMatrixCompletionCV,
    hfw_logistic_path,
)
from skfw.engine import Constraint, Interrupted, L1Ball, NuclearBall

X, y = make_classification(200, 8, flip_y=0.2, random_state=0)
FEWER_FEATURES, MORE_CLASSES = X[:, :3], y + (X[:, 0] > 0)
ENTRIES = np.argwhere(np.random.default_rng(0).uniform(size=(15, 10)) < 0.6)
VALUES = np.random.default_rng(1).normal(size=len(ENTRIES))
BOTH = pytest.mark.parametrize(
    "estimator",
    [HFWLogisticRegression("l1", radius=2.0), HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3)],
    ids=["single", "cv"],
)


class OwnBall(Constraint):
    """An l1 ball made outside of the package, that counts and times its oracle's calls."""

    contains_zero, known_ball = True, L1Ball
    calls, seconds, fail_at, pause = 0, 0.0, None, 0.0

    def __init__(self, radius=2.0):
        self.radius = radius

    def lmo(self, direction, hint=None):
        began = time.perf_counter()
        OwnBall.calls += 1
        if OwnBall.calls == OwnBall.fail_at:
            raise KeyboardInterrupt
        time.sleep(OwnBall.pause)
        minimum = self.known_ball(self.radius).lmo(direction, hint)
        OwnBall.seconds += time.perf_counter() - began
        return minimum

    def diameter(self, shape):
        return 2.0 * self.radius


class OwnNuclearBall(OwnBall):
    """The same with matrices of low rank."""

    low_rank, known_ball = True, NuclearBall


# An estimator, a ball for it, its data, and other data with another number of features.
EACH = pytest.mark.parametrize(
    "estimator, ball, data, other",
    [
        (HFWLogisticRegression("l1", radius=2.0), OwnBall(), (X, y), (FEWER_FEATURES, MORE_CLASSES)),
        (
            HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3),
            OwnBall(),
            (X, y),
            (FEWER_FEATURES, MORE_CLASSES),
        ),
        (
            HFWMatrixCompletion(random_state=0),
            OwnNuclearBall(0.3),
            (ENTRIES, VALUES),
            (np.column_stack([ENTRIES, ENTRIES % 3])[:, :3], VALUES[::-1]),
        ),
        (
            HFWMatrixCompletionCV([0.1, 0.2], cv=2, random_state=0),
            OwnNuclearBall(),
            (ENTRIES, VALUES),
            (np.column_stack([ENTRIES, ENTRIES % 3])[:, :3], VALUES[::-1]),
        ),
    ],
    ids=["single", "cv", "completion", "completion cv"],
)


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


@EACH
def test_a_warning_that_is_an_error_leaves_the_new_fit_behind(estimator, ball, data, other):
    model = clone(estimator).fit(*data).set_params(max_iter=1, tol=1e-9)
    expected = clone(model)
    with pytest.warns(ConvergenceWarning):
        expected.fit(*other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            model.fit(*other)
    assert_same(fitted_attributes(model), fitted_attributes(expected))
    np.testing.assert_array_equal(model.predict(other[0]), expected.predict(other[0]))


@EACH
def test_an_interrupted_fit_leaves_a_whole_model_behind(estimator, ball, data, other):
    """Wherever it comes: the old model before the first iterate of the fit, then the best one so far."""
    model = clone(estimator).set_params(constraint=ball, tol=1e-3).fit(*data)
    before, predictions = dict(vars(model)), model.predict(data[0])
    OwnBall.calls = 0
    converged = clone(model).fit(*other)
    n_calls, gaps = OwnBall.calls, []
    for call in range(1, n_calls + 1):
        vars(model).clear()
        vars(model).update(before)
        OwnBall.calls, OwnBall.fail_at = 0, call
        with pytest.raises(KeyboardInterrupt):
            model.fit(*other)
        if model.objective_ == before["objective_"]:
            assert not gaps  # once there is an iterate, there is a model
            assert vars(model).keys() == before.keys()
            assert all(vars(model)[name] is value for name, value in before.items())
            np.testing.assert_array_equal(model.predict(data[0]), predictions)
            continue
        assert vars(model).keys() == vars(converged).keys()
        assert model.n_features_in_ == other[0].shape[1]
        assert model.lower_bound_ <= converged.objective_ <= model.objective_ + converged.gap_
        assert model.gap_ == pytest.approx(model.objective_ - model.lower_bound_, rel=1e-9)
        assert model.gap_ >= 0.0
        assert len(model.trace_["gap"]) == model.n_iter_ + 1
        assert model.trace_["gap"][-1] == model.gap_
        assert model.trace_["objective"].min() == pytest.approx(model.objective_, rel=1e-12)
        assert model.predict(other[0]).shape == other[1].shape
        gaps.append(model.gap_)
    assert len(gaps) >= 2
    assert gaps[-1] < gaps[0]


def test_an_interrupt_is_the_same_in_another_process():
    OwnBall.fail_at = 4
    with pytest.raises(Interrupted, match="interrupted after 2 steps, with a certified gap of") as caught:
        HFWLogisticRegression(OwnBall(), tol=1e-9).fit(X, y)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert str(copied) == str(caught.value)
    assert copied.result.gap == caught.value.result.gap


def test_the_result_of_a_sample_is_not_that_of_the_data():
    model = HFWLogisticRegression(OwnBall())
    OwnBall.fail_at = 2
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(MANY_X, MANY_Y)
    assert not isinstance(caught.value, Interrupted)
    assert not hasattr(model, "coef_")


def test_an_interrupt_comes_before_warnings():
    alone = np.column_stack([np.arange(300), np.arange(300)])
    model = HFWMatrixCompletion(constraint=OwnNuclearBall(), tol=1e-9)
    OwnBall.fail_at = 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyboardInterrupt):
            model.fit(alone, np.arange(300.0) ** 2)
    assert model.gap_ > 0.0


def test_a_fit_interrupted_before_its_first_iterate_is_no_fit():
    model = HFWLogisticRegression(OwnBall())
    OwnBall.fail_at = 1
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_sample_takes_no_time_that_is_not_there():
    OwnBall.pause = 0.02
    with pytest.warns(ConvergenceWarning, match="max_time"):
        HFWLogisticRegression(OwnBall(), tol=1e-9, max_time=1e-9).fit(MANY_X, MANY_Y)
    assert OwnBall.calls == 1
    OwnBall.calls = 0
    with pytest.warns(ConvergenceWarning, match="max_time"):
        HFWLogisticRegression(OwnBall(), tol=1e-9, max_time=0.05).fit(MANY_X, MANY_Y)
    assert 1 < OwnBall.calls <= 5  # in the samples of a sample, and then once in each


@EACH
def test_a_fit_ends_with_its_time(estimator, ball, data, other):
    OwnBall.pause = 0.02
    model = clone(estimator).set_params(constraint=ball, tol=1e-9, max_time=0.01)
    with pytest.warns(
        ConvergenceWarning, match=r"(?s)\(max_time=0.01\) with a certified gap.* raise max_time"
    ):
        model.fit(*data)
    assert model.n_iter_ == 0  # the start has a certificate already
    assert 0.0 < model.gap_ < np.inf
    assert model.predict(data[0]).shape == data[1].shape


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
    model = HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3, scoring=scoring).fit(X, y)
    expected = get_scorer(scoring or "accuracy")(model, X, y, **weights)
    assert model.score(X, y, **weights) == expected


def test_score_takes_a_callable():
    model = HFWLogisticRegressionCV("l1", radii=[1.0], cv=3, scoring=lambda model, X, y: float(len(y)))
    assert model.fit(X, y).score(X[:7], y[:7]) == 7.0


@pytest.mark.parametrize("constraint", ["l1", "l2", "simplex"])
def test_one_automatic_radius_is_in_the_middle(constraint):
    grids = []
    for number in (1, 2, 3):
        path = hfw_logistic_path(X, y, number, constraint=constraint, tol=0.1)[0]
        model = HFWLogisticRegressionCV(constraint, number, cv=2, tol=0.1, scoring=lambda *_: 1.0).fit(X, y)
        np.testing.assert_array_equal(model.radii_, path)  # of equal scores none is at an edge
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
    model = HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3, tol=1e-8)
    model.set_callbacks(recorder := Recorder())
    model.fit(X, y)
    rows = model.n_iter_ + 1
    assert rows > 2
    assert recorder.tasks.count("iteration") >= rows
    np.testing.assert_allclose(recorder.objectives[-rows:], model.trace_["objective"], rtol=1e-9)
    assert recorder.tasks[-1] != "iteration"  # the fit itself ends last


SHORT = {"max_iter": 1, "tol": 1e-9}
HOLES = np.where(np.random.default_rng(0).uniform(size=X.shape) < 0.3, np.nan, X)
# What is called, and what it says it is.
CALLS = {
    "single": (lambda: HFWLogisticRegression(**SHORT).fit(X, y), "HFWLogisticRegression"),
    "path": (lambda: hfw_logistic_path(X, y, [1.0, 2.0], **SHORT), "hfw_logistic_path"),
    "cv": (
        lambda: HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3, **SHORT).fit(X, y),
        "HFWLogisticRegressionCV",
    ),
    "cv in parallel": (
        lambda: HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3, n_jobs=2, **SHORT).fit(X, y),
        "HFWLogisticRegressionCV",
    ),
    "scikit-learn's cv": (
        lambda: cross_val_score(HFWLogisticRegression(**SHORT), X, y, cv=3),
        "HFWLogisticRegression",
    ),
    "completion": (lambda: HFWMatrixCompletion(**SHORT).fit(ENTRIES, VALUES), "HFWMatrixCompletion"),
    "completion cv": (
        lambda: HFWMatrixCompletionCV([1.0, 2.0], cv=2, **SHORT).fit(ENTRIES, VALUES),
        "HFWMatrixCompletionCV",
    ),
    "completion cv in parallel": (
        lambda: HFWMatrixCompletionCV([1.0, 2.0], cv=2, n_jobs=2, **SHORT).fit(ENTRIES, VALUES),
        "HFWMatrixCompletionCV",
    ),
    "imputer": (lambda: HFWImputer(**SHORT).fit(HOLES), "HFWImputer"),
}


@pytest.mark.parametrize("which", CALLS)
def test_a_convergence_warning_names_what_was_called_and_points_at_the_caller(which):
    call, name = CALLS[which]
    with pytest.warns(ConvergenceWarning) as record:
        call()
    assert {warning.filename for warning in record} == {__file__}
    assert {str(warning.message).split()[0] for warning in record} == {name}
    advice = {str(warning.message).rpartition("For a smaller one ")[2] for warning in record}
    scaling = "" if which.startswith(("completion", "imputer")) else "scale the features, or "
    assert advice == {f"raise max_iter, or {scaling}lower the radius."}


def test_a_file_that_is_named_like_the_package_is_the_callers():
    own = f"{Path(skfw.__file__).parent}_demo.py"
    names = {"model": HFWLogisticRegression(**SHORT), "X": X, "y": y}
    with pytest.warns(ConvergenceWarning) as record:
        exec(compile("model.fit(X, y)", own, "exec"), names)
    assert [warning.filename for warning in record] == [own]


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
