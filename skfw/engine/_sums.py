"""Sums and norms that neither overflow nor lose more digits than they must, and how many that may be."""

from __future__ import annotations

from math import fsum, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

#: Half a unit in the last place: the largest relative error of one operation that is rounded.
UNIT_ROUNDOFF = float(np.finfo(np.float64).eps) / 2.0
#: The largest error of an `inner`, relative to the sum of the absolute values. NumPy's pairwise summation
#: takes each number through 19 additions in a block of 128, and one more each time their number doubles. As
#: much again is for the operations around it.
SUM_ROUNDING = 128.0 * UNIT_ROUNDOFF
#: A sum that is this fraction of the sum of the absolute values is nothing but rounding.
NEGLIGIBLE_SUM = 8.0 * UNIT_ROUNDOFF
#: The smallest normal number. Each product that underflows is off by less than 1e-16 of it.
TINY = float(np.finfo(np.float64).tiny)

# How often a residual was rounded before it is multiplied by the data: a few times when it was computed, and,
# where it was made to sum to zero, as often as a number is in a pairwise sum.
_RESIDUAL_ROUNDINGS = 64
# Products of longer arrays are formed this many samples at a time: in the cache, not in new memory.
_BLOCK = 1 << 18


def inner(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Return the sum of the products of entries, by NumPy's own pairwise summation.

    It is more accurate than BLAS, which the certificate rests on. And it does not wait: on a busy machine
    a threaded BLAS call takes as long as its slowest thread, and a fit makes thousands of them.
    """
    if len(a) <= 4 * _BLOCK:
        return float((a * b).sum())
    return fsum(inner(a[i : i + _BLOCK], b[i : i + _BLOCK]) for i in range(0, len(a), _BLOCK))


def sum_error(n_terms: Any) -> Any:
    """Return an upper bound of the error of a sum of products of residuals with the data, in any order.

    It is relative to the sum of the absolute values. Each product is rounded when it is formed and in all but
    one of the additions; 2 % more is for products of such errors.
    """
    return 1.02 * UNIT_ROUNDOFF * (n_terms + _RESIDUAL_ROUNDINGS)


def column_sums(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the sum of each column by pairwise summation; NumPy would add row after row."""
    return np.array([column.sum() for column in x.T])


def euclidean_norm(x: npt.NDArray[Any]) -> float:
    """Return the Euclidean norm of all entries; the squares do not overflow or underflow."""
    largest = float(np.abs(x).max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return largest
    scaled = x.ravel() / largest
    return largest * sqrt(inner(scaled, scaled))
