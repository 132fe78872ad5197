"""Interrupts as Ctrl-C sends them, at random moments of a fit in a process of its own.

``python tests/test_interrupts.py 10`` interrupts ten fits of each estimator, and says what they left behind.
"""

import os
import signal
import subprocess
import sys
import time
import warnings
from threading import Timer

import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.utils.validation import check_is_fitted

from skfw import (
    HFWImputer,
    HFWLogisticRegression,
    HFWLogisticRegressionCV,
    HFWMatrixCompletion,
    HFWMatrixCompletionCV,
)


def check_classifier(model, X, y, optimum):
    assert np.isclose(log_loss(y, model.predict_proba(X)), model.objective_, rtol=1e-9)
    check_certificate(model, optimum)


def check_completion(model, X, y, optimum):
    assert model.predict(X).shape == y.shape
    check_certificate(model, optimum)


def check_imputer(model, X, y, optimum):
    assert np.isfinite(model.transform(X)).all()
    if model.radius_ == optimum.radius_:
        check_certificate(model.completion_, optimum.completion_)


def check_certificate(model, optimum):
    assert np.isclose(model.gap_, model.objective_ - model.lower_bound_, rtol=1e-6, atol=1e-12)
    assert model.gap_ >= 0.0
    assert model.lower_bound_ <= optimum.objective_ * (1.0 + 1e-12)
    assert model.objective_ >= optimum.lower_bound_ * (1.0 - 1e-12)
    assert len(model.trace_["gap"]) == model.n_iter_ + 1
    assert model.trace_["gap"][-1] == model.gap_


def cases():
    """Yield an estimator, its data, and what checks a model of it."""
    X, y = make_classification(3_000, 40, n_informative=20, flip_y=0.2, random_state=0)
    yield HFWLogisticRegression("linf", 0.05, tol=1e-8), (X, y), check_classifier
    yield HFWLogisticRegression("l2", 1.0, tol=1e-6, corrective=False), (X, y), check_classifier
    yield (
        HFWLogisticRegressionCV("l1", [0.5, 1.0], cv=2, tol=1e-7, corrective=False),
        (X, y),
        check_classifier,
    )
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(120, 5)) @ rng.normal(size=(5, 110)) + rng.normal(size=(120, 110))
    entries = np.argwhere(rng.uniform(size=matrix.shape) < 0.4)
    values = matrix[tuple(entries.T)]
    yield HFWMatrixCompletion(1.5, tol=1e-6, random_state=0), (entries, values), check_completion
    search = HFWMatrixCompletionCV([1.0, 1.5], implicit="columns", cv=2, tol=1e-6, random_state=0)
    yield search, (entries, values), check_completion
    holes = np.where(rng.uniform(size=matrix.shape) < 0.3, np.nan, matrix)
    yield HFWImputer(tol=1e-5, random_state=0), (holes, None), check_imputer


def interrupt(n_moments, seed=0):
    """Interrupt fits of each estimator; return how many left a model, and how many none."""
    rng, n_models, n_none = np.random.default_rng(seed), 0, 0
    for estimator, data, check in cases():
        began = time.perf_counter()
        optimum = clone(estimator).fit(*data)
        seconds = time.perf_counter() - began
        for delay in rng.uniform(0.0, seconds, n_moments):
            model = clone(estimator)
            timer = Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                model.fit(*data)
                timer.join()
                time.sleep(1.0)  # the signal is on its way
                raise AssertionError(f"{type(model).__name__} swallowed an interrupt.")
            except KeyboardInterrupt:
                pass
            try:
                check_is_fitted(model)
            except NotFittedError:
                n_none += 1
                continue
            check(model, *data, optimum)
            n_models += 1
    return n_models, n_none


def test_an_interrupt_at_any_moment_leaves_a_whole_model_or_none():
    found = subprocess.run([sys.executable, __file__, "2"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    n_models, n_none = map(int, found.stdout.split())
    assert n_models + n_none == 2 * len(list(cases()))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    warnings.simplefilter("ignore")
    print(*interrupt(int(sys.argv[1])))
