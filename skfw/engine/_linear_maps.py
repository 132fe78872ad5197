"""The data: a design matrix, or the observed entries of a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ._atoms import FactoredMatrix
from ._lanczos import largest_eigenvalue, start_noise
from ._protocols import Array, LinearMap

# Rows of a float32 array that are converted to float64 at a time: large enough for BLAS, small enough for
# the cache.
_BLOCK = 2048
# One sample in so many stands for all where that is enough, and these are so many, and more than features.
_ONE_IN, _MANY_SAMPLES = 8, 512
# A dense block of rows for a Gram matrix has about this many entries.
_GRAM_BLOCK = 1 << 21
# Entries of sparse data that are squared at a time.
_SQUARES_BLOCK = 1 << 18
# Seconds that an operation takes on one core, to choose between two ways of doing the same. Only their ratios
# matter, and only roughly.
_CALL, _SAMPLE = 4e-5, 5e-9
_SPARSE_ENTRY, _DENSE_ENTRY = 1.2e-9, 5e-10
_SPARSE_GRAM_TERM, _DENSE_GRAM_TERM = 1e-8, 8e-11
_GATHER = 6e-9
# From this share of all entries on it pays to compute them all.
_FULL = 0.025
# Numbers of factors, or of entries, that are gathered at once: they stay in the cache.
_PRODUCTS_BLOCK, _SPREAD_BLOCK = 131_072, 131_072


@final
class DesignMatrix(LinearMap):
    """Predictions ``X x`` of a linear model.

    Sparse data is held as it is and, for CSR, once more by columns: an adjoint product then reads memory in
    order, and a coordinate's predictions are one slice. Products are accumulated in float64 even for
    float32 data, because the certificate is a sum of them.

    Parameters
    ----------
    X : ndarray, CSR or CSC of shape (n_samples, n_features)
        Float32 or float64; never modified.
    n_outputs : int, optional
        Number of columns of the model, one for each class. By default the model is a vector.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import DesignMatrix
    >>> design = DesignMatrix(np.array([[1.0, 2.0], [0.0, 1.0]]))
    >>> design.apply(np.array([1.0, 1.0])), design.adjoint(np.array([1.0, 1.0]))
    (array([3., 1.]), array([1., 3.]))
    """

    def __init__(self, X: Any, n_outputs: int | None = None) -> None:
        self.shape: tuple[int, int] = X.shape
        self.n_outputs = n_outputs
        self.is_sparse = bool(sparse.issparse(X))
        if self.is_sparse:
            if not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            # For float32 the one copy is made in float64, and serves both products.
            self.columns = X.tocsc().astype(np.float64, copy=False)
            self.transposed = self.columns.T
            self.rows = X if X.dtype == np.float64 else self.columns
        else:
            self.rows = X

    def zeros(self) -> Array:
        """Return the zero model, of shape (n_features,) or (n_features, n_outputs)."""
        return np.zeros(self._with_outputs(self.shape[1]))

    def apply(self, x: Array) -> Array:
        """Return ``X x``."""
        if self.is_sparse or self.rows.dtype == np.float64:
            return np.asarray(self.rows @ x)
        return np.concatenate([block.astype(np.float64) @ x for block in self._blocks()])

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> Array:
        """Return ``X x`` for the x with these few nonzeros, from the columns they belong to."""
        result = np.zeros(self._with_outputs(self.shape[0]))
        for index, value in zip(indices.tolist(), values.tolist(), strict=True):
            feature, output = divmod(index, self.n_outputs) if self.n_outputs else (index, None)
            target = result if output is None else result[:, output]
            if self.is_sparse:
                start, end = self.columns.indptr[feature], self.columns.indptr[feature + 1]
                np.add.at(target, self.columns.indices[start:end], value * self.columns.data[start:end])
            else:
                target += value * self.rows[:, feature].astype(np.float64, copy=False)
        return result

    def apply_rank_one(self, left: Array, right: Array) -> Array:
        """Return ``(X left) right^T``."""
        return np.outer(self.apply(left), right)

    def adjoint(self, residual: Array) -> Array:
        """Return ``X^T residual``."""
        if self.is_sparse:
            return np.asarray(self.transposed @ residual)
        if self.rows.dtype == np.float64:
            return np.asarray(self.rows.T @ residual)
        result = np.zeros((self.shape[1], *residual.shape[1:]))
        for start, block in zip(range(0, self.shape[0], _BLOCK), self._blocks(), strict=True):
            result += block.astype(np.float64).T @ residual[start : start + _BLOCK]
        return result

    def adjoint_rounding(self) -> Array:
        """Return the largest feature values, times the rounding error of a sum over the samples."""
        if self.is_sparse:
            largest = np.zeros(self.shape[1])
            filled = np.flatnonzero(np.diff(self.columns.indptr))
            if len(filled):
                data, starts = self.columns.data, self.columns.indptr[filled]
                ends = np.maximum.reduceat(data, starts), np.minimum.reduceat(data, starts)
                largest[filled] = np.maximum(ends[0], -ends[1])
        else:
            largest = _largest_entries(self.rows).astype(np.float64)
        error = float(np.finfo(np.float64).eps) * np.sqrt(self.shape[0]) * largest
        return error if self.n_outputs is None else np.repeat(error[:, np.newaxis], self.n_outputs, axis=1)

    def squared_norm(self, weights: Array) -> float:
        """Return an upper bound, 1 % above the value, of the top eigenvalue of ``X^T diag(weights) X``."""
        scale = float(_largest_entries(self.columns.data if self.is_sparse else self.rows).max(initial=0.0))
        if scale == 0.0:
            return 0.0
        found = largest_eigenvalue(
            lambda x: self.adjoint(weights * (self.apply(x) / scale)) / scale,
            self.shape[1],
            start_noise(),
            enough=lambda value, upper: upper <= 1.01 * value,
        )
        return found.upper * scale * scale

    def subset(self, rows: npt.NDArray[np.intp]) -> DesignMatrix:
        """Return the design of some of the samples."""
        return DesignMatrix(self.rows[rows], self.n_outputs)

    @cached_property
    def sample(self) -> tuple[npt.NDArray[np.intp], DesignMatrix]:
        """Some rows at random, and the design they give; all rows if there are not many."""
        n_samples, n_features = self.shape
        size = n_samples // _ONE_IN
        if size < max(_MANY_SAMPLES, n_features):
            return np.arange(n_samples), self
        rows = np.sort(np.random.default_rng(0).choice(n_samples, size, replace=False))
        return rows, self.subset(rows)

    def restrict(self, features: npt.NDArray[np.intp]) -> DesignMatrix:
        """Return the design of some of the features."""
        if self.is_sparse:
            return DesignMatrix(self.columns[:, features], self.n_outputs)
        return DesignMatrix(np.take(self.rows, features, axis=1), self.n_outputs)

    def squares(self, weights: Array) -> Array:
        """Return ``sum_i weights_i X_ij^2`` for each feature, and for each column of the weights."""
        result = np.zeros((self.shape[1], *weights.shape[1:]))
        if self.is_sparse:
            data, indices, indptr = self.columns.data, self.columns.indices, self.columns.indptr
            # A few columns at a time: the squares of all entries would be another copy of the data.
            cuts = np.searchsorted(indptr, np.arange(0, indptr[-1] + _SQUARES_BLOCK, _SQUARES_BLOCK))
            cuts[-1] = self.shape[1]
            for first, last in pairwise(cuts.tolist()):
                part = slice(indptr[first], indptr[last])
                block = (data[part] ** 2, indices[part], indptr[first : last + 1] - indptr[first])
                squared = sparse.csr_matrix(block, shape=(last - first, self.shape[0]))
                result[first:last] = squared @ weights
            return result
        for start, rows in zip(range(0, self.shape[0], _BLOCK), self._blocks(), strict=True):
            result += np.square(rows, dtype=np.float64).T @ weights[start : start + _BLOCK]
        return result

    def gram(self, weights: Array) -> Array:
        """Return ``X^T diag(weights) X`` as a dense matrix, for non-negative weights."""
        roots = np.sqrt(weights)
        if self.is_sparse and self._sparse_gram_cost < self._dense_gram_cost:
            scaled = sparse.csr_matrix(
                (self.columns.data * roots[self.columns.indices], self.columns.indices, self.columns.indptr),
                shape=self.shape[::-1],
            )
            return np.asarray((scaled @ scaled.T).toarray())
        result = np.zeros((self.shape[1], self.shape[1]))
        start = 0
        for rows in self._dense_blocks():
            block = rows * roots[start : start + len(rows), np.newaxis]
            result += block.T @ block
            start += len(rows)
        return result

    def _dense_blocks(self) -> Iterator[Array]:
        """Yield the rows in blocks of a moderate size."""
        if self.is_sparse and self.shape[0] * self.shape[1] <= _GRAM_BLOCK:
            yield self._dense
            return
        matrix = self.columns.tocsr() if self.is_sparse else self.rows
        size = max(1, _GRAM_BLOCK // self.shape[1])
        for start in range(0, self.shape[0], size):
            rows = matrix[start : start + size]
            yield rows.toarray() if self.is_sparse else rows

    @cached_property
    def _dense(self) -> Array:
        return np.asarray(self.columns.toarray())

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply` and `adjoint` take together."""
        entries = _SPARSE_ENTRY * self.columns.nnz if self.is_sparse else _DENSE_ENTRY * self.rows.size
        return _CALL + _SAMPLE * self.shape[0] + 2.0 * float(entries)

    @property
    def gram_cost(self) -> float:
        """Rough seconds that `gram` takes."""
        return _CALL + min(self._sparse_gram_cost, self._dense_gram_cost)

    @property
    def _dense_gram_cost(self) -> float:
        return _DENSE_GRAM_TERM * self.shape[0] * self.shape[1] ** 2

    @property
    def _sparse_gram_cost(self) -> float:
        return _SPARSE_GRAM_TERM * float(self.columns.nnz) ** 2 / self.shape[0] if self.is_sparse else np.inf

    def _with_outputs(self, length: int) -> tuple[int, ...]:
        return (length,) if self.n_outputs is None else (length, self.n_outputs)

    def _blocks(self) -> list[Any]:
        return [self.rows[start : start + _BLOCK] for start in range(0, self.shape[0], _BLOCK)]


def _largest_entries(data: Any) -> Any:
    """Return the largest absolute values along the first axis, without a copy of the data."""
    return np.maximum(data.max(axis=0, initial=0.0), -data.min(axis=0, initial=0.0))


@final
@dataclass(frozen=True)
class ObservedEntries(LinearMap):
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
    def _pattern(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Column indices and row starts of a CSR matrix with the distinct entries stored."""
        rows, columns = self.row_indices, self.column_indices
        if not self._is_ordered:
            rows, columns = np.divmod(self._distinct[0], self.shape[1])
        starts = np.append(0, np.cumsum(np.bincount(rows, minlength=self.shape[0])))
        # SciPy has a type of its own choice for the indices, and converts others each time.
        matrix = sparse.csr_matrix((np.zeros(len(rows), dtype=bool), columns, starts), shape=self.shape)
        return matrix.indices, matrix.indptr

    def totals(self, values: Array) -> Array:
        """Sum values of entries over the repetitions of each distinct entry."""
        if self._is_ordered:
            return values
        return np.bincount(self._distinct[1], values).astype(np.float64, copy=False)

    def zeros(self) -> FactoredMatrix:
        """Return the zero matrix, in factored form."""
        return FactoredMatrix.zeros(self.shape)

    def apply(self, x: FactoredMatrix) -> Array:
        """Return the observed entries of a factored matrix."""
        return self.products(x.left * x.weights, x.right)

    def products(self, left: Array, right: Array) -> Array:
        """Return the observed entries of ``left right^T``, many at once."""
        n_rows, n_columns = self.shape
        if not self._is_ordered or len(self.row_indices) < _FULL * n_rows * n_columns:
            return products_at(left, right, self.row_indices, self.column_indices)
        # It is faster to have BLAS compute all entries of some rows.
        result = np.empty(len(self.row_indices), dtype=np.result_type(left, right))
        size = max(1, _GRAM_BLOCK // n_columns)
        starts = self._pattern[1][[*range(0, n_rows, size), n_rows]]
        for row, (start, end) in zip(range(0, n_rows, size), pairwise(starts.tolist()), strict=True):
            block = left[row : row + size] @ right.T
            places = self._positions[start:end] - row * n_columns
            np.take(block, places, out=result[start:end], mode="clip")
        return result

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> Array:
        """Not available: a set of sparse matrices has no use for the factored iterate."""
        raise TypeError("Observed entries need a constraint with rank-one atoms, such as NuclearBall.")

    def apply_rank_one(self, left: Array, right: Array) -> Array:
        """Return the observed entries of ``left right^T``."""
        result: Array = left[self.row_indices]
        result *= right[self.column_indices]
        return result

    def adjoint(self, residual: Array) -> sparse.csr_matrix:
        """Return the sparse matrix with the residual at the observed entries."""
        return sparse.csr_matrix((self.totals(residual), *self._pattern), shape=self.shape)

    def margins(self, values: Array) -> Array:
        """Sum values of entries over each row, then over each column."""
        matrix = self.adjoint(values)
        return np.concatenate([matrix @ np.ones(self.shape[1]), matrix.T @ np.ones(self.shape[0])])

    def spread(self, margins: Array) -> Array:
        """Return, for each entry, the number of its row plus that of its column."""
        row_margins, column_margins = np.split(margins, self.shape[:1])
        result = np.empty(len(self.row_indices))
        for start in range(0, len(result), _SPREAD_BLOCK):
            part = slice(start, start + _SPREAD_BLOCK)
            np.take(row_margins, self.row_indices[part], out=result[part], mode="clip")
            result[part] += column_margins.take(self.column_indices[part], mode="clip")
        return result

    def adjoint_rounding(self) -> sparse.csr_matrix:
        """Return zero: an entry of the adjoint is one residual, or a sum of few."""
        return sparse.csr_matrix(self.shape)

    def squared_norm(self, weights: Array) -> float:
        """Return the largest total weight of an entry."""
        return float(self.totals(weights).max())

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply_rank_one` and a product of the adjoint with a vector take together."""
        return _CALL + (_GATHER + _SPARSE_ENTRY) * len(self.row_indices)


def products_at(
    left: Array, right: Array, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
) -> Array:
    """Return the inner products of these rows of `left` with these rows of `right`.

    The factors are read in blocks that stay in the cache, into the same memory each time.
    """
    kind = np.result_type(left, right)
    result = np.zeros(len(rows), dtype=kind)
    rank = left.shape[1]
    if not (rank and len(rows)):
        return result
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    size = min(max(_PRODUCTS_BLOCK // rank, 1), len(rows))
    left_block, right_block = np.empty((2, size, rank), dtype=kind)
    for start in range(0, len(rows), size):
        part = slice(start, min(start + size, len(rows)))
        lefts, rights = left_block[: part.stop - start], right_block[: part.stop - start]
        # With its default mode NumPy would write to a copy first, lest an index be wrong.
        np.take(left, rows[part], axis=0, out=lefts, mode="clip")
        np.take(right, columns[part], axis=0, out=rights, mode="clip")
        np.einsum("ij,ij->i", lefts, rights, out=result[part])
    return result
