"""The observed entries of a matrix whose rows and columns have features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from .. import _costs
from .._protocols import Array, Direction, PlainEntries
from .._sums import TINY, sum_error
from ._factored_models import FactoredModels
from ._feature_map import FeatureMap

# Products of larger features of rows and of columns with residuals, or with their squares, might overflow.
_LARGEST_FEATURE = 1e70


@final
@dataclass(frozen=True)
class FeaturedEntries(FactoredModels):
    """Predictions are observed entries of ``A x C^T``, with ``A = [I, F]`` and ``C = [I, G]``.

    The model has a row for each row of the matrix, one for each of their features, and its columns likewise.

    Parameters
    ----------
    observed : PlainEntries
    row_map, column_map : FeatureMap
        ``A`` and ``C``.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from skfw.engine import FeaturedEntries, FeatureMap, ObservedEntries
    >>> observed = ObservedEntries(np.array([0, 1]), np.array([2, 0]), (2, 3))
    >>> rows = FeatureMap(sparse.csr_matrix([[1.0], [3.0]]))
    >>> entries = FeaturedEntries(observed, rows, FeatureMap.identity(3))
    >>> entries.shape
    (3, 3)
    >>> entries.apply_rank_one(np.array([10.0, 20.0, 1.0]), np.array([1.0, 0.0, 2.0]))
    array([22., 23.])
    """

    observed: PlainEntries
    row_map: FeatureMap
    column_map: FeatureMap

    def __post_init__(self) -> None:
        lengths = self.row_map.shape[0], self.column_map.shape[0]
        if lengths != self.observed.shape:
            raise ValueError(
                f"row_map and column_map must have features of a matrix of shape {self.observed.shape}; "
                f"got features of {lengths[0]} rows and of {lengths[1]} columns."
            )
        for name, factor_map in (("row_map", self.row_map), ("column_map", self.column_map)):
            if not factor_map.largest_feature <= _LARGEST_FEATURE:
                raise ValueError(
                    f"{name} must have features of up to {_LARGEST_FEATURE:g}; "
                    f"got features of up to {factor_map.largest_feature:g}."
                )

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Shape of the model."""
        return self.row_map.shape[1], self.column_map.shape[1]

    def products(self, left: Array, right: Array) -> Array:
        """Return the predictions of ``left right^T``."""
        return np.asarray(self.observed.products(self.row_map.apply(left), self.column_map.apply(right)))

    def apply_rank_one(self, left: Array, right: Array) -> Array:
        """Return the predictions of ``left right^T``."""
        effective = self.row_map.apply(left), self.column_map.apply(right)
        return np.asarray(self.observed.apply_rank_one(*effective))

    @cached_property
    def _maps(self) -> tuple[ScaledMap, ScaledMap]:
        row_map, column_map = (ScaledMap(m, np.ones(m.shape[1])) for m in (self.row_map, self.column_map))
        return row_map, column_map

    def adjoint(self, residual: Array) -> MappedMatrix:
        """Return ``A^T R C``, where R has the residual at the observed entries."""
        return MappedMatrix(self.observed.adjoint(residual), *self._maps)

    def adjoint_size(self) -> MappedBound:
        """Return a bound of the norm, from the longest rows of both maps."""
        return MappedBound(1.0, *self._maps)

    def adjoint_error(self, size: float) -> MappedBound:
        """Return a bound of the norm: that of the sum of the sizes of all terms, times their rounding.

        R itself is rounded where entries are repeated. It is never multiplied out: what counts is how far the
        product with a vector is off.
        """
        n_terms = self.row_map.n_terms + self.column_map.n_terms + max(self.observed.shape)
        errors = float(self.observed.adjoint_error(size).max()) + size * float(sum_error(n_terms))
        return MappedBound(errors + n_terms * TINY, *self._maps)

    def squared_norm(self, weights: Array) -> float:
        """Return the product of the bounds for both maps and for the entries."""
        inner_norm = self.observed.squared_norm(weights)
        return self.row_map.squared_norm * self.column_map.squared_norm * inner_norm

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply_rank_one` and a product of the adjoint with a vector take together."""
        n_features = self.row_map.features.nnz + self.column_map.features.nnz
        return self.observed.product_cost + _costs.sparse_products(self.shape, n_features)


@final
@dataclass(frozen=True)
class ScaledMap:
    """The matrix ``A diag(scales)``.

    Parameters
    ----------
    factor_map : FeatureMap
        ``A``.
    scales : ndarray
        Positive.
    """

    factor_map: FeatureMap
    scales: Array

    def apply(self, factors: Array) -> Array:
        """Return the matrix times factors, or times a vector."""
        return self.factor_map.apply(self._scaled(factors))

    def adjoint(self, rows: Array) -> Array:
        """Return the transpose times numbers of the rows."""
        return self._scaled(self.factor_map.adjoint(rows))

    def _scaled(self, factors: Array) -> Array:
        scales = self.scales.astype(factors.dtype, copy=False)
        return (scales if factors.ndim == 1 else scales[:, np.newaxis]) * factors

    def times(self, scales: Array) -> ScaledMap:
        """Return the matrix times another diagonal one."""
        return ScaledMap(self.factor_map, self.scales * scales)

    @cached_property
    def largest_row(self) -> float:
        """The largest Euclidean norm of a row."""
        return self.factor_map.largest_row(self.scales)


@final
@dataclass(frozen=True)
class MappedMatrix:
    """The matrix ``A^T R C``, which is never formed, with the arithmetic of an `EntryMatrix`.

    Only matrices of the same maps can be added.

    Parameters
    ----------
    matrix : EntryMatrix or ndarray
        ``R``.
    row_map, column_map : ScaledMap
        ``A`` and ``C``.
    """

    matrix: Direction
    row_map: ScaledMap
    column_map: ScaledMap

    __array_ufunc__ = None  # NumPy then leaves `array * matrix` to the methods below

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self.row_map.scales), len(self.column_map.scales)

    @property
    def T(self) -> MappedMatrix:  # noqa: N802 - as arrays call it
        """The transpose."""
        return MappedMatrix(self.matrix.T, self.column_map, self.row_map)

    def astype(self, dtype: npt.DTypeLike) -> MappedMatrix:
        """Return the matrix in another precision."""
        return replace(self, matrix=self.matrix.astype(dtype))

    def __abs__(self) -> MappedBound:
        return MappedBound(float(np.abs(self.matrix.ravel()).sum()), self.row_map, self.column_map)

    def __add__(self, other: MappedMatrix) -> MappedMatrix:
        return replace(self, matrix=self.matrix + other.matrix)

    def __mul__(self, row: Array) -> MappedMatrix:
        return replace(self, column_map=self.column_map.times(row))

    def __rmul__(self, factor: Any) -> MappedMatrix:
        if np.ndim(factor):
            return replace(self, row_map=self.row_map.times(factor[:, 0]))
        return replace(self, matrix=factor * self.matrix)

    def __truediv__(self, number: float) -> MappedMatrix:
        return replace(self, matrix=self.matrix / number)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, MappedMatrix):
            # Both as arrays, so that rounding errors of the one are not multiplied by the terms of the other.
            return self.T._array.T @ other._array
        return self.row_map.adjoint(self.matrix @ self.column_map.apply(other))

    @property
    def _array(self) -> Array:
        return np.asarray(self @ np.eye(self.shape[1]))


@final
@dataclass(frozen=True)
class MappedBound:
    """A bound of ``|A|^T S |C|`` for all matrices S at the observed entries whose sizes sum to `size`.

    It is a sum of products of a row of A with a row of C, so its Euclidean norm, and all the more each of its
    entries, is at most `size` times the norms of the longest rows.

    Parameters
    ----------
    size : float
    row_map, column_map : ScaledMap
        ``A`` and ``C``.
    """

    size: float
    row_map: ScaledMap
    column_map: ScaledMap

    __array_ufunc__ = None

    def max(self) -> float:
        """Return a bound of the entries."""
        return self.size * self.row_map.largest_row * self.column_map.largest_row

    def ravel(self) -> Array:
        """Return the bound of the Euclidean norm."""
        return np.array([self.max()])

    def __mul__(self, row: Array) -> MappedBound:
        return replace(self, column_map=self.column_map.times(row))

    def __rmul__(self, column: Array) -> MappedBound:
        return replace(self, row_map=self.row_map.times(column[:, 0]))
