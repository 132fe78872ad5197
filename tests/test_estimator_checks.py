"""scikit-learn's own checks, with no expected failures."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skfw import HFWLogisticRegression, HFWMatrixCompletion

ESTIMATORS = [
    HFWLogisticRegression(),
    HFWLogisticRegression("l2", momentum="uniform", step_size="smooth", max_iter=200),
    HFWLogisticRegression("linf", 1.0, momentum="none", step_size="directional", restart=True, max_iter=200),
    HFWLogisticRegression("n_support", momentum=0.5, step_size="parameter_free", max_iter=200),
    HFWLogisticRegression("l1", momentum="weighted", step_size="directional", warm_start=True, max_iter=200),
    HFWMatrixCompletion(),
    HFWMatrixCompletion(biases="rows", momentum="none", step_size="smooth", clip=(-10, 10), max_iter=100),
]


# The checks set max_iter to small numbers, and many use data without any structure.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_sklearn_check(estimator, check):
    check(estimator)
