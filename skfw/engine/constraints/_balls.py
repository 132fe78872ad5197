"""Balls of entrywise norms and their linear minimisation oracles.

An oracle returns the point of the set with the *smallest* inner product with the direction. Where the
model is a matrix, one column for each class, the entrywise norms are those of the flattened matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from .._atoms import DenseVector, SparseVector
from .._protocols import Array, Hint, LinearMinimum, Shape
from .._sums import UNIT_ROUNDOFF, euclidean_norm
from ._norm_ball import EntrywiseNormBall


@final
@dataclass
class L1Ball(EntrywiseNormBall):
    """Sum of absolute values at most `radius`: sparse models. An atom is one signed coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import L1Ball
    >>> L1Ball(2.0).lmo(np.array([1.0, -3.0])).atom
    SparseVector(indices=array([1]), values=array([2.]))
    """

    geometry: ClassVar[str] = "l1 ball"

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball."""
        index = int(np.abs(direction).argmax())
        slope = float(direction.flat[index])
        value = -self.radius * float(np.sign(slope))
        return LinearMinimum(SparseVector(np.array([index]), np.array([value])), -self.radius * abs(slope))

    def norm(self, x: Array) -> float:
        """Return the sum of absolute values."""
        return float(np.abs(x).sum())


@final
@dataclass
class L2Ball(EntrywiseNormBall):
    """Euclidean norm at most `radius`: small, dense models.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import L2Ball
    >>> L2Ball(10.0).lmo(np.array([3.0, -4.0])).atom
    DenseVector(array=array([-6.,  8.]))
    """

    geometry: ClassVar[str] = "l2 ball"

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the ball."""
        point, value = _opposite(direction, self.radius)
        return LinearMinimum(DenseVector(point), value)

    def norm(self, x: Array) -> float:
        """Return the Euclidean norm."""
        return euclidean_norm(x)


@final
@dataclass
class LInfBall(EntrywiseNormBall):
    """Largest absolute value at most `radius`: no coefficient dominates.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import LInfBall
    >>> LInfBall(0.5).lmo(np.array([3.0, -4.0])).atom
    DenseVector(array=array([-0.5,  0.5]))
    """

    geometry: ClassVar[str] = "box"

    def bounds(self, shape: Shape) -> tuple[Array, Array]:
        """Return the lower and the upper bound of each coefficient."""
        return np.full(shape, -self.radius), np.full(shape, self.radius)

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
class NSupportBall(EntrywiseNormBall):
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
    geometry: ClassVar[str] = "group ball"

    def partition(self, shape: Shape) -> npt.NDArray[np.intp]:
        """Return the group of each coefficient: each is one."""
        return np.arange(int(np.prod(shape)))

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius or the support size makes no sense."""
        super().check(shape)
        size = self.support_size
        is_integer = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
        if not (is_integer and 1 <= size <= np.prod(shape)):
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
        return float(np.hypot(euclidean_norm(sizes[:head]), tails[head] / np.sqrt(r + 1)))


@final
@dataclass(eq=False)  # arrays have no single truth value
class GroupBall(EntrywiseNormBall):
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
    geometry: ClassVar[str] = "group ball"
    #: An atom has one group.
    support_size: ClassVar[int] = 1

    def partition(self, shape: Shape) -> npt.NDArray[np.intp]:
        """Return the group of each coefficient: that of its feature."""
        return np.repeat(np.asarray(self.groups), int(np.prod(shape[1:])))

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
        groups, outputs = np.asarray(self.groups), direction[0].size
        group = int(self._group_norms(direction).argmax())
        features = np.flatnonzero(groups == group)
        values, value = _opposite(direction[features], self.radius)
        indices = (features[:, np.newaxis] * outputs + np.arange(outputs)).ravel()
        # The squares of a group are added up in sequence; another one may be larger by the rounding of that.
        n_terms = int(np.bincount(groups).max()) * outputs
        slack = 2.0 * UNIT_ROUNDOFF * n_terms * -value
        return LinearMinimum(SparseVector(indices, values.ravel()), value, slack)

    def norm(self, x: Array) -> float:
        """Return the sum of the groups' Euclidean norms."""
        return float(self._group_norms(x).sum())

    def _group_norms(self, x: Array) -> Array:
        largest = float(np.abs(x).max()) or 1.0
        squares = ((x / largest) ** 2).reshape(len(x), -1).sum(axis=1)
        return largest * np.sqrt(np.bincount(np.asarray(self.groups), squares))


def _opposite(direction: Array, radius: float) -> tuple[Array, float]:
    """Return the point of a Euclidean ball furthest against `direction`, and their inner product."""
    norm = euclidean_norm(direction)
    point = np.zeros_like(direction) if norm == 0.0 else direction / norm * -radius
    return point, -radius * norm
