"""scikit-learn's own checks, with no expected failures."""

import os
import subprocess
import sys

import pytest
from sklearn.utils import estimator_checks

from skfw import (
    HFWImputer,
    HFWLogisticRegression,
    HFWLogisticRegressionCV,
    HFWMatrixCompletion,
    HFWMatrixCompletionCV,
    HFWRegressor,
    HFWRegressorCV,
)
from skfw.engine import Box

ESTIMATORS = [
    HFWLogisticRegression(),
    HFWLogisticRegression("l2", momentum="uniform", step_size="smooth", corrective=False, max_iter=200),
    HFWLogisticRegression(
        "linf", 1.0, momentum="uniform", step_size="directional", restart=True, corrective=False, max_iter=200
    ),
    HFWLogisticRegression(
        "n_support", momentum=0.5, step_size="parameter_free", corrective=False, max_iter=200
    ),
    HFWLogisticRegression("l1", momentum="weighted", step_size="directional", warm_start=True, max_iter=200),
    HFWLogisticRegression("l2"),
    HFWLogisticRegression("n_support", tol=1e-8),
    HFWLogisticRegressionCV("l1", radii=3, cv=3, tol=1e-8),
    HFWRegressor(),
    HFWRegressor("l2", loss="huber", warm_start=True),
    HFWRegressor("l2", loss="poisson"),
    HFWRegressor("n_support", momentum="weighted", step_size="smooth", corrective=False, max_iter=200),
    HFWLogisticRegression(Box(-0.5, 0.5), tol=1e-12),
    HFWRegressorCV(radii=3, cv=3),
    HFWMatrixCompletion(),
    HFWMatrixCompletion(
        constraint="nuclear",
        biases="rows",
        bias_penalty=None,
        momentum="none",
        step_size="smooth",
        corrective=False,
        clip=(-10, 10),
        max_iter=100,
    ),
    HFWMatrixCompletion(implicit="both"),
    HFWMatrixCompletion(implicit="none", max_rank=3),
    HFWMatrixCompletionCV(radii=3, cv=3),
    HFWImputer(),
    HFWImputer(1.0, missing_values=-1, add_indicator=True, keep_empty_features=True),
]
ARRAY_API = "SCIPY_ARRAY_API"


# The checks set max_iter to small numbers, and many use data without any structure. As ids they use random
# numbers, none of which occurs twice; the warnings are right about them.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:HFWMatrixCompletion(CV)? found one entry only:UserWarning")
@pytest.mark.filterwarnings("ignore:HFWMatrixCompletion(CV)?.predict knows none of:UserWarning")
@pytest.mark.filterwarnings("ignore:HFWMatrixCompletionCV chose the largest radius:UserWarning")
@estimator_checks.parametrize_with_checks(ESTIMATORS)
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.mark.skipif(ARRAY_API in os.environ, reason="this is the run that the test below starts")
def test_checks_that_want_another_process():
    """The checks with other array types skip themselves unless SciPy is told before it is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-k", "array_api", __file__]
    run = subprocess.run(command, env={**os.environ, ARRAY_API: "1"}, capture_output=True, text=True)
    if run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        pytest.skip("an older scikit-learn has no such check")
    assert run.returncode == 0, run.stdout
    assert f"{len(ESTIMATORS)} passed" in run.stdout
