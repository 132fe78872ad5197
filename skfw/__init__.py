"""Norm-constrained learning for scikit-learn, with a certified optimality gap."""

from ._displays import CompletionDisplay, ConvergenceDisplay, RadiusPathDisplay
from ._entries import entries_to_matrix, matrix_to_entries
from ._imputer import HFWImputer
from ._logistic import HFWLogisticRegression
from ._logistic_cv import HFWLogisticRegressionCV, hfw_logistic_path
from ._matrix_completion import HFWMatrixCompletion
from ._matrix_completion_cv import HFWMatrixCompletionCV
from ._regression import HFWRegressor
from ._regression_cv import HFWRegressorCV, hfw_regression_path

__version__ = "0.2.0.dev0"

__all__ = [
    "HFWLogisticRegression",
    "HFWLogisticRegressionCV",
    "hfw_logistic_path",
    "HFWRegressor",
    "HFWRegressorCV",
    "hfw_regression_path",
    "HFWMatrixCompletion",
    "HFWMatrixCompletionCV",
    "HFWImputer",
    "matrix_to_entries",
    "entries_to_matrix",
    "ConvergenceDisplay",
    "RadiusPathDisplay",
    "CompletionDisplay",
]
