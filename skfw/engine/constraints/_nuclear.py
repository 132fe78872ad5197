"""Nuclear-norm balls, without and with weights: matrices of low rank."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from .._atoms import RankOne, singular_values
from .._eigenvalues import largest_eigenvalue, start_noise
from .._protocols import Array, Direction, Hint, Iterate, LinearMinimum, Shape
from .._sums import TINY, euclidean_norm
from ._norm_ball import NormBall

# Up to this many rows or columns the Gram matrix of a direction is small enough for a dense eigensolver.
_DENSE_LIMIT = 100
# With smaller weights, or larger ones than the inverse, products with squares of them would overflow.
_SMALLEST_WEIGHT = 1e-70


class _NuclearNormBall(NormBall):
    """What the nuclear-norm ball and its weighted version share.

    The oracle needs the largest singular value. For small matrices it comes from a dense eigensolver.
    Otherwise it is enclosed by Lanczos' method, started near the last solution, to the accuracy the solver
    asks for. The width of the enclosure is returned as slack. It is wrong with a probability of at most 1e-12
    in each call.
    """

    random_state: int
    low_rank = True
    geometry: ClassVar[str] = "nuclear ball"

    @abstractmethod
    def weights(self, shape: Shape) -> tuple[Array, Array]:
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
        # Relative to the smallest weights and to the largest entry, so that nothing overflows or underflows.
        row_weights, column_weights = self.weights(direction.shape)
        row_scales, column_scales = row_weights.min() / row_weights, column_weights.min() / column_weights
        radius = self.radius / float(row_weights.min()) / float(column_weights.min())
        largest = float(abs(direction).max())
        if largest < TINY:
            rows, columns = np.eye(1, direction.shape[0])[0], np.eye(1, direction.shape[1])[0]
            slack = radius * largest * float(np.sqrt(np.prod(direction.shape)))
            return LinearMinimum(RankOne(rows, columns, 0.0), 0.0, slack)
        matrix = (row_scales / largest)[:, np.newaxis] * direction * column_scales
        scale = float(abs(matrix).max())
        matrix = matrix / scale
        factor = radius * largest * scale
        wide = matrix.shape[0] < matrix.shape[1]
        accuracy = hint.accuracy / radius / largest / scale
        right, upper = self._top_right_vector(matrix.T if wide else matrix, accuracy, hint)
        image = matrix.T @ right if wide else matrix @ right
        norm = float(np.linalg.norm(image))
        left = image / norm
        rows, columns = (right, left) if wide else (left, right)
        rows, columns = row_scales * rows, column_scales * columns
        sizes = float(np.linalg.norm(rows)), float(np.linalg.norm(columns))
        atom = RankOne(rows / sizes[0], columns / sizes[1], -radius * sizes[0] * sizes[1])
        return LinearMinimum(atom, -factor * norm, factor * max(upper - norm, 0.0), memory=right)

    def _top_right_vector(self, matrix: Any, accuracy: float, hint: Hint) -> tuple[Array, float]:
        """Return a right singular vector of a tall matrix, and an upper bound of all singular values."""
        size = matrix.shape[1]
        if size <= _DENSE_LIMIT:
            gram = matrix.T @ matrix
            values, vectors = np.linalg.eigh(gram)
            # The entries are sums over the rows; together their errors are at most those of the trace.
            error = sum(matrix.shape) * float(np.finfo(np.float64).eps) * float(np.trace(gram))
            return vectors[:, -1], float(np.sqrt(values[-1] + error))
        transposed = matrix.T
        found = largest_eigenvalue(
            lambda vector: transposed @ (matrix @ vector),
            size,
            start_noise(self.random_state, *hint.key),
            enough=lambda value, upper: np.sqrt(upper) - np.sqrt(value) <= accuracy,
            near=hint.memory,
        )
        return found.vector, float(np.sqrt(found.upper))

    def error_effect(self, error: Direction, zero: Iterate) -> float:
        """Return the radius times the Euclidean norm of the errors, divided by the weights."""
        row_weights, column_weights = self.weights(zero.shape)
        weighted = (1.0 / row_weights)[:, np.newaxis] * error * (1.0 / column_weights)
        return euclidean_norm(weighted.ravel()) * self.radius

    def norm(self, x: Iterate) -> float:
        """Return the sum of singular values, of an array or a `FactoredMatrix`."""
        return float(singular_values(x, *self.weights(x.shape)).sum())


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

    def weights(self, shape: Shape) -> tuple[Array, Array]:
        return np.ones(shape[0]), np.ones(shape[1])


@final
@dataclass(eq=False)  # arrays have no single truth value
class WeightedNuclearBall(_NuclearNormBall):
    """Matrices whose singular values, with rows and columns multiplied by weights, sum to at most `radius`.

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
        for name, weights, length in zip(("row", "column"), self.weights(shape), shape, strict=True):
            if weights.shape != (length,) or not np.all((weights > 0.0) & np.isfinite(weights)):
                raise ValueError(
                    f"{name}_weights must be {length} positive, finite numbers, one for each {name}; "
                    f"got an array of shape {weights.shape}."
                )
            if not _SMALLEST_WEIGHT < weights.min() <= weights.max() < 1.0 / _SMALLEST_WEIGHT:
                raise ValueError(
                    f"{name}_weights must be from {_SMALLEST_WEIGHT:g} to {1.0 / _SMALLEST_WEIGHT:g}; "
                    f"got weights from {weights.min():g} to {weights.max():g}."
                )

    def diameter(self, shape: Shape) -> float:
        """Return twice the radius, divided by the smallest weights."""
        return 2.0 * self.radius / float(np.min(self.row_weights) * np.min(self.column_weights))

    def weights(self, shape: Shape) -> tuple[Array, Array]:
        return np.asarray(self.row_weights), np.asarray(self.column_weights)
