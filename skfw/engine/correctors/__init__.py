"""Correctors: they re-optimise over what Frank-Wolfe has discovered, one for each geometry.

Those for designs minimise the second-order model of the loss at the iterate, over the coordinates, the atoms
or the ball, and go from the iterate towards that minimum as far as the loss falls. Both ends of that line are
in the set, so all of it is.
"""

from ._active_atoms import ActiveAtoms
from ._active_coordinates import ActiveCoordinates
from ._active_groups import ActiveGroups
from ._euclidean_ball import EuclideanBall
from ._factor_descent import FactorDescent
from ._factor_newton import FactorNewton
from ._free_coordinates import FreeCoordinates
from ._interior_point import InteriorPoint
from ._table import best_corrector

__all__ = [
    "ActiveAtoms",
    "ActiveCoordinates",
    "ActiveGroups",
    "EuclideanBall",
    "FactorDescent",
    "FactorNewton",
    "FreeCoordinates",
    "InteriorPoint",
    "best_corrector",
]
