"""Design matrices whose rows are in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from .. import _costs
from .._eigenvalues import largest_eigenvalue, start_noise
from .._protocols import Array
from .._shards import Deferred, Origin, Pieces, Runner, ShardVector
from ._design_matrix import DesignMatrix

# A sample of the rows has at most about this many stored numbers: it is brought here.
_LARGEST_SAMPLE = 1 << 22


@final
@dataclass(frozen=True)
class Extent:
    """What is known of the rows of a block, or of all of them, before anything is computed.

    Attributes
    ----------
    n_rows, n_stored : int
        Of a dense matrix all entries are stored.
    largest : ndarray of shape (n_features,)
        The largest absolute values.
    n_terms : ndarray of shape (n_features,)
        How many rows an adjoint product sums over.
    """

    n_rows: int
    n_stored: int
    largest: Array
    n_terms: npt.NDArray[np.intp]

    @classmethod
    def of(cls, design: DesignMatrix) -> Extent:
        """Return the extent of a design in memory."""
        n_rows, n_features = design.shape
        if not n_rows:
            return cls(0, 0, np.zeros(n_features), np.zeros(n_features, dtype=np.intp))
        n_terms = np.broadcast_to(np.asarray(design.n_terms), (n_features,))
        return cls(n_rows, int(n_terms.sum()), design.largest_values, n_terms)

    @classmethod
    def joined(cls, extents: Sequence[Extent]) -> Extent:
        """Return the extent of all rows."""
        return cls(
            sum(each.n_rows for each in extents),
            sum(each.n_stored for each in extents),
            np.max([each.largest for each in extents], axis=0),
            np.sum([each.n_terms for each in extents], axis=0),
        )


@final
class ShardedDesign(DesignMatrix):
    """Predictions ``X x`` where the rows of X are in blocks.

    Parameters
    ----------
    runner : Runner
        Where the blocks are.
    designs : Pieces
        A `DesignMatrix` of each block.
    extents : sequence of Extent
        Those of the blocks.
    n_outputs : int, optional
        Number of columns of the model.
    """

    def __init__(
        self, runner: Runner, designs: Pieces, extents: Sequence[Extent], n_outputs: int | None = None
    ) -> None:
        self.runner, self.designs, self.extents = runner, designs, tuple(extents)
        self._extent = Extent.joined(self.extents)
        super().__init__((self._extent.n_rows, len(self._extent.largest)), n_outputs)

    def apply(self, x: Array) -> ShardVector:
        """Return ``X x``."""
        return ShardVector({Deferred(_apply, self.designs, x): 1.0}, self._origin(x))

    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> ShardVector:
        """Return ``X x`` for the x with these few nonzeros."""
        x = self.zeros()
        x.reshape(-1)[indices] = values
        terms: dict[Pieces, float] = {Deferred(_apply_sparse, self.designs, indices, values): 1.0}
        return ShardVector(terms, self._origin(x))

    def apply_rank_one(self, left: Array, right: Array) -> ShardVector:
        """Return ``(X left) right^T``."""
        return ShardVector.of(Deferred(_apply_rank_one, self.designs, left, right))

    def _origin(self, x: Array) -> Origin | None:
        return Origin(self, x) if self.n_outputs is None else None

    def adjoint(self, residual: ShardVector) -> Array:
        """Return ``X^T residual``."""
        return np.asarray(self.runner.sums(_adjoint, self.designs, residual, size=self._size)[0])

    def squares(self, weights: ShardVector) -> Array:
        """Return ``sum_i weights_i X_ij^2`` for each feature, and for each column of the weights."""
        return np.asarray(self.runner.sums(_squares, self.designs, weights, size=self._size)[0])

    def gram(self, weights: ShardVector) -> Array:
        """Return ``X^T diag(weights) X`` as a dense matrix, for non-negative weights."""
        size = self.shape[1] ** 2
        return np.asarray(self.runner.sums(_gram, self.designs, weights, size=size)[0])

    def squared_norm(self, weights: ShardVector) -> float:
        """Return an upper bound, 1 % above the value, of the top eigenvalue of ``X^T diag(weights) X``."""
        scale = float(self.largest_values.max(initial=0.0))
        if scale == 0.0:
            return 0.0
        found = largest_eigenvalue(
            lambda x: np.asarray(
                self.runner.sums(_scaled_product, self.designs, weights, x, scale, size=self._size)[0]
            ),
            self.shape[1],
            start_noise(),
            enough=lambda value, upper: upper <= 1.01 * value,
        )
        return found.upper * scale * scale

    @property
    def _size(self) -> int:
        """How many numbers a model has."""
        return self.shape[1] * (self.n_outputs or 1)

    def rows(self, places: Pieces) -> Any:
        """Return some of the rows, which are brought here: those at given places in each of the blocks."""
        found = self.runner.parts(self.runner.map(_some_rows, self.designs, places))
        return sparse.vstack(found, format="csr") if sparse.issparse(found[0]) else np.concatenate(found)

    @cached_property
    def sample(self) -> tuple[Any, DesignMatrix] | None:
        """Some rows at random, and the design they give, in memory; None if there are not many."""
        n_rows = self.shape[0]
        size = min(self.sample_size, int(_LARGEST_SAMPLE * n_rows / max(self._extent.n_stored, 1)))
        if size < self.fewest_samples:
            return None
        chosen = np.sort(np.random.default_rng(0).choice(n_rows, size, replace=False))
        starts = np.cumsum([0, *(each.n_rows for each in self.extents)])
        cuts = np.searchsorted(chosen, starts)
        places = [chosen[cuts[k] : cuts[k + 1]] - starts[k] for k in range(len(self.extents))]
        rows = Pieces(self.runner.spread(places))
        return rows, self.subset(rows)

    def restrict(self, features: npt.NDArray[np.intp]) -> ShardedDesign:
        """Return the design of some of the features."""
        extents = [
            Extent(
                each.n_rows, int(each.n_terms[features].sum()), each.largest[features], each.n_terms[features]
            )
            for each in self.extents
        ]
        designs = self.runner.map(_restrict, self.designs, features)
        return ShardedDesign(self.runner, designs, extents, self.n_outputs)

    def inner(self, a: ShardVector, b: ShardVector) -> float:
        """Return the inner product of two sample vectors."""
        return float(self.inner_products([a], [b])[0, 0])

    def inner_products(self, a: Sequence[ShardVector], b: Sequence[ShardVector]) -> Array:
        """Return the inner products of each vector of `a` with each of `b`."""
        return np.asarray(self.runner.sums(_inner_products, self.designs, len(a), *a, *b)[0])

    def largest(self, a: ShardVector) -> float:
        """Return the largest absolute value in a sample vector."""
        return self.size_and_slope(a, a)[0]

    def size_and_slope(self, change: ShardVector, residual: ShardVector) -> tuple[float, float]:
        """Return the largest absolute value in a change, and the slope along the change divided by that."""
        found = self.runner.parts(self.runner.map(_size_and_slope, self.designs, change, residual))
        sizes, slopes = np.array(found).T
        size = float(sizes.max())
        return size, float((sizes / size) @ slopes) if size > 0.0 else 0.0

    @property
    def product_cost(self) -> float:
        """Rough seconds that `apply` and `adjoint` take together."""
        return self.runner.latency + _costs.sparse_products(self.shape, self._extent.n_stored)

    @property
    def gram_cost(self) -> float:
        """Rough seconds that `gram` takes."""
        sparse_cost = _costs.sparse_gram(self.shape, self._extent.n_stored)
        return self.runner.latency + min(sparse_cost, _costs.dense_gram(self.shape))

    @property
    def n_terms(self) -> npt.NDArray[np.intp]:
        """How many products an entry of the adjoint is a sum of."""
        return self._extent.n_terms

    def _find_largest_values(self) -> Array:
        return self._extent.largest


# What is done with a block.


def _apply(design: DesignMatrix, x: Array) -> Array:
    return np.asarray(design.apply(x))


def _apply_sparse(design: DesignMatrix, indices: npt.NDArray[np.intp], values: Array) -> Array:
    return np.asarray(design.apply_sparse(indices, values))


def _apply_rank_one(design: DesignMatrix, left: Array, right: Array) -> Array:
    return np.asarray(design.apply_rank_one(left, right))


def _adjoint(design: DesignMatrix, residual: Array) -> tuple[Array]:
    return (np.asarray(design.adjoint(residual)),)


def _squares(design: DesignMatrix, weights: Array) -> tuple[Array]:
    return (design.squares(weights),)


def _gram(design: DesignMatrix, weights: Array) -> tuple[Array]:
    return (design.gram(weights),)


def _scaled_product(design: DesignMatrix, weights: Array, x: Array, scale: float) -> tuple[Array]:
    return (np.asarray(design.adjoint(weights * (design.apply(x) / scale))) / scale,)


def _some_rows(design: DesignMatrix, rows: npt.NDArray[np.intp]) -> Any:
    return design.rows(rows)


def _restrict(design: DesignMatrix, features: npt.NDArray[np.intp]) -> DesignMatrix:
    return design.restrict(features)


def _inner_products(design: DesignMatrix, n_first: int, *vectors: Array) -> tuple[Array]:
    return (design.inner_products(vectors[:n_first], vectors[n_first:]),)


def _size_and_slope(design: DesignMatrix, change: Array, residual: Array) -> tuple[float, float]:
    return design.size_and_slope(change, residual)
