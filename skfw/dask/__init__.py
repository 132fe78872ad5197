"""The linear estimators on Dask collections: rows in blocks, on one machine or on many."""

from ._estimators import DaskHFWLogisticRegression, DaskHFWRegressor

__all__ = ["DaskHFWLogisticRegression", "DaskHFWRegressor"]
