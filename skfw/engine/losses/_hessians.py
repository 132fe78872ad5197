"""Second derivatives that several losses share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from .._protocols import Array, Design, Hessian
from .._sums import inner

# Samples with less than the first fraction of the mean curvature have together less than this fraction of
# all. They are left out where the others are less than the second fraction of the samples.
_NEGLIGIBLE, _FEW = 0.01, 0.7


@final
@dataclass(frozen=True)
class DiagonalHessian(Hessian):
    """Each prediction curves on its own; with an intercept only its deviation from a weighted mean counts."""

    diagonal: Array
    fit_intercept: bool = False

    def apply(self, change: Array) -> Array:
        """Return ``D change``, with the weighted mean of the change taken out."""
        result: Array = self.diagonal * self._centred(change)
        return result

    def along(self, change: Array) -> float:
        """Return the second derivative along a change."""
        centred = self._centred(change)
        return inner(self.diagonal, centred * centred)

    def _centred(self, change: Array) -> Array:
        if self.fit_intercept and (total := float(self.diagonal.sum())) > 0.0:
            return change - inner(self.diagonal, change) / total
        return change

    def gram(self, design: Design) -> Array:
        """Return the second derivative in the models of a design."""
        return self._without_intercept(design.gram(self.diagonal), design)

    def rough_gram(self, design: Design) -> Array:
        """Return the second derivative in the models of a design, with a few digits.

        Where the loss is nearly straight for most samples, as on data that can be separated, the others make
        nearly all of it; of the rest its diagonal is enough.
        """
        bent = self.diagonal > _NEGLIGIBLE * float(self.diagonal.mean())
        if not 0 < np.count_nonzero(bent) < _FEW * len(bent):
            return self._without_intercept(design.rough_gram(self.diagonal), design)
        most = DiagonalHessian(np.where(bent, self.diagonal, 0.0), self.fit_intercept)
        result = most._without_intercept(design.rough_gram(most.diagonal), design)
        result[np.diag_indices(len(result))] += design.squares(self.diagonal - most.diagonal)
        return result

    def _without_intercept(self, result: Array, design: Design) -> Array:
        """Take out what an intercept makes up for."""
        if self.fit_intercept and (total := float(self.diagonal.sum())) > 0.0:
            means = design.adjoint(self.diagonal)
            result -= np.outer(means, means / total)
        return result

    def output_grams(self, design: Design, rows: npt.NDArray[np.intp] | None = None) -> list[Array]:
        """Return the second derivative over some of the samples: there is one output."""
        diagonal = self.diagonal if rows is None else self.diagonal[rows]
        return [DiagonalHessian(diagonal, self.fit_intercept).rough_gram(design)]
