"""From factors of ids and of features to the factors of rows, or of columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy import sparse

from .._protocols import Array, FactorMap
from .._sums import TINY
from ._kernels import times


@final
@dataclass(frozen=True)
class FeatureMap(FactorMap):
    """The matrix ``[I, features]``: what a row is itself, and what it has by its features.

    Parameters
    ----------
    features : CSR matrix of shape (n_rows, n_features)
        Without any feature the map is the identity.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from skfw.engine import FeatureMap
    >>> rows = FeatureMap(sparse.csr_matrix([[1.0], [3.0]]))
    >>> rows.apply(np.array([[10.0], [20.0], [1.0]])).tolist()
    [[11.0], [23.0]]
    """

    features: Any

    @classmethod
    def identity(cls, n_rows: int) -> FeatureMap:
        """Return the map of rows that have no features."""
        return cls(sparse.csr_matrix((n_rows, 0)))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of ids and features."""
        n_rows, n_features = self.features.shape
        return n_rows, n_rows + n_features

    @property
    def is_identity(self) -> bool:
        """Whether there are no features."""
        return not self.features.shape[1]

    @cached_property
    def _both(self) -> tuple[Any, Any]:
        """The features and their transpose, whose rows are read one after another too."""
        return self.features, self.features.T.tocsr()

    @cached_property
    def _both_single(self) -> tuple[Any, Any]:
        features, transposed = self._both
        return features.astype(np.float32), transposed.astype(np.float32)

    @cached_property
    def _sizes(self) -> Any:
        """The absolute values of the features, in double precision whatever theirs is."""
        return abs(self.features.astype(np.float64))

    def _both_for(self, factors: Array) -> tuple[Any, Any]:
        return self._both_single if factors.dtype == np.float32 else self._both

    def apply(self, factors: Array) -> Array:
        """Return the factors of the rows, from those of ids and features."""
        if self.is_identity:
            return factors
        own, others = np.split(factors, self.shape[:1])
        result: Array = times(self._both_for(factors)[0], others)
        result += own
        return result

    def adjoint(self, rows: Array) -> Array:
        """Return the transpose times numbers of the rows."""
        if self.is_identity:
            return rows
        return np.concatenate([rows, times(self._both_for(rows)[1], rows)])

    @cached_property
    def squares(self) -> FeatureMap:
        """The map with all its entries squared."""
        return FeatureMap(self._sizes.power(2))

    def largest_row(self, scales: Array) -> float:
        """Return the largest Euclidean norm of a row, with columns multiplied by positive scales."""
        unit = max(float(scales.max()), TINY)  # so that squares do not overflow
        return unit * float(np.sqrt(self.squares.apply((scales / unit) ** 2).max()))

    @cached_property
    def largest_feature(self) -> float:
        """The largest absolute value of a feature."""
        return float(self._sizes.data.max(initial=0.0))

    @cached_property
    def squared_norm(self) -> float:
        """An upper bound of the squared spectral norm: for features, the largest row sum times column sum."""
        row_sums = times(self._sizes, np.ones(self._sizes.shape[1]))
        column_sums = times(self._sizes.T, np.ones(self._sizes.shape[0]))
        return 1.0 + float(row_sums.max(initial=0.0)) * float(column_sums.max(initial=0.0))

    @cached_property
    def n_terms(self) -> int:
        """The most terms of a sum in `apply` and in `adjoint`."""
        in_rows = np.diff(self.features.indptr).max(initial=0)
        in_columns = np.bincount(self.features.indices).max(initial=0)
        return int(max(in_rows, in_columns)) + 1
