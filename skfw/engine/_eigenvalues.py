"""The largest eigenvalue of a positive semidefinite operator, with a proven bound from above.

Lanczos' estimate never exceeds the eigenvalue. A certificate needs the other side too, and the size of the
Ritz residual does not give it: it says that *some* eigenvalue is near, not that none is larger. The start
vector does. If ``q`` is its normalised version, the k-th Lanczos vector is ``p_k(A) q`` with a known
polynomial ``p_k``, and has norm one, so ``|p_k(lambda_1)| <= 1 / |<q, u_1>|`` with ``u_1`` the leading
eigenvector. Beyond its largest root ``p_k`` grows fast, so even a tiny lower bound of ``|<q, u_1>|``
confines ``lambda_1`` (van Dorsselaer, Hochstenbach and van der Vorst, SIAM J. Matrix Anal. Appl. 22, 2000).
A normal random part of the start vector gives that bound for every ``u_1``, whatever is added to it to
start near the solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh_tridiagonal

from ._protocols import Array

#: Largest probability that one call's upper bound is too small.
FAILURE_PROBABILITY = 1e-12
# Standard deviation of the random part of a start vector of norm one, times the square root of its size.
_NOISE = 1e-2
# Number of products with the operator before the first question whether it is enough.
_FIRST_CHECK = 6
_EPSILON = float(np.finfo(np.float64).eps)
# The eigenvalue of the tridiagonal matrix is off by some units in its last place, beside one a dimension.
_ROUNDINGS = 32


def start_noise(*seed: int) -> np.random.Generator:
    """Return random numbers for a start vector.

    They must not be those that the data was made from, as ``default_rng(0)`` might well be.
    """
    return np.random.default_rng([0x5EED, *seed])


@dataclass(frozen=True)
class LargestEigenvalue:
    """An eigenvalue enclosed: ``value <= lambda_1 <= upper``; `vector` has norm one and attains `value`."""

    value: float
    upper: float
    vector: Array


def largest_eigenvalue(
    apply: Callable[[Array], Array],
    size: int,
    rng: np.random.Generator,
    enough: Callable[[float, float], bool],
    near: Array | None = None,
) -> LargestEigenvalue:
    """Enclose the largest eigenvalue of a positive semidefinite operator.

    Parameters
    ----------
    apply : callable
        The operator.
    size : int
        Its dimension.
    rng : numpy.random.Generator
        Must be independent of the operator.
    enough : callable
        ``enough(value, upper)`` says whether the enclosure is tight enough. At the latest the iteration
        ends when the Krylov space is the whole space.
    near : ndarray, optional
        A vector of norm one believed to be near the leading eigenvector.

    Returns
    -------
    LargestEigenvalue
    """
    noise = rng.standard_normal(size) / np.sqrt(size)
    start = noise if near is None else near + _NOISE * noise
    scale = 1.0 if near is None else _NOISE
    norm = float(np.linalg.norm(start))
    # A normal variable with standard deviation s lies in any interval of length 2t with probability at
    # most 2t / (s sqrt(2 pi)); here s = scale / sqrt(size), and t = norm * |<q, u_1>|.
    log_growth = np.log(norm * np.sqrt(2.0 * size / np.pi) / (scale * FAILURE_PROBABILITY))

    basis = np.empty((min(size, 32), size))
    basis[0] = start / norm
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    next_check = _FIRST_CHECK
    while True:
        steps = len(diagonal)
        product = apply(basis[steps])
        diagonal.append(float(basis[steps] @ product))
        known = basis[: steps + 1]
        for _ in range(2):  # classical Gram-Schmidt needs a second round to be orthogonal to rounding
            product -= known.T @ (known @ product)
        off_diagonal.append(float(np.linalg.norm(product)))
        steps += 1
        exhausted = steps == size or off_diagonal[-1] <= _EPSILON * max(diagonal)
        if steps >= next_check or exhausted:
            ritz, vectors = eigh_tridiagonal(np.array(diagonal), np.array(off_diagonal[:-1]))
            value = max(float(ritz[-1]), 0.0)
            upper = value if steps == size else _largest_root(ritz, off_diagonal, log_growth)
            upper += (size + _ROUNDINGS) * _EPSILON * upper
            if exhausted or enough(value, upper):
                vector = vectors[:, -1] @ basis[:steps]
                return LargestEigenvalue(value, upper, vector / np.linalg.norm(vector))
            next_check = steps + max(steps // 3, 2)
        if steps == len(basis):
            basis = np.vstack([basis, np.empty((min(steps, size - steps), size))])
        basis[steps] = product / off_diagonal[-1]


def _largest_root(ritz: npt.NDArray[Any], off_diagonal: list[float], log_growth: float) -> float:
    """Solve ``p_k(t) = exp(log_growth)`` for t above all Ritz values, from above.

    ``p_k(t)`` is the product of ``t - ritz_i`` divided by the product of the off-diagonal entries.
    """
    target = log_growth + float(np.sum(np.log(np.maximum(off_diagonal, np.finfo(np.float64).tiny))))
    distances = ritz[-1] - ritz

    def excess(beyond: float) -> float:
        return float(np.sum(np.log(distances + beyond))) - target

    # All factors are at least `beyond` itself, so the root is at most the geometric mean of the target.
    high = float(np.exp(target / len(ritz)))
    low = high
    while excess(low) > 0.0 and low > _EPSILON * float(ritz[-1]):
        low /= 8.0
    while high - low > 0.02 * high:
        middle = float(np.sqrt(low) * np.sqrt(high))
        low, high = (middle, high) if excess(middle) < 0.0 else (low, middle)
    return float(ritz[-1]) + high
