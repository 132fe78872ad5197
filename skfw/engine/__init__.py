"""Frank-Wolfe with heavy-ball momentum and a certificate, without scikit-learn."""

from ._atoms import DenseVector, FactoredMatrix, RankOne, SparseVector
from ._biased_loss import BiasedSquaredLoss
from ._certificate import AveragePlane
from ._constraints import (
    GroupBall,
    L1Ball,
    L2Ball,
    LInfBall,
    NormBall,
    NSupportBall,
    NuclearBall,
    Simplex,
    WeightedNuclearBall,
)
from ._correctors import ActiveAtoms, ActiveCoordinates, EuclideanBall
from ._factor_descent import FactorDescent
from ._linear_maps import DesignMatrix, ObservedEntries, products_at
from ._losses import DiagonalHessian, LogisticLoss, MultinomialLoss, SquaredLoss
from ._momentum import Adaptive, Constant, NoMomentum, Uniform, Weighted
from ._protocols import (
    Atom,
    Constraint,
    Corrector,
    Evaluation,
    Hessian,
    Hint,
    Line,
    LinearMap,
    LinearMinimum,
    Loss,
    Momentum,
    Point,
    StepRule,
)
from ._restart import GapRestart
from ._solver import Result, State, best_corrector, frank_wolfe, sample_start
from ._steps import Directional, LineSearch, ParameterFree, Smooth

__all__ = [
    "frank_wolfe",
    "Result",
    "State",
    "Loss",
    "LogisticLoss",
    "MultinomialLoss",
    "SquaredLoss",
    "BiasedSquaredLoss",
    "Evaluation",
    "Hessian",
    "DiagonalHessian",
    "LinearMap",
    "DesignMatrix",
    "ObservedEntries",
    "products_at",
    "Constraint",
    "NormBall",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "NSupportBall",
    "GroupBall",
    "Simplex",
    "NuclearBall",
    "WeightedNuclearBall",
    "LinearMinimum",
    "Hint",
    "Atom",
    "SparseVector",
    "DenseVector",
    "RankOne",
    "FactoredMatrix",
    "Momentum",
    "Weighted",
    "Uniform",
    "Constant",
    "NoMomentum",
    "Adaptive",
    "StepRule",
    "Line",
    "ParameterFree",
    "Smooth",
    "Directional",
    "LineSearch",
    "GapRestart",
    "Corrector",
    "best_corrector",
    "ActiveCoordinates",
    "ActiveAtoms",
    "EuclideanBall",
    "FactorDescent",
    "sample_start",
    "Point",
    "AveragePlane",
]
