"""Design matrices, dense and sparse: predictions of linear models.

Products are accumulated in float64 even for float32 data, because the certificate is a sum of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from .. import _costs
from .._eigenvalues import largest_eigenvalue, start_noise
from .._protocols import Array, Design, Rows, SampleVector
from .._sums import TINY, sum_error
from .._threads import BLOCK, add_up, map_blocks, row_blocks

# The fewest rows of a block: the sum of the blocks' products then takes little time.
_FEWEST_ROWS = 64
# A sample of the rows is one in this many of them; there is one if it has at least this many rows, and at
# least as many as there are features.
_ONE_IN, _MANY_SAMPLES = 8, 512
# A Gram matrix is the sum of at most this many, of some rows each: of so many that all of these matrices
# together have at most this fraction of the entries that the rows have.
_MOST_GRAMS, _GRAM_SHARE = 16, 0.25
# A dense block of rows for a Gram matrix has about this many entries.
_GRAM_BLOCK = 1 << 21
# Seconds that single precision is to save at least.
_WORTH = 1e-3
# Seconds that two products with an array are to save where the data is sparse. For 49,990 x 22 with 13
# nonzeros in a row they take half of the time, and the array a fifth of that of a copy by columns.
_WORTH_AN_ARRAY = 1e-4
# Stored numbers of a block of rows that is read from a file.
_MAPPED_BLOCK = 1 << 20
# A sample of these rows is one in this many: it is held in memory, sparse ones twice.
_MAPPED_ONE_IN = 64
# How much longer products take that read a file which may not be in memory.
_READING = 4.0
# Entries of sparse data that are squared, or made doubles, at a time.
_SQUARES_BLOCK = 1 << 18


def design_matrix(X: Any, n_outputs: int | None = None, *, by_rows: bool = False) -> DesignMatrix:
    """Return the predictions ``X x`` as a linear map.

    Parameters
    ----------
    X : ndarray, CSR or CSC of shape (n_samples, n_features)
        Float32 or float64; never modified.
    n_outputs : int, optional
        Number of columns of the model, one for each class. By default the model is a vector.
    by_rows : bool
        Whether sparse data is held by rows alone, as blocks of rows are; by default CSR by columns too.

    Returns
    -------
    DenseDesign, SparseDesign, SparseRows, or a MappedDesign of data in a memory map
        A DenseDesign also for sparse data of which half is not zero, if it takes a few megabytes.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import design_matrix
    >>> design = design_matrix(np.array([[1.0, 2.0], [0.0, 1.0]]))
    >>> design.apply(np.array([1.0, 1.0])), design.adjoint(np.array([1.0, 1.0]))
    (array([3., 1.]), array([1., 3.]))
    """
    if _is_mapped(X):
        return MappedDesign(X, n_outputs)
    if sparse.issparse(X):
        matrix: Any = X
        if by_rows:
            return SparseRows(matrix.tocsr(), n_outputs)
        if not _is_nearly_dense(matrix):
            return SparseDesign(matrix, n_outputs)
        X = matrix.toarray().astype(np.float64, copy=False)
    return DenseDesign(X, n_outputs)


def _is_nearly_dense(matrix: Any) -> bool:
    """Return whether sparse data is faster as an array, which takes little memory."""
    saved = _costs.sparse_products(matrix.shape, matrix.nnz) - _costs.dense_products(matrix.shape)
    return matrix.shape[0] * matrix.shape[1] <= _GRAM_BLOCK and saved >= _WORTH_AN_ARRAY


def _is_mapped(X: Any) -> bool:
    """Return whether rows can be read from a file that is mapped to memory."""
    array: Any = X
    if sparse.issparse(X):
        array = array.data if array.format == "csr" else None
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


class DesignMatrix(Design):
    """What dense and sparse designs share."""

    def __init__(self, shape: tuple[int, int], n_outputs: int | None) -> None:
        self.shape, self.n_outputs = shape, n_outputs

    @abstractmethod
    def restrict(self, features: npt.NDArray[np.intp]) -> DesignMatrix:
        """Return the design of some of the features."""

    @abstractmethod
    def rows(self, places: Rows) -> Any:
        """Return some of the rows, as an array or a sparse matrix."""

    def subset(self, rows: Rows) -> DesignMatrix:
        """Return the design of some of the samples."""
        return design_matrix(self.rows(rows), self.n_outputs)

    @abstractmethod
    def _find_largest_values(self) -> Array:
        """Return the largest absolute value of each feature."""

    @property
    @abstractmethod
    def n_terms(self) -> int | npt.NDArray[np.intp]:
        """How many products an entry of the adjoint is a sum of, for each feature."""

    @cached_property
    def largest_values(self) -> Array:
        """The largest absolute value of each feature."""
        return self._find_largest_values()

    def zeros(self) -> Array:
        """Return the zero model, of shape (n_features,) or (n_features, n_outputs)."""
        return np.zeros(self._with_outputs(self.shape[1]))

    def n_atoms(self, x: Array) -> int:
        """Return the number of nonzeros."""
        return int(np.count_nonzero(x))

    def apply_rank_one(self, left: Array, right: Array) -> SampleVector:
        """Return ``(X left) right^T``."""
        return np.outer(self.apply(left), right)

    def adjoint_size(self) -> Array:
        """Return the largest feature values."""
        return self._for_outputs(self.largest_values)

    def adjoint_bound(self) -> Array:
        """Return upper bounds of the largest feature values."""
        return self._for_outputs(self._value_bounds)

    def adjoint_error(self, size: float) -> Array:
        """Return these bounds, times the rounding error of a sum over the samples."""
        return self._for_outputs(size * sum_error(self.n_terms) * self._value_bounds + TINY)

    @property
    def _value_bounds(self) -> Array:
        return self.largest_values

    def squared_norm(self, weights: SampleVector) -> float:
        """Return an upper bound, 1 % above the value, of the top eigenvalue of ``X^T diag(weights) X``."""
        scale = float(self.largest_values.max(initial=0.0))
        if scale == 0.0:
            return 0.0
        found = largest_eigenvalue(
            lambda x: self.adjoint(weights * (self.apply(x) / scale)) / scale,
            self.shape[1],
            start_noise(),
            enough=lambda value, upper: upper <= 1.01 * value,
        )
        return found.upper * scale * scale

    @cached_property
    def sample(self) -> tuple[Rows, DesignMatrix] | None:
        """Some rows at random, and the design they give; None if there are not many."""
        if self.sample_size < self.fewest_samples:
            return None
        rows = np.sort(np.random.default_rng(0).choice(self.shape[0], self.sample_size, replace=False))
        return rows, self.subset(rows)

    @property
    def sample_size(self) -> int:
        """How many rows a sample has."""
        return self.shape[0] // _ONE_IN

    @property
    def fewest_samples(self) -> int:
        """How many rows it has at least, or there is none."""
        return max(_MANY_SAMPLES, self.shape[1])

    def _with_outputs(self, length: int) -> tuple[int, ...]:
        return (length,) if self.n_outputs is None else (length, self.n_outputs)

    def _for_outputs(self, numbers: Array) -> Array:
        return (
            numbers if self.n_outputs is None else np.repeat(numbers[:, np.newaxis], self.n_outputs, axis=1)
        )

    def _places(self, indices: npt.NDArray[np.intp], result: Array) -> Iterator[tuple[int, Array]]:
        """Yield the feature of each flat index, and the part of the predictions that it contributes to."""
        for index in indices.tolist():
            if self.n_outputs is None:
                yield index, result
            else:
                feature, output = divmod(index, self.n_outputs)
                yield feature, result[:, output]


@final
class DenseDesign(DesignMatrix):
    """Predictions ``X x`` for an array; see `design_matrix`."""

    def __init__(self, X: npt.NDArray[Any], n_outputs: int | None = None) -> None:
        super().__init__(X.shape, n_outputs)
        self._X = X
        fewest = _FEWEST_ROWS * (n_outputs or 1)
        self._blocks = row_blocks(X.shape[0], max(BLOCK // max(X.shape[1], 1), fewest))

    def apply(self, x: Array) -> Array:
        """Return ``X x``."""
        if not x.any():  # as at the start of a run, where the data need not be read
            return np.zeros((self.shape[0], *x.shape[1:]))
        return np.concatenate(map_blocks(lambda rows: np.dot(self._float64(rows), x), self._blocks))

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> Array:
        """Return ``X x`` for the x with these few nonzeros, from the columns they belong to."""
        result = np.zeros(self._with_outputs(self.shape[0]))
        for (feature, part), value in zip(self._places(indices, result), values.tolist(), strict=True):
            part += value * self._X[:, feature].astype(np.float64, copy=False)
        return result

    def adjoint(self, residual: Array) -> Array:
        """Return ``X^T residual``."""
        return add_up(map_blocks(lambda rows: np.dot(self._float64(rows).T, residual[rows]), self._blocks))

    def rows(self, places: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """Return some of the rows."""
        return self._X[places]

    def restrict(self, features: npt.NDArray[np.intp]) -> DenseDesign:
        """Return the design of some of the features."""
        if self._X.flags.f_contiguous:  # as data frames have it; NumPy would copy all columns first
            return DenseDesign(np.take(self._X.T, features, axis=0).T, self.n_outputs)
        return DenseDesign(np.take(self._X, features, axis=1), self.n_outputs)

    def squares(self, weights: Array) -> Array:
        """Return ``sum_i weights_i X_ij^2`` for each feature, and for each column of the weights."""

        def squares(rows: slice) -> Array:
            result: Array = np.dot(np.square(self._X[rows], dtype=np.float64).T, weights[rows])
            return result

        return add_up(map_blocks(squares, self._blocks))

    def gram(self, weights: Array) -> Array:
        """Return ``X^T diag(weights) X`` as a dense matrix, for non-negative weights."""
        return _dense_gram(self.shape, np.sqrt(weights), lambda rows: self._X[rows])

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply` and `adjoint` take together."""
        return _costs.dense_products(self.shape)

    @property
    def gram_cost(self) -> float:
        """Rough seconds that `gram` takes."""
        return _costs.dense_gram(self.shape)

    def _find_largest_values(self) -> Array:
        def largest(rows: slice) -> npt.NDArray[Any]:
            # One half of the rows with the other half, again and again: for one row after another NumPy takes
            # six times as long where there are few columns.
            sizes = np.abs(self._X[rows])
            while len(sizes) > 1 and sizes.flags.c_contiguous:
                odd, half = len(sizes) % 2, len(sizes) // 2
                np.maximum(sizes[odd : odd + half], sizes[odd + half :], out=sizes[odd : odd + half])
                sizes = sizes[: odd + half]
            return np.asarray(sizes.max(axis=0, initial=0.0))

        return np.asarray(np.max(map_blocks(largest, self._blocks), axis=0), dtype=np.float64)

    @property
    def n_terms(self) -> int:
        """How many products an entry of the adjoint is a sum of."""
        return self.shape[0]

    def _float64(self, rows: slice) -> Array:
        return np.asarray(self._X[rows], dtype=np.float64)


@final
class SparseDesign(DesignMatrix):
    """Predictions ``X x`` for a sparse matrix; see `design_matrix`.

    The data is held as it is and, for CSR, once more by columns: a coordinate's predictions are one slice.
    Adjoint products go through the longer ones of rows and columns. By rows they take 0.5 of the time for
    5,000 x 50,000 with 80 nonzeros in a row, and 1.7 times as long for 24,692 x 300 with 12. Where they go
    through the rows, there are columns only if somebody needs them, as Euclidean balls do not: they take as
    long as 4 to 9 products.
    """

    def __init__(self, X: Any, n_outputs: int | None = None) -> None:
        super().__init__(X.shape, n_outputs)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        self._X = X
        # For float32 the one copy is made in float64, and serves both products.
        self._rows = X if X.dtype == np.float64 else self._columns
        self._by_rows = X.shape[1] > X.shape[0] and self._rows.format == "csr"
        self._transposed = (self._rows if self._by_rows else self._columns).T

    @cached_property
    def _columns(self) -> Any:
        return self._X.tocsc().astype(np.float64, copy=False)

    def apply(self, x: Array) -> Array:
        """Return ``X x``."""
        if not x.any():  # as at the start of a run, where the data need not be read
            return np.zeros((self.shape[0], *x.shape[1:]))
        return np.asarray(self._rows @ x)

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> Array:
        """Return ``X x`` for the x with these few nonzeros, from the columns they belong to."""
        result = np.zeros(self._with_outputs(self.shape[0]))
        data, rows, starts = self._columns.data, self._columns.indices, self._columns.indptr
        for (feature, part), value in zip(self._places(indices, result), values.tolist(), strict=True):
            stored = slice(starts[feature], starts[feature + 1])
            np.add.at(part, rows[stored], value * data[stored])  # twice as fast as indexing
        return result

    def adjoint(self, residual: Array) -> Array:
        """Return ``X^T residual``."""
        return np.asarray(self._transposed @ residual)

    def rows(self, places: npt.NDArray[np.intp]) -> Any:
        """Return some of the rows."""
        return self._rows[places]

    def restrict(self, features: npt.NDArray[np.intp]) -> SparseDesign:
        """Return the design of some of the features."""
        return SparseDesign(self._columns[:, features], self.n_outputs)

    def squares(self, weights: Array) -> Array:
        """Return ``sum_i weights_i X_ij^2`` for each feature, and for each column of the weights."""
        if self._by_rows:
            return SparseRows(self._rows, self.n_outputs).squares(weights)
        result = np.zeros((self.shape[1], *weights.shape[1:]))
        data, rows, starts = self._columns.data, self._columns.indices, self._columns.indptr
        # A few columns at a time: the squares of all entries would be another copy of the data.
        cuts = np.searchsorted(starts, np.arange(0, starts[-1] + _SQUARES_BLOCK, _SQUARES_BLOCK))
        cuts[-1] = self.shape[1]
        for first, last in pairwise(cuts.tolist()):
            stored = slice(starts[first], starts[last])
            block = (data[stored] ** 2, rows[stored], starts[first : last + 1] - starts[first])
            result[first:last] = sparse.csr_matrix(block, shape=(last - first, self.shape[0])) @ weights
        return result

    def gram(self, weights: Array) -> Array:
        """Return ``X^T diag(weights) X`` as a dense matrix, for non-negative weights."""
        if not weights.all():
            kept = np.flatnonzero(weights)
            return self.subset(kept).gram(weights[kept])
        roots = np.sqrt(weights)
        if self._sparse_gram_cost < _costs.dense_gram(self.shape):
            rows, starts = self._columns.indices, self._columns.indptr
            stored = (self._columns.data * roots[rows], rows, starts)
            scaled = sparse.csr_matrix(stored, shape=self.shape[::-1])
            return np.asarray((scaled @ scaled.T).toarray())
        if self.shape[0] * self.shape[1] <= _GRAM_BLOCK:
            return _dense_gram(self.shape, roots, lambda rows: self._dense[rows])
        matrix = self._columns.tocsr()
        return _dense_gram(self.shape, roots, lambda rows: matrix[rows].toarray())

    @property
    def rough_gram_cost(self) -> float:
        """Rough seconds that `rough_gram` takes."""
        return min(self._sparse_gram_cost, _costs.dense_gram(self.shape, in_single_precision=True))

    def rough_gram(self, weights: Array) -> Array:
        """Return ``X^T diag(weights) X`` with the digits of single precision, where that is faster."""
        if not weights.all():
            kept = np.flatnonzero(weights)
            return self.subset(kept).rough_gram(weights[kept])
        if self.gram_cost - self.rough_gram_cost < _WORTH:
            return self.gram(weights)
        # Columns with a sum of squares of one: then single precision neither overflows nor underflows.
        sizes = np.sqrt(self.squares(weights))
        units = np.where(sizes > 0.0, sizes, 1.0)
        roots = np.sqrt(weights)
        if self.shape[0] * self.shape[1] <= _GRAM_BLOCK:
            rows, starts = self._columns.indices, self._columns.indptr
            values = self._columns.data * roots[rows] / np.repeat(units, np.diff(starts))
            dense = sparse.csr_matrix((values.astype(np.float32), rows, starts), self.shape[::-1]).toarray()
            gram = np.dot(dense, dense.T)
        else:
            # A few rows at a time: scaled values of all entries would be another copy of the data.
            matrix = self._rows if self._rows.format == "csr" else self._columns.tocsr()

            def block_gram(part: slice) -> npt.NDArray[Any]:
                block = matrix[part]
                block.data *= np.repeat(roots[part], np.diff(block.indptr)) / units[block.indices]
                dense = block.astype(np.float32).toarray()
                return np.asarray(np.dot(dense.T, dense))

            parts = row_blocks(self.shape[0], max(1, _GRAM_BLOCK // self.shape[1]))
            gram = add_up(block_gram(part) for part in parts)
        result: Array = gram.astype(np.float64)
        result *= units
        result *= units[:, np.newaxis]
        return result

    @cached_property
    def _dense(self) -> Array:
        return np.asarray(self._columns.toarray())

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply` and `adjoint` take together."""
        return _costs.sparse_products(self.shape, self._X.nnz)

    @property
    def gram_cost(self) -> float:
        """Rough seconds that `gram` takes."""
        return min(self._sparse_gram_cost, _costs.dense_gram(self.shape))

    @property
    def _sparse_gram_cost(self) -> float:
        return _costs.sparse_gram(self.shape, self._X.nnz)

    @property
    def _value_bounds(self) -> Array:
        """Upper bounds of the largest values: without columns, the largest one of all."""
        if not self._by_rows:
            return self.largest_values
        data = self._rows.data
        largest = max(float(data.max(initial=0.0)), -float(data.min(initial=0.0)))
        return np.where(self.n_terms > 0, largest, 0.0)

    def _find_largest_values(self) -> Array:
        largest = np.zeros(self.shape[1])
        filled = np.flatnonzero(self.n_terms)
        if len(filled):
            data, starts = self._columns.data, self._columns.indptr[filled]
            sizes = data if data.min() >= 0.0 else np.abs(data)
            largest[filled] = np.maximum.reduceat(sizes, starts)
        return largest

    @cached_property
    def n_terms(self) -> npt.NDArray[np.intp]:
        """How many products an entry of the adjoint is a sum of, for each feature."""
        if self._by_rows:
            return np.bincount(self._rows.indices, minlength=self.shape[1])
        return np.asarray(np.diff(self._columns.indptr))


@final
class SparseRows(DesignMatrix):
    """Predictions ``X x`` for a CSR matrix that is held as it is, by rows alone; see `design_matrix`.

    An adjoint product takes as long by rows as by columns while a number for each feature fits in the cache:
    17 ms for 125,000 x 10,000 with 100 nonzeros in a row. A copy by columns takes as long as nine of them.
    """

    def __init__(self, X: Any, n_outputs: int | None = None) -> None:
        super().__init__(X.shape, n_outputs)
        self._X = X

    def apply(self, x: Array) -> Array:
        """Return ``X x``."""
        if self._X.dtype == np.float64:
            return np.asarray(self._X @ x)
        return np.concatenate([np.asarray(block @ x) for block, _ in self._blocks()])

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> Array:
        """Return ``X x`` for the x with these few nonzeros."""
        x = self.zeros()
        x.reshape(-1)[indices] = values
        return self.apply(x)

    def adjoint(self, residual: Array) -> Array:
        """Return ``X^T residual``."""
        if self._X.dtype == np.float64:
            return np.asarray(self._X.T @ residual)
        return self._sum(lambda block, rows: np.asarray(block.T @ residual[rows]))

    def rows(self, places: npt.NDArray[np.intp]) -> Any:
        """Return some of the rows."""
        return self._X[places]

    def restrict(self, features: npt.NDArray[np.intp]) -> SparseDesign:
        """Return the design of some of the features."""
        return SparseDesign(self._X[:, features], self.n_outputs)

    def squares(self, weights: Array) -> Array:
        """Return ``sum_i weights_i X_ij^2`` for each feature, and for each column of the weights."""

        def squares(block: Any, rows: slice) -> Array:
            block.data = block.data**2
            return np.asarray(block.T @ weights[rows])

        return self._sum(squares)

    def gram(self, weights: Array) -> Array:
        """Return ``X^T diag(weights) X`` as a dense matrix, for non-negative weights."""
        return SparseDesign(self._X, self.n_outputs).gram(weights)

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply` and `adjoint` take together."""
        return _costs.sparse_products(self.shape, self._X.nnz)

    @property
    def gram_cost(self) -> float:
        """Rough seconds that `gram` takes."""
        return min(_costs.sparse_gram(self.shape, self._X.nnz), _costs.dense_gram(self.shape))

    def _find_largest_values(self) -> Array:
        largest = np.zeros(self.shape[1])
        for block, _ in self._blocks():
            np.maximum.at(largest, block.indices, np.abs(block.data))
        return largest

    @cached_property
    def n_terms(self) -> npt.NDArray[np.intp]:
        """How many products an entry of the adjoint is a sum of, for each feature."""
        return self._sum(lambda block, rows: np.bincount(block.indices, minlength=self.shape[1]))

    def _sum(self, function: Callable[[Any, slice], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the sum of what a function makes of the blocks of rows, of which one at a time is there."""
        blocks = self._blocks()
        total = function(*next(blocks))
        for block, rows in blocks:
            total += function(block, rows)
        return total

    def _blocks(self) -> Iterator[tuple[Any, slice]]:
        """Yield blocks of rows in double precision, without duplicates, and which rows they have.

        A copy of all of them would take as much memory again.
        """
        X, n_rows = self._X, self.shape[0]
        size = max(_SQUARES_BLOCK, self.shape[1])  # or sums over the blocks take longer than the products
        cuts = np.searchsorted(X.indptr, np.arange(size, X.nnz, size)).tolist()
        for first, last in pairwise(np.unique([0, *cuts, n_rows]).tolist() if n_rows else [0, 0]):
            stored = slice(X.indptr[first], X.indptr[last])
            starts = X.indptr[first : last + 1] - X.indptr[first]
            block = sparse.csr_matrix(
                (X.data[stored].astype(np.float64, copy=False), X.indices[stored], starts),
                shape=(last - first, self.shape[1]),
            )
            if not block.has_canonical_format:
                block = block.copy()
                block.sum_duplicates()
            yield block, slice(first, last)


@final
class MappedDesign(DesignMatrix):
    """Predictions ``X x`` for data in a memory map, dense or CSR: a block of rows at a time is in memory.

    Each product reads the file again. Nothing of it is kept but a sample of the rows.
    """

    def __init__(
        self, X: Any, n_outputs: int | None = None, features: npt.NDArray[np.intp] | None = None
    ) -> None:
        n_features = X.shape[1] if features is None else len(features)
        super().__init__((X.shape[0], n_features), n_outputs)
        self._X, self._features = X, features
        # All of a row is read, whichever features are needed.
        self._n_stored = int(self._X.nnz if sparse.issparse(X) else self._X.size)
        self._blocks = row_blocks(X.shape[0], max(_MAPPED_BLOCK * X.shape[0] // max(self._n_stored, 1), 1))

    def _block(self, rows: slice) -> DesignMatrix:
        """Return the design of a block of rows."""
        block = self._X[rows]
        if self._features is not None:
            block = block[:, self._features]
        return (
            SparseRows(block, self.n_outputs)
            if sparse.issparse(block)
            else DenseDesign(block, self.n_outputs)
        )

    def _over(self, function: Callable[[DesignMatrix, slice], Any]) -> Iterator[Any]:
        """Yield what a function makes of the blocks, one after another."""
        return (function(self._block(rows), rows) for rows in self._blocks)

    def apply(self, x: Array) -> Array:
        """Return ``X x``."""
        if not x.any():
            return np.zeros((self.shape[0], *x.shape[1:]))
        return np.concatenate(list(self._over(lambda block, rows: block.apply(x))))

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> Array:
        """Return ``X x`` for the x with these few nonzeros."""
        return np.concatenate(list(self._over(lambda block, rows: block.apply_sparse(indices, values))))

    def adjoint(self, residual: Array) -> Array:
        """Return ``X^T residual``."""
        return add_up(self._over(lambda block, rows: block.adjoint(residual[rows])))

    def rows(self, places: npt.NDArray[np.intp]) -> Any:
        """Return some of the rows."""
        rows = self._X[places]
        return rows if self._features is None else rows[:, self._features]

    def restrict(self, features: npt.NDArray[np.intp]) -> MappedDesign:
        """Return the design of some of the features."""
        kept = features if self._features is None else self._features[features]
        return MappedDesign(self._X, self.n_outputs, kept)

    def squares(self, weights: Array) -> Array:
        """Return ``sum_i weights_i X_ij^2`` for each feature, and for each column of the weights."""
        return add_up(self._over(lambda block, rows: block.squares(weights[rows])))

    def gram(self, weights: Array) -> Array:
        """Return ``X^T diag(weights) X`` as a dense matrix, for non-negative weights."""
        return add_up(self._over(lambda block, rows: block.gram(weights[rows])))

    @property
    def sample_size(self) -> int:
        """How many rows a sample has: it is in memory."""
        return min(super().sample_size, self.shape[0] // _MAPPED_ONE_IN)

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply` and `adjoint` take together: both read the file."""
        return _READING * _costs.sparse_products(self.shape, self._n_stored)

    @property
    def gram_cost(self) -> float:
        """Rough seconds that `gram` takes."""
        reading = _READING / 2.0 * _costs.sparse_products(self.shape, self._n_stored)
        return reading + min(_costs.sparse_gram(self.shape, self._n_stored), _costs.dense_gram(self.shape))

    @cached_property
    def n_terms(self) -> npt.NDArray[np.intp]:
        """How many products an entry of the adjoint is a sum of, for each feature."""
        return np.asarray(add_up(self._over(lambda block, rows: block.n_terms)))

    def _find_largest_values(self) -> Array:
        found = self._over(lambda block, rows: block.largest_values)
        return reduce(np.maximum, found, np.zeros(self.shape[1]))


def _dense_gram(shape: tuple[int, int], roots: Array, dense_rows: Callable[[Any], Array]) -> Array:
    """Return the Gram matrix of the columns, with rows multiplied by `roots`, a block of rows at a time.

    Rows that are multiplied by zero are not read.
    """
    kept, n_columns = np.flatnonzero(roots), shape[1]
    n_kept, is_whole = len(kept), len(kept) == shape[0]
    if not n_kept:
        return np.zeros((n_columns, n_columns))
    size = max(1, _GRAM_BLOCK // n_columns)

    def gram(part: slice) -> Array:
        result = np.zeros((n_columns, n_columns))
        for start in range(part.start, part.stop, size):
            places = slice(start, min(start + size, part.stop))
            rows = places if is_whole else kept[places]
            block = dense_rows(rows) * roots[rows, np.newaxis]
            result += np.dot(block.T, block)
        return result

    rows_each = max(-(-n_kept // _MOST_GRAMS), BLOCK // n_columns, int(n_columns / _GRAM_SHARE))
    return add_up(map_blocks(gram, row_blocks(n_kept, rows_each)))
