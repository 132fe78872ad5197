"""What a fit tells while it runs: the table of `verbose`, and scikit-learn's callbacks."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV

from skfw import (
    HFWImputer,
    HFWLogisticRegression,
    HFWLogisticRegressionCV,
    HFWMatrixCompletion,
    HFWMatrixCompletionCV,
)

RNG = np.random.default_rng(0)
ENTRIES = np.argwhere(np.random.default_rng(0).uniform(size=(30, 20)) < 0.6)
VALUES = 100.0 * np.random.default_rng(1).normal(size=len(ENTRIES))
CLASSIFIED = make_classification(200, 10, flip_y=0.2, random_state=0)
LOW_RANK = RNG.normal(size=(60, 2)) @ RNG.normal(size=(2, 8))
HOLES = RNG.uniform(size=LOW_RANK.shape) < 0.2
FITS = {
    "logistic": (HFWLogisticRegression("l1", radius=3), CLASSIFIED),
    "cv": (HFWLogisticRegressionCV("l1", radii=[1, 3], cv=3, tol=1e-6), CLASSIFIED),
    "completion": (HFWMatrixCompletion(tol=1e-6, random_state=0), (ENTRIES, VALUES)),
    "completion cv": (
        HFWMatrixCompletionCV([0.5, 1.0], cv=2, tol=1e-6, random_state=0),
        (ENTRIES, VALUES),
    ),
    "imputer": (HFWImputer(tol=1e-7, random_state=0), (np.where(HOLES, np.nan, LOW_RANK),)),
}
ONE_RUN = pytest.mark.parametrize("which", ["logistic", "completion"])


def certified(model):
    """Return the model that has the certificate."""
    return getattr(model, "completion_", model)


def answers(model, X):
    return model.transform(X) if hasattr(model, "transform") else model.predict(X)


@ONE_RUN
def test_verbose_prints_a_table(which, capsys):
    model, data = FITS[which]
    model.set_params(verbose=1).fit(*data)
    header, *rows, summary = capsys.readouterr().out.splitlines()
    assert header.split() == ["iteration", "objective", "gap", "atoms", "seconds"]
    table = np.array([row.split() for row in rows], dtype=float)
    np.testing.assert_array_equal(table[:, 0], np.arange(len(rows)))
    for column, name, precision in ((1, "objective", 1e-5), (2, "gap", 1e-2), (3, "atoms", 0)):
        np.testing.assert_allclose(table[:, column], model.trace_[name][: len(rows)], rtol=precision)
    assert np.all(np.diff(table[:, 4]) >= 0)
    assert summary == f"converged after {model.n_iter_} iterations, certified gap {model.gap_:.3g}"
    model.set_params(verbose=0).fit(*data)
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_long_run_prints_few_rows(capsys):
    HFWLogisticRegression("l1", max_iter=2_000, tol=0.0, corrective=False, verbose=1).fit(*CLASSIFIED)
    *_, last, summary = lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 10 + 9 + 9 + 2 + 1
    assert len({len(line) for line in lines[:-1]}) == 1
    assert last.split()[0] == "2000"
    assert summary.startswith("stopped by max_iter after 2000 iterations")


class Recorder:
    """A callback that keeps what it is told, and ends the fit after some iterations."""

    def __init__(self, stop_after=None):
        self.stop_after, self.models, self.events = stop_after, [], []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
        self.events.append(f"end {context.task_name}")
        self.models.append((fitted_estimator, X, y, metadata))
        return context.task_name == "iteration" and len(self.models) == self.stop_after


@pytest.mark.parametrize("which", FITS)
def test_callbacks_see_every_iterate(which):
    """Of a search for the radius, those of the final fit only."""
    pytest.importorskip("sklearn.callback")
    model, data = FITS[which]
    model.set_callbacks(recorder := Recorder())
    weights = None if which == "imputer" else np.random.default_rng(0).integers(0, 3, len(data[1]))
    model.fit(*data, **({} if weights is None else {"sample_weight": weights}))
    model.set_callbacks()
    assert model.n_iter_ > 1
    iterations = ["begin iteration", "end iteration"] * (model.n_iter_ + 1)
    assert recorder.events == ["setup", "begin fit", *iterations, "end fit", "teardown"]
    objectives = []
    for fitted, X, y, metadata in recorder.models[:-1]:
        assert metadata is None if weights is None else metadata["sample_weight"] is weights
        if which in ("logistic", "cv"):
            errors = -fitted.predict_log_proba(X)[np.arange(len(y)), y.astype(int)]
        elif which.startswith("completion"):
            errors = (fitted.predict(X) - y) ** 2
        else:
            assert np.isfinite(fitted.transform(X)).all()
            errors = fitted.completion_.objective_
        objectives.append(np.average(errors, weights=weights))
    # Of completion the objective has a penalty of the biases too.
    # Cross-validation starts close to the solution.
    assert objectives[-1] < (1.0 if which.endswith("cv") else 0.9) * objectives[0]
    if not which.startswith("completion"):
        np.testing.assert_allclose(objectives, certified(model).trace_["objective"], rtol=1e-9)
    final = recorder.models[-1][0]
    np.testing.assert_array_equal(answers(final, data[0]), answers(model, data[0]))


@pytest.mark.parametrize("which", FITS)
def test_a_callback_can_end_the_fit(which):
    pytest.importorskip("sklearn.callback")
    model, data = FITS[which]
    model.set_callbacks(Recorder(stop_after=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # whoever ends a fit need not be told
        model.fit(*data)
    model.set_callbacks()
    assert model.n_iter_ == 1
    assert not certified(model).converged_
    assert certified(model).gap_ > 0


class Copier(Recorder):
    """A callback that pickles the models it sees, and says whether the copies answer as they do."""

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        copy = pickle.loads(pickle.dumps(fitted_estimator))
        self.models.append(np.array_equal(answers(copy, X), answers(fitted_estimator, X)))


@pytest.mark.parametrize("which", FITS)
def test_models_are_pickled_during_and_after_a_fit(which):
    pytest.importorskip("sklearn.callback")
    model, data = FITS[which]
    model.set_callbacks(copier := Copier()).fit(*data)
    assert copier.models == [True] * (model.n_iter_ + 2)
    copy = pickle.loads(pickle.dumps(model))
    model.set_callbacks()
    np.testing.assert_array_equal(answers(copy, data[0]), answers(model, data[0]))


@pytest.mark.parametrize("which", FITS)
def test_iterates_of_a_refit_have_the_new_features(which):
    pytest.importorskip("sklearn.callback")
    model, (X, *y) = FITS[which]
    other = np.column_stack([X, X[:, 1:2]])
    clone(model).fit(X, *y).set_callbacks(recorder := Recorder()).fit(other, *y)
    for fitted, *_ in recorder.models:
        assert fitted.n_features_in_ == other.shape[1]
        assert np.isfinite(answers(fitted, other)).all()


@ONE_RUN
def test_scikit_learns_own_callbacks(which):
    callback = pytest.importorskip("sklearn.callback")
    model, data = FITS[which]
    scoring = "neg_log_loss" if which == "logistic" else "neg_root_mean_squared_error"
    monitor = callback.ScoringMonitor(scoring=scoring)
    model.set_callbacks(monitor).fit(*data)
    scores = [row[scoring] for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(scores) == model.n_iter_ + 1
    assert scores[-1] > scores[0]
    model.set_callbacks()


@ONE_RUN
def test_progress_bar_of_a_grid_search(which, capsys, monkeypatch):
    callback = pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")
    model, data = FITS[which]
    search = GridSearchCV(model, {"radius": [0.5, 1.0]}, cv=2)
    search.set_callbacks(callback.ProgressBar()).fit(*data)
    out = capsys.readouterr().out
    assert type(model).__name__ in out
    assert "100%" in out
