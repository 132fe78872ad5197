"""Newton steps in the weights of the atoms found so far, for any set."""

from __future__ import annotations

from typing import final

import numpy as np

from .._certificate import Cut
from .._lines import search
from .._problem import Problem
from .._protocols import Array, Atom, Corrector, Data, Iterate, Point, SampleVector
from ._newton_step import FLAT, SHARE
from ._quadratics import solve_over_simplex

_MAX_NEWTON_STEPS = 10
# An atom with a smaller share of the weight is dropped.
_NEGLIGIBLE = 1e-14


@final
class ActiveAtoms(Corrector):
    """Re-optimises the weights of the atoms found so far, for any set.

    The iterate is kept as an average of atoms; those that lose their weight are dropped. Where there are more
    of them than the model has dimensions, they are not needed: the iterate takes their place.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem[Data]) -> None:
        self.problem = problem
        self._iterate: Iterate = None
        self._atoms: list[Atom | Iterate] = []
        self._images: list[SampleVector] = []
        self._weights = np.zeros(0)
        self._dimensions = int(np.prod(problem.data.zeros().shape))

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take Newton steps in the weights, until the atoms leave little of the gap."""
        # The iterate is no longer their average if a step was taken without this corrector.
        if point.x is not self._iterate or len(self._atoms) > self._dimensions:
            self._atoms, self._images = [point.x], [point.predictions]
            self._weights = np.ones(1)
        loss, data, images = self.problem.loss, self.problem.data, self._images
        self._atoms.append(newest.minimum.atom)
        images.append(newest.minimum.atom.image(data))
        weights = np.append(self._weights, 0.0)
        predictions, evaluation = point.predictions, point.evaluation
        for _ in range(_MAX_NEWTON_STEPS):
            slope = data.inner_products(images, [evaluation.residual])[:, 0]
            if float(slope @ weights) - float(slope.min()) <= SHARE * gap:
                break
            hessian = loss.hessian(evaluation)
            matrix = data.inner_products(images, [hessian.apply(image) for image in images])
            free = (weights > 0.0) | (slope < float(slope @ weights))
            best = solve_over_simplex(matrix, slope - matrix @ weights, free, 1.0, exactly=True)
            if best is None:
                break
            change = _combined(best - weights, images)
            found = search(self.problem.line(predictions, evaluation, change), FLAT, first_step=1.0)
            if found is None:
                break
            predictions, evaluation = found.predictions, found.evaluation
            weights = (1.0 - found.step) * weights + found.step * best
        kept = np.flatnonzero(weights > _NEGLIGIBLE)
        self._atoms, self._images = [self._atoms[k] for k in kept], [images[k] for k in kept]
        self._weights = weights[kept] / weights[kept].sum()
        if evaluation is point.evaluation:
            self._iterate = point.x
            return point
        x = data.zeros()
        for weight, piece in zip(self._weights.tolist(), self._atoms, strict=True):
            x = x + weight * piece
        # Images of atoms may be so large that their average is mostly rounding.
        corrected = self.problem.point(x, data.apply(x), evaluation)
        if corrected.value > point.value:
            self._iterate = None  # the weights are no longer those of the point
            return point
        self._iterate = x
        return corrected


def _combined(weights: Array, vectors: list[SampleVector]) -> SampleVector:
    first, *others = (weight * vector for weight, vector in zip(weights.tolist(), vectors, strict=True))
    return sum(others, start=first)
