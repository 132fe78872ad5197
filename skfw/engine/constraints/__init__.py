"""Constraint sets and their linear minimisation oracles."""

from ._balls import GroupBall, L1Ball, L2Ball, LInfBall, NSupportBall
from ._box import Box
from ._norm_ball import EntrywiseNormBall, NormBall
from ._nuclear import NuclearBall, WeightedNuclearBall
from ._polytope import Polytope
from ._simplex import Simplex

__all__ = [
    "Box",
    "EntrywiseNormBall",
    "GroupBall",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "NSupportBall",
    "NormBall",
    "NuclearBall",
    "Polytope",
    "Simplex",
    "WeightedNuclearBall",
]
