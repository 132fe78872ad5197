"""Norm-constrained learning for scikit-learn, with a certified optimality gap."""

from ._logistic import HFWLogisticRegression
from ._logistic_cv import HFWLogisticRegressionCV, hfw_logistic_path
from ._matrix_completion import HFWMatrixCompletion

__all__ = ["HFWLogisticRegression", "HFWLogisticRegressionCV", "hfw_logistic_path", "HFWMatrixCompletion"]
