"""Losses in prediction space, each a weighted mean with the intercept or the biases profiled out."""

from ._biased import BiasedSquaredLoss
from ._hessians import DiagonalHessian
from ._logistic import LogisticLoss
from ._multinomial import MultinomialLoss
from ._separable import SeparableLoss
from ._squared import SquaredLoss

__all__ = [
    "BiasedSquaredLoss",
    "DiagonalHessian",
    "LogisticLoss",
    "MultinomialLoss",
    "SeparableLoss",
    "SquaredLoss",
]
