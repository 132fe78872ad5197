"""The observed entries of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from .. import _costs
from .._protocols import Array, Direction, PlainEntries
from .._sums import sum_error
from .._threads import map_blocks, row_blocks
from ._entry_matrix import EntryMatrix
from ._factored_models import FactoredModels
from ._feature_map import FeatureMap
from ._kernels import inner_products, is_compiled

# From this share of all entries on it is faster to compute them all, this many numbers at a time.
_FULL, _FULL_COMPILED, _FULL_BLOCK = 0.04, 0.25, 1 << 20
# From this share on an array with zeros elsewhere is faster than a sparse matrix: by little if the matrix is
# large, twice as fast with 600 x 30 entries. It takes less than twice the memory.
_DENSE = 0.4


@final
@dataclass(frozen=True)
class ObservedEntries(FactoredModels, PlainEntries):
    """Predictions are the entries ``x[row_i, column_i]`` of a matrix; the same one may occur repeatedly.

    Parameters
    ----------
    row_indices, column_indices : ndarray of ints
    shape : tuple of two ints
        Shape of the matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import ObservedEntries
    >>> entries = ObservedEntries(np.array([0, 1]), np.array([2, 0]), (2, 3))
    >>> entries.apply_rank_one(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0]))
    array([5., 6.])
    """

    row_indices: npt.NDArray[np.intp]
    column_indices: npt.NDArray[np.intp]
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        _check_indices(self.row_indices, self.shape[0])
        _check_indices(self.column_indices, self.shape[1])

    @cached_property
    def _positions(self) -> npt.NDArray[np.intp]:
        return np.asarray(self.row_indices, dtype=np.int64) * self.shape[1] + self.column_indices

    @cached_property
    def _is_ordered(self) -> bool:
        """Whether the entries are distinct and sorted by row, then column: a residual is CSR data then."""
        rows, columns = self.row_indices, self.column_indices
        next_column = (rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1])
        return bool(np.all((rows[1:] > rows[:-1]) | next_column))

    @cached_property
    def _distinct(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The distinct entries as positions, in order, and which of them each entry is."""
        return np.unique(self._positions, return_inverse=True)

    @cached_property
    def pattern(self) -> Any:
        """A CSR matrix of booleans that stores the distinct entries."""
        rows, columns = self.row_indices, self.column_indices
        if not self._is_ordered:
            rows, columns = np.divmod(self._distinct[0], self.shape[1])
        starts = np.append(0, np.cumsum(np.bincount(rows, minlength=self.shape[0])))
        # SciPy has a type of its own choice for the indices, and converts others each time.
        return sparse.csr_matrix((np.ones(len(rows), dtype=bool), columns, starts), shape=self.shape)

    @property
    def _is_dense(self) -> bool:
        """Whether the matrix of a residual is an array."""
        return self.pattern.nnz >= _DENSE * self.shape[0] * self.shape[1]  # type: ignore[no-any-return]

    @property
    def _n_repetitions(self) -> Array:
        """How often each entry occurs."""
        if self._is_ordered:
            return np.ones(len(self.row_indices))
        return np.bincount(self._distinct[1])[self._distinct[1]].astype(np.float64)

    def totals(self, values: Array) -> Array:
        """Sum values of entries over the repetitions of each distinct entry."""
        if self._is_ordered:
            return values
        return np.bincount(self._distinct[1], values).astype(values.dtype, copy=False)

    @property
    def observed(self) -> ObservedEntries:  # type: ignore[override]
        """These entries."""
        return self

    @cached_property
    def row_map(self) -> FeatureMap:  # type: ignore[override]
        """The identity: rows have no features."""
        return FeatureMap.identity(self.shape[0])

    @cached_property
    def column_map(self) -> FeatureMap:  # type: ignore[override]
        """The identity: columns have no features."""
        return FeatureMap.identity(self.shape[1])

    def products(self, left: Array, right: Array) -> Array:
        """Return the observed entries of ``left right^T``, many at once."""
        n_rows, n_columns = self.shape
        if (len(left), len(right)) != self.shape:
            raise ValueError(f"Factors of shapes {left.shape} and {right.shape} do not fit {self.shape}.")
        full = _FULL_COMPILED if is_compiled(len(self.row_indices)) else _FULL
        if not self._is_ordered or len(self.row_indices) < full * n_rows * n_columns:
            return inner_products(left, right, self.row_indices, self.column_indices)
        positions, starts = self._positions, self.pattern.indptr

        def entries_of(rows: slice) -> Array:
            """Have BLAS compute all entries of these rows, and take the observed ones."""
            places = positions[starts[rows.start] : starts[rows.stop]] - rows.start * n_columns
            result: Array = np.dot(left[rows], right.T).take(places, mode="clip")
            return result

        blocks = row_blocks(n_rows, max(1, _FULL_BLOCK // n_columns))
        return np.concatenate(map_blocks(entries_of, blocks))

    def apply_rank_one(self, left: Array, right: Array) -> Array:
        """Return the observed entries of ``left right^T``."""
        result: Array = left[self.row_indices]
        result *= right[self.column_indices]
        return result

    def adjoint(self, residual: Array) -> Direction:
        """Return the matrix with the residual at the observed entries; an array if they are many."""
        totals = self.totals(residual)
        if not self._is_dense:
            pattern = self.pattern
            return EntryMatrix(sparse.csr_matrix((totals, pattern.indices, pattern.indptr), shape=self.shape))
        matrix = np.zeros(self.shape, dtype=totals.dtype)
        matrix.reshape(-1)[self._positions if self._is_ordered else self._distinct[0]] = totals
        return matrix

    def transposed_adjoint(self, values: Array) -> Direction:
        """Return the transpose of `adjoint`, stored row by row: products read it in order, in all threads."""
        matrix = self.adjoint(values)
        return matrix.T if self._is_dense else EntryMatrix(matrix.matrix.T.tocsr())

    def adjoint_size(self) -> Direction:
        """Return ones at the observed entries."""
        return self.adjoint(1.0 / self._n_repetitions)

    def adjoint_error(self, size: float) -> Direction:
        """Return the rounding error of a sum over the repetitions of an entry."""
        return self.adjoint(size * sum_error(self._n_repetitions) / self._n_repetitions)

    def marginals(self, values: Array) -> Array:
        """Sum values of entries over each row, then over each column."""
        matrix = self.adjoint(values)
        ones = [np.ones(length, dtype=values.dtype) for length in self.shape]
        return np.concatenate([matrix @ ones[1], matrix.T @ ones[0]])

    def spread(self, marginals: Array, part: slice) -> Array:
        """Return, for each entry of a part, the number of its row plus that of its column."""
        row_sums, column_sums = np.split(marginals, self.shape[:1])
        result: Array = row_sums.take(self.row_indices[part], mode="clip")
        result += column_sums.take(self.column_indices[part], mode="clip")
        return result

    def squared_norm(self, weights: Array) -> float:
        """Return the largest total weight of an entry."""
        return float(self.totals(weights).max())

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply_rank_one` and a product of the adjoint with a vector take together."""
        return _costs.entry_products(len(self.row_indices))


def products_at(
    left: Array, right: Array, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
) -> Array:
    """Return the inner products of these rows of `left` with these rows of `right`.

    Raises an IndexError where there is no such row.
    """
    _check_indices(rows, len(left))
    _check_indices(columns, len(right))
    return inner_products(left, right, rows, columns, once=True)


def _check_indices(indices: npt.NDArray[np.intp], length: int) -> None:
    if len(indices) and not 0 <= indices.min() <= indices.max() < length:
        raise IndexError(
            f"Indices from {indices.min()} to {indices.max()} are not all from 0 to {length - 1}."
        )
