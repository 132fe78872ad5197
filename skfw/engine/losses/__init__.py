"""Losses in prediction space, each a weighted mean with the intercept or the biases profiled out."""

from ._biased import BiasedSquaredLoss
from ._hessians import DiagonalHessian
from ._huber import HuberLoss
from ._logistic import LogisticLoss
from ._multinomial import MultinomialLoss
from ._poisson import PoissonLoss
from ._separable import SeparableLoss
from ._several_targets import SeveralTargets
from ._sharded import ShardedLoss
from ._squared import SquaredLoss

__all__ = [
    "BiasedSquaredLoss",
    "DiagonalHessian",
    "HuberLoss",
    "LogisticLoss",
    "MultinomialLoss",
    "PoissonLoss",
    "SeparableLoss",
    "SeveralTargets",
    "ShardedLoss",
    "SquaredLoss",
]
