"""A preconditioner for the factors of rows, or of columns, that features may tie together."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr

from .._protocols import Array, FactorMap
from .._sums import TINY
from .._threads import BLOCK, add_up, map_blocks, row_blocks

# Eigenvectors that are treated by themselves. They are found by this many products of subspace iteration, and
# followed by one product whenever the preconditioner is renewed.
_LARGEST, _FIRST_ROUNDS = 16, 4
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
        self._images: Array | None = None

    def renew(self, curvatures: Array, gram: Array, squares: Array, multiplier: float) -> None:
        """Have the weights of the rows, the Gram matrix, and the second derivative of the factors' norm.

        All as columns or matrices; that norm has a multiplier.
        """
        diagonal = self._map.squares.adjoint(curvatures)
        diagonal = np.maximum(diagonal, np.finfo(diagonal.dtype).eps * diagonal.max())
        ridge = max(multiplier, _SHIFT * float(np.median(diagonal / squares)), TINY) * squares
        shares, basis = np.linalg.eigh(gram * (len(gram) / max(float(np.trace(gram)), TINY)))
        shares = np.maximum(shares, 0.0)
        root = shares * diagonal  # in place from here: it is as large as the factors
        root += ridge
        np.sqrt(root, out=root)
        self._basis, self._root = basis, np.divide(1.0, root, out=root)
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

        images, n_rounds = self._images, 1
        if images is None:
            size = len(scale), min(_LARGEST, len(scale))
            images, n_rounds = self._rng.standard_normal(size), _FIRST_ROUNDS
        for _ in range(n_rounds):
            basis: npt.NDArray[Any] = qr(images.astype(scale.dtype), mode="economic")[0]
            images = image(basis)
        values, rotation = np.linalg.eigh(basis.T @ images)
        self._images, self._vectors = images, np.asarray(basis @ rotation)
        return np.asarray(values[:, np.newaxis])

    def solve(self, slope: Array) -> Array:
        """Return the approximate inverse times a slope."""
        basis, root, vectors = self._basis, self._root, self._vectors
        blocks = row_blocks(len(slope), max(BLOCK // max(len(basis), 1), 1))

        def rotated(part: slice) -> Array:
            return np.asarray(np.dot(slope[part], basis) * root[part])

        turned = map_blocks(rotated, blocks)
        if vectors is not None:
            largest = add_up(
                np.dot(vectors[part].T, block) for part, block in zip(blocks, turned, strict=True)
            )
            largest *= self._excess

        def solved(number: int) -> Array:
            result, part = turned[number] * root[blocks[number]], blocks[number]
            if vectors is not None:
                result += np.dot(vectors[part], largest) * root[part]
            return np.asarray(np.dot(result, basis.T))

        return np.concatenate(map_blocks(solved, range(len(blocks))))
