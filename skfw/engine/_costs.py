"""Rough seconds that operations take on one core, to choose between two ways of doing the same.

Only their ratios matter, and only roughly.
"""

from __future__ import annotations

_CALL, _SAMPLE = 4e-5, 5e-9
_SPARSE_ENTRY, _DENSE_ENTRY, _GATHERED_ENTRY = 1.2e-9, 5e-10, 6e-9
_SPARSE_GRAM_TERM, _DENSE_GRAM_TERM, _SCALED_ENTRY = 7e-9, 4e-11, 2e-9
_SINGLE_PRECISION = 0.5
_CHOLESKY_TERM, _SOLVE_TERM = 2e-11, 5e-10


def dense_products(shape: tuple[int, int]) -> float:
    """Return the cost of a product with a dense matrix and one with its transpose."""
    return _CALL + _SAMPLE * shape[0] + 2.0 * _DENSE_ENTRY * shape[0] * shape[1]


def sparse_products(shape: tuple[int, int], n_stored: int) -> float:
    """Return the cost of a product with a sparse matrix and one with its transpose."""
    return _CALL + _SAMPLE * shape[0] + 2.0 * _SPARSE_ENTRY * n_stored


def entry_products(n_entries: int) -> float:
    """Return the cost of the entries of a rank-one matrix, and of a product with a matrix of such entries."""
    return _CALL + (_GATHERED_ENTRY + _SPARSE_ENTRY) * n_entries


def dense_gram(shape: tuple[int, int], in_single_precision: bool = False) -> float:
    """Return the cost of the Gram matrix of the columns of a dense matrix, or of one that is made dense."""
    term = _DENSE_GRAM_TERM * (_SINGLE_PRECISION if in_single_precision else 1.0)
    return _CALL + shape[0] * shape[1] * (_SCALED_ENTRY + term * shape[1])


def sparse_gram(shape: tuple[int, int], n_stored: int) -> float:
    """Return the cost of the Gram matrix of the columns of a sparse matrix, by a sparse product."""
    return _CALL + _SPARSE_GRAM_TERM * float(n_stored) ** 2 / max(shape[0], 1)


def cholesky(size: int) -> float:
    """Return the cost of a Cholesky factorisation."""
    return _CHOLESKY_TERM * float(size) ** 3


def cholesky_solve(size: int) -> float:
    """Return the cost of solving equations with a Cholesky factor, which is read twice."""
    return _SOLVE_TERM * float(size) ** 2
