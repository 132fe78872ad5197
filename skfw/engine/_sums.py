"""Sums and norms that neither overflow nor lose more digits than they must."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dnrm2

# Products of longer arrays are formed this many samples at a time: in the cache, not in new memory.
_BLOCK = 1 << 18


def inner(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Return the sum of the products of entries, by NumPy's own pairwise summation.

    It is more accurate than BLAS, which the certificate rests on. And it does not wait: on a busy machine
    a threaded BLAS call takes as long as its slowest thread, and a fit makes thousands of them.
    """
    if len(a) <= 4 * _BLOCK:
        return float((a * b).sum())
    return sum(inner(a[i : i + _BLOCK], b[i : i + _BLOCK]) for i in range(0, len(a), _BLOCK))


def euclidean_norm(x: npt.NDArray[Any]) -> float:
    """Return the Euclidean norm of all entries; the squares do not overflow or underflow."""
    return float(dnrm2(x.ravel())) if x.size else 0.0
