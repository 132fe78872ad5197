"""Boxes: each coefficient between two bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from .._atoms import DenseVector
from .._protocols import Array, Constraint, Hint, LinearMinimum, Shape
from .._sums import SUM_ROUNDING, euclidean_norm


@final
@dataclass(eq=False)  # arrays have no single truth value
class Box(Constraint):
    """Each coefficient between two bounds: signs, ranges, coefficients that are known.

    Parameters
    ----------
    lower, upper : float or ndarray of shape (n_features,)
        Finite. Equal bounds fix a coefficient. Where a model has several outputs, the bounds of a feature
        hold for its coefficient in each of them.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import Box
    >>> Box(0.0, np.array([1.0, 2.0, 2.0])).lmo(np.array([-3.0, 4.0, -1.0])).atom
    DenseVector(array=array([1., 0., 2.]))
    """

    lower: float | Array
    upper: float | Array
    geometry: ClassVar[str] = "box"

    @property
    def contains_zero(self) -> bool:  # type: ignore[override]
        """Whether no coefficient must be positive or negative."""
        return bool(np.max(self.lower) <= 0.0 <= np.min(self.upper))

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the bounds are no finite numbers, do not fit the features, or cross."""
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            check_numbers(name, bound, [(), shape[:1]], f"one number, or one for each of {shape[0]} features")
        check_crossing("lower must not be above upper", *np.broadcast_arrays(self.lower, self.upper))

    def bounds(self, shape: Shape) -> tuple[Array, Array]:
        """Return the lower and the upper bound of each coefficient."""
        return _of_features(self.lower, shape), _of_features(self.upper, shape)

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the box: each coefficient is at one of its bounds."""
        lower, upper = self.bounds(direction.shape)
        atom = np.where(direction > 0.0, lower, upper)
        products = direction * atom
        slack = SUM_ROUNDING * float(np.abs(products).sum())  # products of both signs may cancel
        return LinearMinimum(DenseVector(atom), float(products.sum()), slack)

    def diameter(self, shape: Shape) -> float:
        """Return the length of the diagonal."""
        lower, upper = self.bounds(shape)
        return euclidean_norm(upper - lower)

    def scale_into(self, x: Array) -> Array:
        """Move each coefficient to the nearest within its bounds."""
        return np.asarray(np.clip(x, *self.bounds(x.shape)))

    def restored(self, x: Array) -> Array:
        """Return the same as `scale_into`."""
        return self.scale_into(x)

    def error_effect(self, error: Array, zero: Array) -> float:
        """Return the largest inner product of the errors with the sizes of a point of the box."""
        lower, upper = self.bounds(zero.shape)
        return float((error * np.maximum(-lower, upper)).sum())


def check_numbers(name: str, values: Any, shapes: list[Shape], wanted: str) -> None:
    """Raise a ValueError unless a parameter has finite numbers in one of the shapes."""
    try:
        array = np.asarray(values)
        array = np.full(1, np.nan) if array.dtype.kind == "c" else array.astype(np.float64)
    except (TypeError, ValueError):
        array = np.full(1, np.nan)
    if not np.isfinite(array).all() or array.shape not in shapes:
        found = f"an array of shape {values.shape}" if isinstance(values, np.ndarray) else f"{values!r:.80}"
        raise ValueError(f"{name} must be {wanted}, all finite; got {name}={found}.")


def check_crossing(wanted: str, lower: Array, upper: Array) -> None:
    """Raise a ValueError that says what is wanted if a lower bound is above its upper one."""
    crossed = np.flatnonzero(lower > upper)
    if len(crossed):
        first = int(crossed[0])
        raise ValueError(
            f"{wanted}; got {lower.flat[first]:g} above {upper.flat[first]:g} for feature {first}."
        )


def _of_features(bound: float | Array, shape: Shape) -> Array:
    """Return the bound of each coefficient, in the shape of the model."""
    numbers = np.asarray(bound, dtype=np.float64)
    if numbers.ndim and len(shape) == 2:
        numbers = numbers[:, np.newaxis]
    return np.broadcast_to(numbers, shape)
