"""Small problems with known optima, shared by all tests of the engine.

The optima come from SLSQP on an independent formulation: plain NumPy losses with the intercept as a
variable, and each set written as smooth inequalities in a lifted space. Nothing of the package is used.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, xlogy

from skfw.engine import (
    Adaptive,
    Constant,
    Directional,
    GroupBall,
    L1Ball,
    L2Ball,
    LineSearch,
    LInfBall,
    LogisticLoss,
    MultinomialLoss,
    NoMomentum,
    NSupportBall,
    NuclearBall,
    ParameterFree,
    Problem,
    SeparableLoss,
    Simplex,
    SquaredLoss,
    Uniform,
    Weighted,
    design_matrix,
)

N_SAMPLES, N_FEATURES, N_CLASSES = 24, 4, 3
GROUPS = np.array([0, 0, 1, 1])

MOMENTA = {
    "weighted": Weighted(),
    "uniform": Uniform(),
    "constant": Constant(0.7),
    "none": NoMomentum(),
    "adaptive": Adaptive(),
}
STEPS = {"parameter_free": ParameterFree(), "directional": Directional(), "line_search": LineSearch()}
VECTOR_CONSTRAINTS = {
    "l1": L1Ball(0.7),
    "l2": L2Ball(0.5),
    "linf": LInfBall(0.3),
    "n_support": NSupportBall(0.5, 2),
    "group": GroupBall(0.6, GROUPS),
    "simplex": Simplex(0.8),
}
CONSTRAINTS = {**VECTOR_CONSTRAINTS, "nuclear": NuclearBall(0.6)}
LOSSES = ("logistic", "multinomial", "squared")
# Every combination of loss and constraint that makes sense.
PROBLEMS = [
    (loss, constraint, intercept)
    for loss in LOSSES
    for constraint in CONSTRAINTS
    for intercept in (False, True)
    if loss == "multinomial" or constraint != "nuclear"
]


def data():
    rng = np.random.default_rng(42)
    X = rng.normal(size=(N_SAMPLES, N_FEATURES)) * [1.0, 2.0, 0.5, 1.0]
    weights = rng.uniform(0.5, 2.0, N_SAMPLES)
    signs = np.sign(X @ [1.0, -0.5, 0.0, 0.5] + rng.normal(size=N_SAMPLES) + 0.3)
    labels = np.argmax(X @ rng.normal(size=(N_FEATURES, N_CLASSES)) + rng.normal(size=(N_SAMPLES, 3)), axis=1)
    targets = X @ [1.0, 0.0, -1.0, 0.5] + rng.normal(size=N_SAMPLES) + 1.0
    return X, weights / weights.sum(), signs, labels, targets


@dataclass(frozen=True)
class Poisson(SeparableLoss):
    """Counts whose expectation is the exponential of the prediction; curvature and values know no bounds."""

    curvature: ClassVar[float] = np.inf
    largest_prediction: ClassVar[float] = 600.0

    def sample_value(self, predictions):
        return np.exp(predictions) - self.targets * predictions

    def sample_slope(self, predictions):
        return np.exp(predictions) - self.targets

    def sample_curvature(self, slope):
        return np.maximum(slope + self.targets, 0.0)

    def sample_conjugate(self, slope):
        mean = np.maximum(slope + self.targets, 0.0)
        return xlogy(mean, mean) - mean


@dataclass(frozen=True)
class KnownProblem:
    """A problem, with what the tests know of it from elsewhere.

    `lipschitz` is the exact Lipschitz constant of the gradient, `optimum` another solver's.
    """

    problem: Problem
    lipschitz: float
    optimum: float

    @property
    def scale(self):
        """L D^2, with the exact spectral constant."""
        return self.lipschitz * self.problem.diameter**2


@cache
def problem(loss_name, constraint_name, intercept):
    X, weights, signs, labels, targets = data()
    loss = {
        "logistic": LogisticLoss(signs, weights, intercept),
        "multinomial": MultinomialLoss(labels, N_CLASSES, weights, intercept),
        "squared": SquaredLoss(targets, weights, intercept),
    }[loss_name]
    spectral = np.linalg.eigvalsh(X.T @ (weights[:, np.newaxis] * X))[-1]
    design = design_matrix(X, N_CLASSES if loss_name == "multinomial" else None)
    return KnownProblem(
        Problem(loss, design, CONSTRAINTS[constraint_name]),
        {"logistic": 0.25, "multinomial": 0.5, "squared": 1.0}[loss_name] * spectral,
        _optimum(loss_name, constraint_name, intercept),
    )


def reference_loss(loss_name, x, intercept):
    """The loss of a model in plain NumPy, and its gradient in x and in the intercept."""
    X, weights, signs, labels, targets = data()
    z = X @ x + intercept
    if loss_name == "logistic":
        value, residual = np.logaddexp(0.0, -signs * z), -signs / (1.0 + np.exp(signs * z))
    elif loss_name == "squared":
        value, residual = 0.5 * (z - targets) ** 2, z - targets
    else:
        onehot = np.eye(N_CLASSES)[labels]
        value = logsumexp(z, axis=1) - z[np.arange(N_SAMPLES), labels]
        residual = np.exp(z - logsumexp(z, axis=1, keepdims=True)) - onehot
    residual = (weights * residual.T).T
    return weights @ value, X.T @ residual, residual.sum(axis=0)


def _optimum(loss_name, constraint_name, intercept):
    outputs = N_CLASSES if loss_name == "multinomial" else 1
    shape = (N_FEATURES, outputs) if outputs > 1 else (N_FEATURES,)
    size = N_FEATURES * outputs
    model_of, constraints, bounds, start = _lifting(CONSTRAINTS[constraint_name], constraint_name, size)
    n_lifted, n_intercepts = len(start), outputs if intercept else 0

    def objective(variables):
        lifted, intercepts = np.split(variables, [n_lifted])
        b = intercepts if intercept else np.zeros(outputs)
        x = model_of(lifted).reshape(shape)
        value, gradient, slope = reference_loss(loss_name, x, b if outputs > 1 else b[0])
        return value, np.append(model_of.pull_back(lifted, gradient), slope if intercept else [])

    def padded(constraint):
        return {
            "type": constraint["type"],
            "fun": lambda v: constraint["fun"](v[:n_lifted]),
            "jac": lambda v: np.append(constraint["jac"](v[:n_lifted]), np.zeros(n_intercepts)),
        }

    return minimize(
        objective,
        np.append(start, np.zeros(n_intercepts)),
        jac=True,
        bounds=bounds + [(None, None)] * n_intercepts,
        constraints=[padded(constraint) for constraint in constraints],
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-15},
    ).fun


class _Linear:
    """x = M variables."""

    def __init__(self, matrix):
        self.matrix = matrix

    def __call__(self, variables):
        return self.matrix @ variables

    def pull_back(self, variables, gradient):
        return self.matrix.T @ gradient.ravel()


class _Factored:
    """x = U V^T. With ||U||^2 + ||V||^2 <= 2 radius this is the nuclear ball, as the rank is full."""

    def __init__(self, size):
        self.rows, self.columns = N_FEATURES, size // N_FEATURES
        self.rank = min(self.rows, self.columns)
        self.n_variables = (self.rows + self.columns) * self.rank

    def split(self, variables):
        cut = self.rows * self.rank
        return variables[:cut].reshape(self.rows, self.rank), variables[cut:].reshape(self.columns, self.rank)

    def __call__(self, variables):
        left, right = self.split(variables)
        return (left @ right.T).ravel()

    def pull_back(self, variables, gradient):
        left, right = self.split(variables)
        return np.concatenate([(gradient @ right).ravel(), (gradient.T @ left).ravel()])


class _Pieces:
    """x = sum_S a_S p_S with p_S on the support S. With ||a||^2 + ||p||^2 <= 2 radius this is the hull of
    the balls on the supports: the group ball, or the n-support ball."""

    def __init__(self, size, supports):
        self.size, self.supports = size, supports
        self.owner = np.repeat(np.arange(len(supports)), [len(support) for support in supports])
        self.place = np.concatenate(supports)
        self.n_variables = len(supports) + len(self.place)

    def __call__(self, variables):
        scales, pieces = np.split(variables, [len(self.supports)])
        return np.bincount(self.place, scales[self.owner] * pieces, minlength=self.size)

    def pull_back(self, variables, gradient):
        scales, pieces = np.split(variables, [len(self.supports)])
        local = gradient.ravel()[self.place]
        return np.append(np.bincount(self.owner, local * pieces), scales[self.owner] * local)


def _lifting(constraint, name, size):
    """Return a map from variables to models, SLSQP constraints, bounds and a start."""
    radius, eye, free = constraint.radius, np.eye(size), (None, None)

    def limit(kind, fun, jac):
        return [{"type": kind, "fun": fun, "jac": jac}]

    if name == "l1":  # differences of non-negative vectors
        total = limit("ineq", lambda v: radius - v.sum(), lambda v: -np.ones_like(v))
        return _Linear(np.hstack([eye, -eye])), total, [(0, None)] * (2 * size), np.zeros(2 * size)
    if name == "simplex":
        total = limit("eq", lambda v: radius - v.sum(), lambda v: -np.ones_like(v))
        return _Linear(eye), total, [(0, None)] * size, np.full(size, radius / size)
    if name == "linf":
        return _Linear(eye), [], [(-radius, radius)] * size, np.zeros(size)
    if name == "l2":
        ball = limit("ineq", lambda v: radius**2 - v @ v, lambda v: -2 * v)
        return _Linear(eye), ball, [free] * size, np.zeros(size)
    if name == "nuclear":
        lift = _Factored(size)
    elif name == "group":
        groups = np.repeat(constraint.groups, size // N_FEATURES)
        lift = _Pieces(size, [np.flatnonzero(groups == group) for group in np.unique(groups)])
    else:
        lift = _Pieces(size, [np.array(pair) for pair in combinations(range(size), 2)])
    # Not convex, but without bad local minima; zero is a saddle point, so the start is elsewhere.
    ball = limit("ineq", lambda v: 2 * radius - v @ v, lambda v: -2 * v)
    start = np.random.default_rng(0).normal(size=lift.n_variables)
    return lift, ball, [free] * lift.n_variables, start * np.sqrt(radius) / np.linalg.norm(start)


def dense_completion(shape, rows, columns, y, weights, radius):
    """Accelerated projected gradient on the full matrix, until it no longer moves."""
    x = previous = np.zeros(shape)
    value = np.inf
    t = 1.0
    for _ in range(20_000):
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = x + (t - 1) / t_next * (x - previous)
        gradient = np.zeros(shape)
        gradient[rows, columns] = weights * (ahead[rows, columns] - y)
        left, values, right = np.linalg.svd(ahead - gradient / weights.max(), full_matrices=False)
        previous, x, t = x, (left * project_simplex(values, radius)) @ right, t_next
        new = 0.5 * weights @ (x[rows, columns] - y) ** 2
        if new > value:
            t = 1.0
        if abs(value - new) <= 1e-13 * new:
            break
        value = new
    return new


def project_simplex(values, radius):
    """Project non-negative, descending values onto those with sum at most `radius`."""
    if values.sum() <= radius:
        return values
    excess = (np.cumsum(values) - radius) / np.arange(1, len(values) + 1)
    return np.maximum(values - excess[np.flatnonzero(values > excess)[-1]], 0.0)
