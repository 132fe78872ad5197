"""Constraint sets and their linear minimisation oracles.

An oracle returns the point of the set with the *smallest* inner product with the direction. Where the
model is a matrix, one column for each class, the entrywise norms are those of the flattened matrix.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dnrm2

from ._atoms import DenseVector, FactoredMatrix, RankOne, SparseVector
from ._correctors import ActiveCoordinates, EuclideanBall
from ._factor_descent import FactorDescent, scaled
from ._lanczos import largest_eigenvalue, start_noise
from ._linear_maps import DesignMatrix, ObservedEntries
from ._protocols import (
    Array,
    Constraint,
    Corrector,
    Direction,
    Hint,
    Iterate,
    LinearMap,
    LinearMinimum,
    Loss,
    Shape,
)

# Up to this many rows or columns the Gram matrix of a direction is small enough for a dense eigensolver.
_DENSE_LIMIT = 100


def _euclidean_norm(x: Array) -> float:
    """Euclidean norm of the entries; this routine of BLAS does not overflow or underflow in the squares."""
    return float(dnrm2(x.ravel())) if x.size else 0.0


def _opposite(direction: Array, radius: float) -> tuple[Array, float]:
    """Return the point of a Euclidean ball furthest against `direction`, and their inner product."""
    norm = _euclidean_norm(direction)
    point = np.zeros_like(direction) if norm == 0.0 else direction / norm * -radius
    return point, -radius * norm


def _check_radius(constraint: Any) -> None:
    radius = constraint.radius
    if not (isinstance(radius, Real) and 0.0 < float(radius) < np.inf):
        raise ValueError(
            f"radius must be a positive, finite number; "
            f"got radius={radius!r} for {type(constraint).__name__}."
        )


@dataclass
class NormBall(Constraint):
    """All models with a norm of at most `radius`.

    Parameters
    ----------
    radius : float
        Positive.
    """

    radius: float
    contains_zero = True

    @abstractmethod
    def norm(self, x: Iterate) -> float:
        """Return the norm of `x`."""

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius is not a positive, finite number."""
        _check_radius(self)

    def diameter(self, shape: Shape) -> float:
        """Return twice the radius: the largest Euclidean norm in the set is the radius."""
        return 2.0 * self.radius

    def scale_into(self, x: Iterate) -> Iterate:
        """Shrink `x` into the ball if it is outside."""
        norm = self.norm(x)
        return x if norm <= self.radius else (self.radius / norm) * x


@final
@dataclass
class L1Ball(NormBall):
    """Sum of absolute values at most `radius`: sparse models. An atom is one signed coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import L1Ball
    >>> L1Ball(2.0).lmo(np.array([1.0, -3.0])).atom
    SparseVector(indices=array([1]), values=array([2.]))
    """

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball."""
        index = int(np.abs(direction).argmax())
        slope = float(direction.flat[index])
        value = -self.radius * float(np.sign(slope))
        return LinearMinimum(SparseVector(np.array([index]), np.array([value])), -self.radius * abs(slope))

    def norm(self, x: Array) -> float:
        """Return the sum of absolute values."""
        return float(np.abs(x).sum())

    def corrector(self, loss: Loss, linear_map: LinearMap) -> Corrector | None:
        """Re-optimise the nonzero coordinates."""
        if not isinstance(linear_map, DesignMatrix):
            return None
        return ActiveCoordinates(loss, linear_map, self.radius, signed=True)


@final
@dataclass
class L2Ball(NormBall):
    """Euclidean norm at most `radius`: small, dense models.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import L2Ball
    >>> L2Ball(10.0).lmo(np.array([3.0, -4.0])).atom
    DenseVector(array=array([-6.,  8.]))
    """

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball."""
        point, value = _opposite(direction, self.radius)
        return LinearMinimum(DenseVector(point), value)

    def norm(self, x: Array) -> float:
        """Return the Euclidean norm."""
        return _euclidean_norm(x)

    def corrector(self, loss: Loss, linear_map: LinearMap) -> Corrector | None:
        """Take Newton steps in the ball."""
        return EuclideanBall(loss, linear_map, self.radius) if isinstance(linear_map, DesignMatrix) else None


@final
@dataclass
class LInfBall(NormBall):
    """Largest absolute value at most `radius`: no coefficient dominates.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import LInfBall
    >>> LInfBall(0.5).lmo(np.array([3.0, -4.0])).atom
    DenseVector(array=array([-0.5,  0.5]))
    """

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball."""
        atom = -self.radius * np.sign(direction)
        return LinearMinimum(DenseVector(atom), -self.radius * float(np.abs(direction).sum()))

    def norm(self, x: Array) -> float:
        """Return the largest absolute value."""
        return float(np.abs(x).max())

    def diameter(self, shape: Shape) -> float:
        """Return the length of the cube's diagonal."""
        return 2.0 * self.radius * float(np.sqrt(np.prod(shape)))


@final
@dataclass
class NSupportBall(NormBall):
    """Convex hull of the models with at most `support_size` nonzeros and Euclidean norm `radius`.

    Between the l1 ball (`support_size` 1) and the l2 ball: sparse, but it keeps correlated features
    together. See Argyriou, Foygel and Srebro, "Sparse prediction with the k-support norm" (2012).

    Parameters
    ----------
    radius : float
        Positive.
    support_size : int
        From one to the number of coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import NSupportBall
    >>> ball = NSupportBall(5.0, support_size=2)
    >>> float(ball.lmo(np.array([3.0, 1.0, -4.0])).value)
    -25.0
    >>> round(ball.norm(np.array([3.0, 0.0, -4.0])), 6)
    5.0
    """

    support_size: int = 2

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius or the support size makes no sense."""
        super().check(shape)
        size = self.support_size
        if not (isinstance(size, (int, np.integer)) and 1 <= size <= np.prod(shape)):
            raise ValueError(
                f"support_size must be an integer from 1 to the number of coefficients, "
                f"{np.prod(shape)} here (n_features={shape[0]}); got support_size={size!r}."
            )

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball: keep the largest entries, scaled to the radius."""
        flat = direction.ravel()
        if self.support_size < flat.size:
            indices = np.argpartition(np.abs(flat), -self.support_size)[-self.support_size :]
        else:
            indices = np.arange(flat.size)
        values, value = _opposite(flat[indices], self.radius)
        return LinearMinimum(SparseVector(indices, values), value)

    def norm(self, x: Array) -> float:
        """Return the n-support norm (proposition 2.1 of the reference)."""
        sizes = np.sort(np.abs(x).ravel())[::-1]
        tails = np.cumsum(sizes[::-1])[::-1]
        for r in range(self.support_size):
            head = self.support_size - r - 1
            if head == 0 or sizes[head - 1] > tails[head] / (r + 1):
                break
        return float(np.hypot(_euclidean_norm(sizes[:head]), tails[head] / np.sqrt(r + 1)))


@final
@dataclass(eq=False)  # arrays have no single truth value
class GroupBall(NormBall):
    """Sum over groups of their Euclidean norms at most `radius`: whole groups are in or out.

    With one group for each feature of a multiclass model, features are selected for all classes at once.

    Parameters
    ----------
    radius : float
        Positive.
    groups : ndarray of shape (n_features,), integers
        The group of each feature, numbered from zero.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import GroupBall
    >>> ball = GroupBall(5.0, groups=np.array([0, 0, 1]))
    >>> ball.lmo(np.array([3.0, -4.0, 4.5])).atom
    SparseVector(indices=array([0, 1]), values=array([-3.,  4.]))
    """

    groups: npt.NDArray[np.intp]

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius or the groups make no sense."""
        super().check(shape)
        groups = np.asarray(self.groups)
        if groups.shape != shape[:1] or groups.dtype.kind not in "iu" or groups.min() < 0:
            raise ValueError(
                f"groups must hold one non-negative integer for each of the {shape[0]} features; "
                f"got groups={self.groups!r}."
            )

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball: the group with the largest norm takes it all."""
        group = int(self._group_norms(direction).argmax())
        features = np.flatnonzero(np.asarray(self.groups) == group)
        values, value = _opposite(direction[features], self.radius)
        outputs = direction[0].size
        indices = (features[:, np.newaxis] * outputs + np.arange(outputs)).ravel()
        return LinearMinimum(SparseVector(indices, values.ravel()), value)

    def norm(self, x: Array) -> float:
        """Return the sum of the groups' Euclidean norms."""
        return float(self._group_norms(x).sum())

    def _group_norms(self, x: Array) -> Array:
        largest = float(np.abs(x).max()) or 1.0
        squares = ((x / largest) ** 2).reshape(len(x), -1).sum(axis=1)
        return largest * np.sqrt(np.bincount(np.asarray(self.groups), squares))


@final
@dataclass
class Simplex(Constraint):
    """Non-negative models with sum exactly `radius`.

    Parameters
    ----------
    radius : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import Simplex
    >>> Simplex(1.0).lmo(np.array([1.0, -3.0])).atom
    SparseVector(indices=array([1]), values=array([1.]))
    """

    radius: float

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius is not a positive, finite number."""
        _check_radius(self)

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the simplex."""
        index = int(direction.argmin())
        atom = SparseVector(np.array([index]), np.array([float(self.radius)]))
        return LinearMinimum(atom, self.radius * float(direction.flat[index]))

    def diameter(self, shape: Shape) -> float:
        """Return the distance of two vertices."""
        return float(np.sqrt(2.0)) * self.radius

    def scale_into(self, x: Array) -> Array | None:
        """Scale a non-negative `x` to the right sum."""
        total = float(x.sum())
        return self.radius / total * x if x.min() >= 0.0 and total > 0.0 else None

    def corrector(self, loss: Loss, linear_map: LinearMap) -> Corrector | None:
        """Re-optimise the nonzero coordinates."""
        if not isinstance(linear_map, DesignMatrix):
            return None
        return ActiveCoordinates(loss, linear_map, self.radius, signed=False)


class _NuclearNormBall(NormBall):
    """What the nuclear-norm ball and its weighted version share.

    The oracle needs the largest singular value. For small matrices it is exact. Otherwise it is enclosed by
    Lanczos' method, started near the last solution, to the accuracy the solver asks for; the width of the
    enclosure is returned as slack. The enclosure is wrong with a probability of at most 1e-12.
    """

    random_state: int
    low_rank = True

    @abstractmethod
    def _weights(self, shape: Shape) -> tuple[Array, Array]:
        """Return what rows and columns are multiplied by before the norm is taken."""

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius makes no sense or the model is not a matrix."""
        super().check(shape)
        if len(shape) != 2:
            raise ValueError(
                "A nuclear-norm ball needs a matrix of coefficients, one column for each of three or more "
                "classes. The coefficients of a binary model are a vector, for which this ball is the "
                "Euclidean one: use constraint='l2'."
            )

    def lmo(self, direction: Direction, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball: the top singular vectors, with a minus sign."""
        hint = hint or Hint()
        row_weights, column_weights = self._weights(direction.shape)
        scale = float(abs(direction).max())
        if scale == 0.0:
            rows, columns = np.eye(1, direction.shape[0])[0], np.eye(1, direction.shape[1])[0]
            return LinearMinimum(RankOne(rows, columns, 0.0), 0.0)
        matrix = scaled(direction, 1.0 / row_weights, 1.0 / column_weights, unit=scale)
        wide = matrix.shape[0] < matrix.shape[1]
        near = None
        if isinstance(hint.atom, RankOne):
            near = row_weights * hint.atom.left if wide else column_weights * hint.atom.right
            near /= np.linalg.norm(near)
        accuracy = hint.accuracy / self.radius / scale
        right, upper = self._top_right_vector(matrix.T if wide else matrix, near, accuracy, hint)
        image = matrix.T @ right if wide else matrix @ right
        norm = float(np.linalg.norm(image))
        left = image / norm
        slack = self.radius * scale * max(upper - norm, 0.0)
        rows, columns = (right, left) if wide else (left, right)
        rows, columns = rows / row_weights, columns / column_weights
        sizes = float(np.linalg.norm(rows)), float(np.linalg.norm(columns))
        atom = RankOne(rows / sizes[0], columns / sizes[1], -self.radius * sizes[0] * sizes[1])
        return LinearMinimum(atom, -self.radius * scale * norm, slack)

    def _top_right_vector(
        self, matrix: Any, near: Array | None, accuracy: float, hint: Hint
    ) -> tuple[Array, float]:
        """Return a right singular vector of a tall matrix, and an upper bound of all singular values."""
        size = matrix.shape[1]
        if size <= _DENSE_LIMIT:
            gram = matrix.T @ matrix
            values, vectors = np.linalg.eigh(gram if isinstance(gram, np.ndarray) else gram.toarray())
            return vectors[:, -1], float(np.sqrt(values[-1] * (1.0 + size * np.finfo(np.float64).eps)))
        transposed = matrix.T
        found = largest_eigenvalue(
            lambda vector: transposed @ (matrix @ vector),
            size,
            start_noise(self.random_state, hint.iteration),
            enough=lambda value, upper: np.sqrt(upper) - np.sqrt(value) <= accuracy,
            near=near,
        )
        return found.vector, float(np.sqrt(found.upper))

    def norm(self, x: Iterate) -> float:
        """Return the sum of singular values, of an array or a `FactoredMatrix`."""
        rows, columns = self._weights(x.shape)
        if isinstance(x, FactoredMatrix):
            left, right = rows[:, np.newaxis] * x.left, columns[:, np.newaxis] * x.right
            return float(FactoredMatrix(left, right, x.weights).svd()[1].sum())
        return float(np.linalg.svd(scaled(x, rows, columns), compute_uv=False).sum())

    def corrector(self, loss: Loss, linear_map: LinearMap) -> Corrector | None:
        """Return the corrector that descends on the factors."""
        if not isinstance(linear_map, ObservedEntries):
            return None
        weights = self._weights(linear_map.shape)
        return FactorDescent(loss, linear_map, self.radius, *weights, seed=self.random_state)


@final
@dataclass
class NuclearBall(_NuclearNormBall):
    """Matrices whose singular values sum to at most `radius`: low rank. An atom has rank one.

    Parameters
    ----------
    radius : float
        Positive.
    random_state : int
        Seed of Lanczos' start vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import NuclearBall
    >>> minimum = NuclearBall(2.0).lmo(np.diag([1.0, 3.0]))
    >>> round(minimum.value, 9), minimum.slack < 1e-9
    (-6.0, True)
    """

    random_state: int = 0

    def _weights(self, shape: Shape) -> tuple[Array, Array]:
        return np.ones(shape[0]), np.ones(shape[1])


@final
@dataclass
class WeightedNuclearBall(_NuclearNormBall):
    """Matrices whose singular values, with rows and columns weighted, sum to at most `radius`.

    With weights that grow with the number of entries known, rows and columns of which little is known are
    free to follow the others (Srebro and Salakhutdinov, 2010).

    Parameters
    ----------
    radius : float
        Positive.
    row_weights, column_weights : ndarray
        Positive; the rows and columns are multiplied by them.
    random_state : int
        Seed of Lanczos' start vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import WeightedNuclearBall
    >>> ball = WeightedNuclearBall(2.0, np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    >>> round(ball.norm(np.diag([1.0, 3.0])), 9), round(ball.lmo(np.diag([1.0, 3.0])).value, 9)
    (7.0, -3.0)
    """

    row_weights: Array
    column_weights: Array
    random_state: int = 0

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the weights do not fit a matrix of this shape."""
        super().check(shape)
        for name, weights, length in zip(("row", "column"), self._weights(shape), shape, strict=True):
            if weights.shape != (length,) or not np.all((weights > 0.0) & np.isfinite(weights)):
                raise ValueError(
                    f"{name}_weights must be {length} positive, finite numbers, one for each {name}; "
                    f"got an array of shape {weights.shape}."
                )

    def diameter(self, shape: Shape) -> float:
        """Return twice the radius, divided by the smallest weights."""
        return 2.0 * self.radius / float(np.min(self.row_weights) * np.min(self.column_weights))

    def _weights(self, shape: Shape) -> tuple[Array, Array]:
        return np.asarray(self.row_weights), np.asarray(self.column_weights)
