"""The products in which matrix completion spends its time: compiled by numba if that is there and pays.

Otherwise NumPy and SciPy compute the same up to rounding. Either way the threads of a run share the work in
blocks, which depend on the data alone: so do the results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from operator import matmul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from .._threads import map_blocks, row_blocks

# To import numba and load what it compiled takes 0.3 s. It saves as much in a fit with this many entries of
# MovieLens 1M, and in a single product with this many.
_MANY_ENTRIES, _MANY_ENTRIES_ONCE = 300_000, 10_000_000
# Multiplications in a block: half a millisecond in compiled code, some milliseconds otherwise.
_BLOCK = 1 << 22
# Columns in a block of the product of a CSC matrix: with fewer, most time would go to reading its entries.
_WIDTH = 24
# Numbers of factors that NumPy gathers at once: they stay in the cache.
_GATHERED_BLOCK = 131_072

_Array = npt.NDArray[Any]
_Loop = Callable[..., _Array]


class _Kernels(NamedTuple):
    """The products in one thread; of rows, those of contiguous arrays that have the same precision.

    `times_rows` are those of a CSR matrix, from one to another.
    """

    inner_products: Callable[[_Array, _Array, _Array, _Array], _Array]
    times: Callable[[Any, _Array], _Array]
    times_rows: Callable[[Any, int, int, _Array], _Array]


def is_compiled(n_entries: int) -> bool:
    """Return whether the products of a fit with this many entries are in compiled code."""
    return _kernels(n_entries, _MANY_ENTRIES) is not _NUMPY


def inner_products(left: _Array, right: _Array, rows: _Array, columns: _Array, once: bool = False) -> _Array:
    """Return the inner products of rows of `left` with rows of `right`. There must be such rows.

    `once` says that it is not one of the many products of a fit.
    """
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"Factors of shapes {left.shape} and {right.shape} do not fit.")
    kind = np.result_type(left, right)
    left, right = np.ascontiguousarray(left, dtype=kind), np.ascontiguousarray(right, dtype=kind)
    kernel = _kernels(len(rows), _MANY_ENTRIES_ONCE if once else _MANY_ENTRIES).inner_products
    blocks = row_blocks(len(rows), max(_BLOCK // max(left.shape[1], 1), 1))
    if len(blocks) <= 1:
        return kernel(left, right, rows, columns)
    return np.concatenate(map_blocks(lambda part: kernel(left, right, rows[part], columns[part]), blocks))


def times(matrix: Any, dense: _Array) -> _Array:
    """Return the product of a CSR or CSC matrix with a vector or a matrix."""
    n_entries = len(matrix.data)
    kernels = _kernels(n_entries, _MANY_ENTRIES)
    n_blocks = n_entries * dense[:1].size // _BLOCK + 1
    if n_blocks == 1:
        return kernels.times(matrix, dense)
    # Not in each block anew.
    matrix = matrix.astype(np.result_type(matrix.dtype, dense), copy=False)
    dense = np.ascontiguousarray(dense)
    if matrix.format == "csr":
        bounds = np.searchsorted(matrix.indptr, np.linspace(0, n_entries, n_blocks + 1)[1:-1])
        rows = list(pairwise(np.unique([0, *bounds, matrix.shape[0]])))
        return np.concatenate(map_blocks(lambda part: kernels.times_rows(matrix, *part, dense), rows))
    if dense.ndim == 1:  # blocks of columns would have to be added up
        return kernels.times(matrix, dense)
    columns = row_blocks(dense.shape[1], _WIDTH)
    return np.hstack(
        map_blocks(lambda part: kernels.times(matrix, np.ascontiguousarray(dense[:, part])), columns)
    )


def _kernels(n_entries: int, many: int) -> _Kernels:
    return (_compiled() if n_entries >= many else None) or _NUMPY


def _gathered_products(left: _Array, right: _Array, rows: _Array, columns: _Array) -> _Array:
    """Return inner products of rows, read in blocks that stay in the cache, into the same memory."""
    result = np.zeros(len(rows), dtype=left.dtype)
    rank = left.shape[1]
    if not (rank and len(rows)):
        return result
    size = min(max(_GATHERED_BLOCK // rank, 1), len(rows))
    left_block, right_block = np.empty((2, size, rank), dtype=left.dtype)
    for part in row_blocks(len(rows), size):
        lefts, rights = left_block[: part.stop - part.start], right_block[: part.stop - part.start]
        # In its default mode NumPy would write to a copy first, lest an index be wrong. They were checked.
        np.take(left, rows[part], axis=0, out=lefts, mode="clip")
        np.take(right, columns[part], axis=0, out=rights, mode="clip")
        np.einsum("ij,ij->i", lefts, rights, out=result[part])
    return result


def _times_rows(matrix: Any, first: int, last: int, dense: _Array) -> _Array:
    """Return the product of some rows of a CSR matrix, in its memory; SciPy would copy them."""
    starts = matrix.indptr[first : last + 1]
    stored = slice(starts[0], starts[-1])
    entries = matrix.data[stored], matrix.indices[stored], starts - starts[0]
    result: _Array = sparse.csr_matrix(entries, shape=(last - first, matrix.shape[1])) @ dense
    return result


_NUMPY = _Kernels(_gathered_products, matmul, _times_rows)


@cache
def _compiled() -> _Kernels | None:
    """Return the products in compiled code; None without numba, or with one that is not for this NumPy."""
    try:
        import numba
    except ImportError:
        return None

    def compiled(loop: _Loop) -> _Loop:
        # Sums may be taken in any order, and that is all: what is not finite counts as always.
        jit = partial(numba.njit, nogil=True, fastmath={"reassoc", "contract"})
        fast: _Loop
        try:
            fast = jit(cache=True)(loop)
        except RuntimeError:  # there is no folder that compiled code could be kept in
            fast = jit()(loop)
        return fast

    inner_products_loop = compiled(_inner_products_loop)
    loops = {
        ("csr", 1): compiled(_csr_times_vector_loop),
        ("csr", 2): compiled(_csr_times_loop),
        ("csc", 1): compiled(_csc_times_vector_loop),
        ("csc", 2): compiled(_csc_times_loop),
    }

    def inner_products(left: _Array, right: _Array, rows: _Array, columns: _Array) -> _Array:
        return inner_products_loop(left, right, _unsigned(rows), _unsigned(columns))

    def product(matrix: Any, starts: _Array, n_rows: int, dense: _Array) -> _Array:
        if matrix.shape[1] != len(dense):  # the loop would read what lies beyond
            raise ValueError(f"Shapes {matrix.shape} and {dense.shape} do not fit.")
        kind = np.result_type(matrix.dtype, dense)
        data, dense = matrix.data.astype(kind, copy=False), np.ascontiguousarray(dense, dtype=kind)
        return loops[matrix.format, dense.ndim](data, _unsigned(matrix.indices), starts, dense, n_rows)

    def times(matrix: Any, dense: _Array) -> _Array:
        return product(matrix, matrix.indptr, matrix.shape[0], dense)

    def times_rows(matrix: Any, first: int, last: int, dense: _Array) -> _Array:
        return product(matrix, matrix.indptr[first : last + 1], last - first, dense)

    return _Kernels(inner_products, times, times_rows)


def _unsigned(indices: _Array) -> _Array:
    """Return the same indices as numbers without a sign, or numba would look for those that are negative."""
    return np.asarray(indices, dtype=f"i{indices.itemsize}").view(f"u{indices.itemsize}")


# What numba compiles.


def _inner_products_loop(left: _Array, right: _Array, rows: _Array, columns: _Array) -> _Array:
    result, zero = np.empty(len(rows), dtype=left.dtype), left.dtype.type(0.0)
    i = 0
    while i < len(rows):
        row = rows[i]
        # Four of the same row at once: what is read of that row is read a quarter as often.
        if i + 3 < len(rows) and rows[i + 1] == row and rows[i + 2] == row and rows[i + 3] == row:
            k, m, n, o = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
            a, b, c, d = zero, zero, zero, zero
            for j in range(left.shape[1]):
                number = left[row, j]
                a += number * right[k, j]
                b += number * right[m, j]
                c += number * right[n, j]
                d += number * right[o, j]
            result[i], result[i + 1], result[i + 2], result[i + 3] = a, b, c, d
            i += 4
        else:
            column, total = columns[i], zero
            for j in range(left.shape[1]):
                total += left[row, j] * right[column, j]
            result[i] = total
            i += 1
    return result


def _csr_times_loop(data: _Array, indices: _Array, starts: _Array, dense: _Array, n_rows: int) -> _Array:
    result = np.zeros((n_rows, dense.shape[1]), dtype=dense.dtype)
    for row in range(n_rows):
        entries, columns = data[starts[row] : starts[row + 1]], indices[starts[row] : starts[row + 1]]
        n_fours = len(entries) // 4 * 4
        # Four at once: the result is read and written a quarter as often.
        for i in range(0, n_fours, 4):
            a, b, c, d = entries[i], entries[i + 1], entries[i + 2], entries[i + 3]
            k, m, n, o = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
            for j in range(dense.shape[1]):
                result[row, j] += a * dense[k, j] + b * dense[m, j] + c * dense[n, j] + d * dense[o, j]
        for i in range(n_fours, len(entries)):
            entry, column = entries[i], columns[i]
            for j in range(dense.shape[1]):
                result[row, j] += entry * dense[column, j]
    return result


def _csr_times_vector_loop(
    data: _Array, indices: _Array, starts: _Array, vector: _Array, n_rows: int
) -> _Array:
    result = np.empty(n_rows, dtype=vector.dtype)
    for row in range(n_rows):
        entries, columns = data[starts[row] : starts[row + 1]], indices[starts[row] : starts[row + 1]]
        total = vector.dtype.type(0.0)
        for i in range(len(entries)):
            total += entries[i] * vector[columns[i]]
        result[row] = total
    return result


def _csc_times_loop(data: _Array, indices: _Array, starts: _Array, dense: _Array, n_rows: int) -> _Array:
    result = np.zeros((n_rows, dense.shape[1]), dtype=dense.dtype)
    for column in range(len(dense)):
        entries, rows = (
            data[starts[column] : starts[column + 1]],
            indices[starts[column] : starts[column + 1]],
        )
        for i in range(len(entries)):
            entry, row = entries[i], rows[i]
            for j in range(dense.shape[1]):
                result[row, j] += entry * dense[column, j]
    return result


def _csc_times_vector_loop(
    data: _Array, indices: _Array, starts: _Array, vector: _Array, n_rows: int
) -> _Array:
    result = np.zeros(n_rows, dtype=vector.dtype)
    for column in range(len(vector)):
        entries, rows = (
            data[starts[column] : starts[column + 1]],
            indices[starts[column] : starts[column + 1]],
        )
        number = vector[column]
        for i in range(len(entries)):
            result[rows[i]] += entries[i] * number
    return result
