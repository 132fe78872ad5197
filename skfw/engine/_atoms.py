"""Atoms, stored by their structure, and the low-rank iterate that rank-one atoms build.

The solver moves with ``(1 - step) * x + step * atom``. Iterates are values, never changed in place, so the
best one seen can be kept without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, svd

from ._protocols import Array, Data, Direction, Iterate, SampleVector


@final
@dataclass(frozen=True)
class SparseVector:
    """A point with few nonzeros: a scaled coordinate, a small support, a group.

    Parameters
    ----------
    indices : ndarray of ints
        Distinct positions in the flattened model.
    values : ndarray of the same length
    """

    indices: npt.NDArray[np.intp]
    values: Array

    __array_ufunc__ = None  # NumPy then leaves `array + atom` and `number * atom` to the methods below

    def image(self, data: Data) -> SampleVector:
        """Return the predictions of this atom."""
        return data.apply_sparse(self.indices, self.values)

    def inner(self, direction: Array) -> float:
        """Return the inner product with a direction."""
        return float(direction.ravel()[self.indices] @ self.values)

    def squared_distance(self, x: Array) -> float:
        """Return the squared Euclidean distance to `x`."""
        difference = x.ravel().copy()
        difference[self.indices] -= self.values
        return float(difference @ difference)

    def __rmul__(self, scale: float) -> SparseVector:
        return SparseVector(self.indices, scale * self.values)

    def __radd__(self, x: Array) -> Array:
        result = x.copy()
        result.reshape(-1)[self.indices] += self.values
        return result


@final
@dataclass(frozen=True)
class DenseVector:
    """A point without structure.

    Parameters
    ----------
    array : ndarray of the model's shape
    """

    array: Array

    __array_ufunc__ = None

    def image(self, data: Data) -> SampleVector:
        """Return the predictions of this atom."""
        return data.apply(self.array)

    def inner(self, direction: Array) -> float:
        """Return the inner product with a direction."""
        return float(np.vdot(direction, self.array))

    def squared_distance(self, x: Array) -> float:
        """Return the squared Euclidean distance to `x`."""
        difference = x - self.array
        return float(np.vdot(difference, difference))

    def __rmul__(self, scale: float) -> DenseVector:
        return DenseVector(scale * self.array)

    def __radd__(self, x: Array) -> Array:
        return x + self.array


@final
@dataclass(frozen=True)
class RankOne:
    """The matrix ``scale * left right^T``.

    Parameters
    ----------
    left, right : ndarray
        Vectors of norm one.
    scale : float
    """

    left: Array
    right: Array
    scale: float

    __array_ufunc__ = None

    def image(self, data: Data) -> SampleVector:
        """Return the predictions of this atom."""
        return data.apply_rank_one(self.scale * self.left, self.right)

    def inner(self, direction: Direction) -> float:
        """Return the inner product with a direction, an array or a sparse matrix."""
        return self.scale * float(self.left @ (direction @ self.right))

    def squared_distance(self, x: Iterate) -> float:
        """Return the squared Frobenius distance to `x`, an array or a `FactoredMatrix`."""
        norm = x.squared_norm if isinstance(x, FactoredMatrix) else float(np.vdot(x, x))
        inner = self.scale * float(self.left @ (x @ self.right))
        return max(norm - 2.0 * inner + self.scale * self.scale, 0.0)

    @property
    def factored(self) -> FactoredMatrix:
        """The same as a sum of one term, or of none if it is zero."""
        if self.scale == 0.0:
            return FactoredMatrix.zeros((len(self.left), len(self.right)))
        return FactoredMatrix(self.left[:, np.newaxis], self.right[:, np.newaxis], np.array([self.scale]))

    def __rmul__(self, scale: float) -> RankOne:
        return replace(self, scale=scale * self.scale)

    def __radd__(self, x: Array) -> Array:
        return x + np.outer(self.scale * self.left, self.right)


@final
@dataclass(frozen=True)
class FactoredMatrix:
    """A sum of rank-one matrices, ``left diag(weights) right^T``.

    Once there are `capacity` terms they are compressed to as many as the rank, so a long run holds
    O((rows + columns) * rank) numbers, not one pair of vectors for each iteration.

    Parameters
    ----------
    left : ndarray of shape (n_rows, n_terms)
    right : ndarray of shape (n_columns, n_terms)
    weights : ndarray of shape (n_terms,)
    capacity : int
    """

    left: Array
    right: Array
    weights: Array
    capacity: int = 64

    @classmethod
    def zeros(cls, shape: tuple[int, int]) -> FactoredMatrix:
        """Return the zero matrix, which has no terms."""
        return cls(np.zeros((shape[0], 0)), np.zeros((shape[1], 0)), np.zeros(0))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self.left), len(self.right)

    def __len__(self) -> int:
        return len(self.weights)

    def __rmul__(self, scale: float) -> FactoredMatrix:
        if scale == 0.0:
            return FactoredMatrix.zeros(self.shape)
        return replace(self, weights=scale * self.weights)

    def __add__(self, other: RankOne | FactoredMatrix) -> FactoredMatrix:
        terms = other if isinstance(other, FactoredMatrix) else other.factored
        if not len(terms):
            return self
        room = self if len(self) + len(terms) <= self.capacity else FactoredMatrix.from_svd(*self.svd())
        return replace(
            room,
            left=np.column_stack([room.left, terms.left]),
            right=np.column_stack([room.right, terms.right]),
            weights=np.append(room.weights, terms.weights),
        )

    def __matmul__(self, vector: Array) -> Array:
        result: Array = self.left @ (self.weights * (self.right.T @ vector))
        return result

    @cached_property
    def squared_norm(self) -> float:
        """Squared Frobenius norm."""
        grams = (self.left.T @ self.left) * (self.right.T @ self.right)
        return float(self.weights @ grams @ self.weights)

    def svd(self) -> tuple[Array, Array, Array]:
        """Return ``(U, s, V)`` with ``U diag(s) V^T`` equal to this matrix and only nonzero ``s``."""
        if not len(self):
            return self.left, self.weights, self.right
        left_basis, left_core = qr(self.left, mode="economic")
        right_basis, right_core = qr(self.right, mode="economic")
        left, values, right = svd((left_core * self.weights) @ right_core.T, full_matrices=False)
        rank = int(np.sum(values > max(self.shape) * np.finfo(np.float64).eps * values[0]))
        return left_basis @ left[:, :rank], values[:rank], right_basis @ right[:rank].T

    @classmethod
    def from_svd(cls, left: Array, values: Array, right: Array) -> FactoredMatrix:
        """Return ``left diag(values) right^T``, with room for as many terms again."""
        return cls(left, right, values, capacity=max(64, 2 * len(values)))


def singular_values(x: Iterate, row_weights: Array, column_weights: Array) -> Array:
    """Return the singular values of an array or a `FactoredMatrix` with its rows and columns weighted."""
    if isinstance(x, FactoredMatrix):
        left, right = row_weights[:, np.newaxis] * x.left, column_weights[:, np.newaxis] * x.right
        return FactoredMatrix(left, right, x.weights).svd()[1]
    values: Array = svd(row_weights[:, np.newaxis] * x * column_weights, compute_uv=False)
    return values
