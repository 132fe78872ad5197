"""A preconditioner for the factors of rows, or of columns, that features may tie together."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr

from .._protocols import Array, FactorMap
from .._sums import TINY

# Eigenvectors that are treated by themselves. They are found by this many rounds of subspace iteration, and
# followed by one round whenever the preconditioner is renewed.
_LARGEST, _FIRST_ROUNDS = 16, 3
# What is added is at least this multiple of the median, which a few features of a large size do not change.
_SHIFT = 0.03


@final
class Stiffness:
    """Approximate inverses of the second derivative of the loss in the factors of one side.

    With the factors of the other side fixed, the second derivative is about a product of two matrices. One is
    the Gram matrix of those factors. The other is ``A^T diag(c) A``: the map of this side, and the weight of
    each of its rows. Without features it is diagonal. A feature that most rows have makes it anything but
    that: relative to its diagonal its largest eigenvalue is in the hundreds, a few more are large, and all
    others are about one. So the diagonal is scaled to one, and the largest eigenvalues are treated exactly.

    Parameters
    ----------
    factor_map : FactorMap
        ``A``.
    rng : numpy.random.Generator
    """

    def __init__(self, factor_map: FactorMap, rng: np.random.Generator) -> None:
        self._map, self._rng = factor_map, rng
        self._vectors: Array | None = None

    def renew(self, curvatures: Array, gram: Array, squares: Array, multiplier: float) -> None:
        """Have the weights of the rows, the Gram matrix, and the second derivative of the factors' norm.

        All as columns or matrices; that norm has a multiplier.
        """
        diagonal = self._map.squares.adjoint(curvatures)
        diagonal = np.maximum(diagonal, np.finfo(diagonal.dtype).eps * diagonal.max())
        ridge = max(multiplier, _SHIFT * float(np.median(diagonal / squares)), TINY) * squares
        shares, basis = np.linalg.eigh(gram * (len(gram) / max(float(np.trace(gram)), TINY)))
        shares = np.maximum(shares, 0.0)
        self._basis, self._root = basis, 1.0 / np.sqrt(shares * diagonal + ridge)
        if self._map.is_identity:
            return
        largest = self._largest_eigenvalues(curvatures, 1.0 / np.sqrt(diagonal))
        # As if what is added were the same multiple of the diagonal everywhere.
        added = np.median(ridge / diagonal)
        self._excess = (shares + added) / (np.maximum(largest, 1.0) * shares + added) - 1.0

    def _largest_eigenvalues(self, curvatures: Array, scale: Array) -> Array:
        """Return, as a column, those of the scaled matrix; keep their eigenvectors."""

        def image(vectors: Array) -> Array:
            return scale * self._map.adjoint(curvatures * self._map.apply(scale * vectors))

        vectors, n_rounds = self._vectors, 1
        if vectors is None:
            size = len(scale), min(_LARGEST, len(scale))
            vectors, n_rounds = self._rng.standard_normal(size), _FIRST_ROUNDS
        basis: npt.NDArray[Any] = vectors.astype(scale.dtype)
        for _ in range(n_rounds):
            basis = qr(image(basis), mode="economic")[0]
        values, rotation = np.linalg.eigh(basis.T @ image(basis))
        self._vectors = np.asarray(basis @ rotation)
        return np.asarray(values[:, np.newaxis])

    def solve(self, slope: Array) -> Array:
        """Return the approximate inverse times a slope."""
        result = slope @ self._basis
        result *= self._root
        if self._vectors is not None:
            result += self._vectors @ (self._excess * (self._vectors.T @ result))
        result *= self._root
        return np.asarray(result @ self._basis.T)
