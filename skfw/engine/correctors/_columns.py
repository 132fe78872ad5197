"""The coordinates that a corrector works with, and their columns of the design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from .._costs import cholesky, cholesky_solve
from .._protocols import Array, Design, Hessian, SampleVector

# Columns are not gathered anew where at least this fraction of those at hand is needed.
_REUSE = 0.7
# Relative to its diagonal, what is added to a Hessian of a few digits.
_RIDGE = 1e-6
# Divided by a diagonal of this, nothing overflows.
_SMALLEST = float(np.finfo(np.float64).tiny) / (4.0 * float(np.finfo(np.float64).eps))


@final
class Columns:
    """A design of some of the features, and the second derivative in its models.

    Parameters
    ----------
    design : Design
    is_quadratic : bool
        Whether the second derivative is the same everywhere, and kept once it is known.
    """

    def __init__(self, design: Design, is_quadratic: bool) -> None:
        self.design = design
        self._is_quadratic = is_quadratic
        self._kept: Array | None = None

    @property
    def has_matrix(self) -> bool:
        """Whether the second derivative is known already."""
        return self._kept is not None

    def second_derivative(self, hessian: Hessian) -> Array | None:
        """Return the second derivative as a matrix; None where only products are known."""
        matrix = hessian.gram(self.design) if self._kept is None else self._kept
        if self._is_quadratic:
            self._kept = matrix
        return matrix


@final
@dataclass(frozen=True)
class Coordinates:
    """Models of a design that are zero but at some coordinates.

    Parameters
    ----------
    columns : Columns
        Those of the features that are needed, and perhaps of some more.
    places : ndarray of ints
        Where the coordinates are in the flattened models of these columns.
    """

    columns: Columns
    places: npt.NDArray[np.intp]

    @property
    def design(self) -> Design:
        """The design of the columns."""
        return self.columns.design

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
        return self._part(self.columns.second_derivative(hessian))

    def rough_derivative(self, hessian: Hessian) -> Array | None:
        """Return the second derivative with a few digits; None where only products are known."""
        return self._part(hessian.rough_gram(self.design))

    def _part(self, matrix: Array | None) -> Array | None:
        """Return the part of a matrix that is of these coordinates."""
        return None if matrix is None else matrix[np.ix_(self.places, self.places)]

    def diagonal(self, hessian: Hessian) -> Array:
        """Return the second derivative in each coordinate alone, large enough to divide by."""
        diagonal = self.design.squares(hessian.diagonal).reshape(-1)[self.places]
        return np.maximum(diagonal, _SMALLEST)

    @property
    def matrix_cost(self) -> float:
        """Rough seconds that the second derivative and its factorisation take."""
        gram_cost = 0.0 if self.columns.has_matrix else self.design.gram_cost
        return gram_cost + cholesky(len(self.places))

    @property
    def rough_matrix_cost(self) -> float:
        """Rough seconds that the second derivative with a few digits and its factorisation take."""
        return self.design.rough_gram_cost + cholesky(len(self.places))

    @property
    def solve_cost(self) -> float:
        """Rough seconds that solving equations with that factorisation takes."""
        return cholesky_solve(len(self.places))


@final
@dataclass(frozen=True)
class FactoredHessian:
    """The Cholesky factor of a Hessian of some coordinates: a preconditioner for those with other ones too.

    Attributes
    ----------
    coordinates : ndarray of ints
        Their flat indices, which ascend.
    factor : ndarray
    """

    coordinates: npt.NDArray[np.intp]
    factor: Array

    @classmethod
    def of(cls, coordinates: npt.NDArray[np.intp], matrix: Array) -> FactoredHessian | None:
        """Factor a Hessian, which is overwritten; None where it is not positive definite."""
        matrix[np.diag_indices(len(matrix))] *= 1.0 + _RIDGE
        matrix[np.diag_indices(len(matrix))] += _SMALLEST
        factor, failed = dpotrf(matrix, overwrite_a=1)
        return None if failed else cls(coordinates, factor)

    def inverse(self, active: npt.NDArray[np.intp], diagonal: Array) -> Callable[[Array], Array]:
        """Return about the inverse of the Hessian of the active coordinates, which ascend.

        Those that were not there when the Hessian was factored have their `diagonal`.
        """
        place = np.minimum(np.searchsorted(self.coordinates, active), len(self.coordinates) - 1)
        known = np.flatnonzero(self.coordinates[place] == active)
        place = place[known]

        def solve(residual: Array) -> Array:
            result: Array = residual / diagonal
            padded = np.zeros(len(self.coordinates))
            padded[place] = residual[known]
            result[known] = dpotrs(self.factor, padded)[0][place]
            return result

        return solve


@final
class GatheredColumns:
    """The columns of some of the features, kept from one step to the next.

    Parameters
    ----------
    design : Design
        That of all features.
    is_quadratic : bool
        Whether the second derivative is the same everywhere.
    """

    def __init__(self, design: Design, is_quadratic: bool) -> None:
        self._design, self._is_quadratic = design, is_quadratic
        self._gather(np.arange(design.shape[1]), design)

    def restrict(self, active: npt.NDArray[np.intp]) -> Coordinates:
        """Return the coordinates with these flat indices, which ascend."""
        design = self._design
        outputs = design.n_outputs or 1
        needed = np.unique(active // outputs) if outputs > 1 else active
        # With a matrix that is known already, columns too many are no loss.
        enough = self._columns.has_matrix or len(needed) > _REUSE * self._columns.design.shape[1]
        if not enough or self._places[needed].min() < 0:
            if len(needed) > _REUSE * design.shape[1]:
                self._gather(np.arange(design.shape[1]), design)
            else:
                self._gather(needed, design.restrict(needed))
        return Coordinates(self._columns, self._places[active // outputs] * outputs + active % outputs)

    def _gather(self, features: npt.NDArray[np.intp], design: Design) -> None:
        self._columns = Columns(design, self._is_quadratic)
        # Where each feature is among the columns; -1 if it is not.
        self._places = np.full(self._design.shape[1], -1)
        self._places[features] = np.arange(len(features))
