"""The coordinates that a corrector works with, and their columns of the design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from .._costs import cholesky
from .._protocols import Array, Design, Hessian, SampleVector

# Columns are not gathered anew where at least this fraction of those at hand is needed.
_REUSE = 0.7
# Divided by a diagonal of this, nothing overflows.
_SMALLEST = float(np.finfo(np.float64).tiny) / (4.0 * float(np.finfo(np.float64).eps))


@final
@dataclass(frozen=True)
class Coordinates:
    """Models of a design that are zero but at some coordinates.

    Parameters
    ----------
    design : Design
        It has the features that are needed, and perhaps some more.
    places : ndarray of ints
        Where the coordinates are in its flattened models.
    """

    design: Design
    places: npt.NDArray[np.intp]

    def apply(self, values: Array) -> SampleVector:
        """Return the predictions of the model with these values."""
        model = self.design.zeros()
        model.reshape(-1)[self.places] = values
        return self.design.apply(model)

    def adjoint(self, residual: SampleVector) -> Array:
        """Return the slopes of the coordinates."""
        result: Array = self.design.adjoint(residual).reshape(-1)[self.places]
        return result

    def second_derivative(self, hessian: Hessian) -> Array | None:
        """Return the second derivative as a matrix; None where only products are known."""
        matrix = hessian.gram(self.design)
        return None if matrix is None else matrix[np.ix_(self.places, self.places)]

    def diagonal(self, hessian: Hessian) -> Array:
        """Return the second derivative in each coordinate alone, large enough to divide by."""
        diagonal = self.design.squares(hessian.diagonal).reshape(-1)[self.places]
        return np.maximum(diagonal, _SMALLEST)

    @property
    def matrix_cost(self) -> float:
        """Rough seconds that the second derivative and its factorisation take."""
        return self.design.gram_cost + cholesky(len(self.places))


@final
class GatheredColumns:
    """The columns of some of the features, kept from one step to the next.

    Parameters
    ----------
    design : Design
        That of all features.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        self._features: npt.NDArray[np.intp] = np.arange(design.shape[1])
        self._columns: Design = design

    def restrict(self, active: npt.NDArray[np.intp]) -> Coordinates:
        """Return the coordinates with these flat indices, which ascend."""
        design = self._design
        outputs = design.n_outputs or 1
        needed = np.unique(active // outputs) if outputs > 1 else active
        known = len(needed) > _REUSE * len(self._features) and np.isin(needed, self._features).all()
        if not known and len(needed) > _REUSE * design.shape[1]:
            self._features, self._columns = np.arange(design.shape[1]), design
        elif not known:
            self._features, self._columns = needed, design.restrict(needed)
        places = np.searchsorted(self._features, active // outputs) * outputs + active % outputs
        return Coordinates(self._columns, places)
