"""Norm-constrained learning for scikit-learn, with a certified optimality gap."""

from ._logistic import HFWLogisticRegression
from ._matrix_completion import HFWMatrixCompletion

__all__ = ["HFWLogisticRegression", "HFWMatrixCompletion"]
