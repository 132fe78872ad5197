"""Small problems with known optima, shared by all tests of the engine.

The optima come from SLSQP on an independent formulation: plain NumPy losses with the intercept as a
variable, and each set written as smooth inequalities in a lifted space. Nothing of the package is used.
"""

import tracemalloc
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, xlogy

from skfw.engine import (
    Adaptive,
    BiasedSquaredLoss,
    Box,
    Constant,
    Directional,
    FeaturedEntries,
    FeatureMap,
    GroupBall,
    HuberLoss,
    L1Ball,
    L2Ball,
    LineSearch,
    LInfBall,
    LogisticLoss,
    MultinomialLoss,
    NoMomentum,
    NSupportBall,
    NuclearBall,
    ObservedEntries,
    ParameterFree,
    PoissonLoss,
    Polytope,
    Problem,
    SeveralTargets,
    Simplex,
    SquaredLoss,
    Uniform,
    Weighted,
    WeightedNuclearBall,
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
SETS_WITH_RADIUS = {**VECTOR_CONSTRAINTS, "nuclear": NuclearBall(0.6)}
CONSTRAINTS = {
    **SETS_WITH_RADIUS,
    "box": Box(np.array([0.1, -0.4, -0.2, 0.3]), np.array([0.5, -0.1, 0.3, 0.3])),
    "polytope": Polytope(
        A_ub=[[1.0, 1.0, 0.0, 0.0], [0.0, -1.0, 1.0, 2.0]],
        b_ub=[0.2, 0.5],
        A_eq=[[1.0, 0.0, 1.0, 1.0]],
        b_eq=[0.3],
        bounds=[(-0.4, 0.6), (-0.5, 0.5), (-0.3, 0.3), (0.1, 0.8)],
    ),
}
LOSSES = ("logistic", "multinomial", "squared", "huber", "targets")
# Those of matrices of coefficients, one column for each class or target.
MATRIX_LOSSES = ("multinomial", "targets")
EPSILON = 0.8
# Every combination of loss and constraint that makes sense.
PROBLEMS = [
    (loss, constraint, intercept)
    for loss in LOSSES
    for constraint in CONSTRAINTS
    for intercept in (False, True)
    if loss in MATRIX_LOSSES or constraint != "nuclear"
]
# The same of a loss whose gradient has no Lipschitz constant.
COUNT_PROBLEMS = [("poisson", *others) for loss, *others in PROBLEMS if loss == "squared"]
# The penalties of biases of rows and of columns.
PENALTIES = (0.02, 0.05)
# Completion of a matrix: what has features, and which loss and ball.
COMPLETIONS = [
    ("none", "squared", "plain"),
    ("rows", "squared", "plain"),
    ("columns", "squared", "weighted"),
    ("both", "squared", "plain"),
    ("both", "biased", "weighted"),
    ("constant", "biased", "plain"),
]


def data():
    rng = np.random.default_rng(42)
    X = rng.normal(size=(N_SAMPLES, N_FEATURES)) * [1.0, 2.0, 0.5, 1.0]
    weights = rng.uniform(0.5, 2.0, N_SAMPLES)
    signs = np.sign(X @ [1.0, -0.5, 0.0, 0.5] + rng.normal(size=N_SAMPLES) + 0.3)
    labels = np.argmax(X @ rng.normal(size=(N_FEATURES, N_CLASSES)) + rng.normal(size=(N_SAMPLES, 3)), axis=1)
    targets = X @ [1.0, 0.0, -1.0, 0.5] + rng.normal(size=N_SAMPLES) + 1.0
    return X, weights / weights.sum(), signs, labels, targets


def several_targets():
    X, *_, targets = data()
    return np.column_stack([targets, X @ [0.5, 0.5, 0.0, 0.0] - targets, np.abs(targets)])


def counts():
    return np.floor(np.exp(data()[-1] / 2.0))


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
        "huber": HuberLoss(targets, weights, intercept, EPSILON),
        "poisson": PoissonLoss(counts(), weights, intercept),
        "targets": SeveralTargets(
            tuple(SquaredLoss(column, weights, intercept) for column in several_targets().T)
        ),
    }[loss_name]
    spectral = np.linalg.eigvalsh(X.T @ (weights[:, np.newaxis] * X))[-1]
    design = design_matrix(X, N_CLASSES if loss_name in MATRIX_LOSSES else None)
    curvatures = {"logistic": 0.25, "multinomial": 0.5, "targets": 1.0 / 3.0, "poisson": np.inf}
    return KnownProblem(
        Problem(loss, design, CONSTRAINTS[constraint_name]),
        curvatures.get(loss_name, 1.0) * spectral,
        _optimum(loss_name, constraint_name, intercept),
    )


@cache
def completion(features, loss_name, ball_name, scale=1.0):
    """Complete a small matrix whose rows and columns have features, of any size; some entries occur twice."""
    rng, shape = np.random.default_rng(7), (9, 7)
    rows, columns = np.nonzero(rng.uniform(size=shape) < 0.6)
    rows, columns = np.append(rows, rows[:5]), np.append(columns, columns[:5])
    sides = [
        scale * features_of(features, side, length, rng)
        for side, length in zip(("rows", "columns"), shape, strict=True)
    ]
    truth = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1]))
    targets = truth[rows, columns] + 0.5 * rng.normal(size=len(rows))
    weights = rng.uniform(0.5, 2.0, len(rows))
    weights /= weights.sum()

    entries = ObservedEntries(rows, columns, shape)
    maps = [FeatureMap(sparse.csr_matrix(side)) for side in sides]
    data = entries if features == "none" else FeaturedEntries(entries, *maps)
    loss = SquaredLoss(targets, weights)
    if loss_name == "biased":
        loss = BiasedSquaredLoss(targets, weights, entries, *PENALTIES)
    radius = 2.0 / max(1.0, scale) ** sum(bool(side.any()) for side in sides)
    ball, ball_weights = NuclearBall(radius), [np.ones(length) for length in data.shape]
    if ball_name == "weighted":
        ball_weights = [rng.uniform(0.5, 2.0, length) for length in data.shape]
        ball = WeightedNuclearBall(radius, *ball_weights)

    # The same in dense matrices: half of (z - y)^T H (z - y), where H is the second derivative that the
    # biases leave of the weights, and z = X w, where w is the matrix in units of the ball.
    left, right = (np.hstack([np.eye(len(side)), side]) for side in sides)
    images = np.einsum("ij,ik->ijk", left[rows], right[columns]) * radius
    X = images / np.multiply.outer(*ball_weights)
    H = np.diag(weights)
    if loss_name == "biased":
        groups = np.hstack([np.eye(shape[0])[rows], np.eye(shape[1])[columns]])
        H = np.linalg.inv(
            np.diag(1.0 / weights) + groups @ np.diag(1.0 / np.repeat(PENALTIES, shape)) @ groups.T
        )

    def value_and_gradient(w):
        error = np.tensordot(X, w, 2) - targets
        return 0.5 * error @ H @ error, np.tensordot(H @ error, X, 1)

    optimum = nuclear_optimum(value_and_gradient, largest_eigenvalue(X, H), data.shape, 1.0)
    lipschitz = largest_eigenvalue(images, np.diag(weights)) / radius / radius
    return KnownProblem(Problem(loss, data, ball), lipschitz, optimum)


def largest_eigenvalue(images, weights):
    """Return that of the second derivative in the models, given that in the predictions."""
    flat = images.reshape(len(images), -1)
    return float(np.linalg.eigvalsh(flat.T @ weights @ flat)[-1])


# What makes each of them, by name.
KNOWN_PROBLEMS = {
    "-".join(map(str, names)): partial(make, *names)
    for make, listed in ((problem, PROBLEMS), (completion, COMPLETIONS))
    for names in listed
}


def features_of(kind, side, length, rng):
    """Return the features of rows or of columns."""
    if kind == "zero":
        return np.zeros((length, 3))
    if kind == "constant":
        return np.ones((length, 1))
    if kind in (side, "both"):
        return rng.normal(size=(length, 3)) * (rng.uniform(size=(length, 3)) < 0.7)
    return np.zeros((length, 0))


def reference_loss(loss_name, x, intercept):
    """The loss of a model in plain NumPy, and its gradient in x and in the intercept."""
    X, weights, signs, labels, targets = data()
    z = X @ x + intercept
    if loss_name == "logistic":
        value, residual = np.logaddexp(0.0, -signs * z), -signs / (1.0 + np.exp(signs * z))
    elif loss_name == "squared":
        value, residual = 0.5 * (z - targets) ** 2, z - targets
    elif loss_name == "huber":
        size, residual = np.abs(z - targets), np.clip(z - targets, -EPSILON, EPSILON)
        value = np.where(size < EPSILON, 0.5 * size**2, EPSILON * (size - 0.5 * EPSILON))
    elif loss_name == "poisson":
        y = counts()
        value, residual = np.exp(z) - y * z + xlogy(y, y) - y, np.exp(z) - y
    elif loss_name == "targets":
        residual = (z - several_targets()) / 3.0
        value = 1.5 * (residual**2).sum(axis=1)
    else:
        onehot = np.eye(N_CLASSES)[labels]
        value = logsumexp(z, axis=1) - z[np.arange(N_SAMPLES), labels]
        residual = np.exp(z - logsumexp(z, axis=1, keepdims=True)) - onehot
    residual = (weights * residual.T).T
    return weights @ value, X.T @ residual, residual.sum(axis=0)


def _optimum(loss_name, constraint_name, intercept):
    outputs = N_CLASSES if loss_name in MATRIX_LOSSES else 1
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
    eye, free = np.eye(size), (None, None)

    def limit(kind, fun, jac):
        return [{"type": kind, "fun": fun, "jac": jac}]

    if name in ("box", "polytope"):
        return _linear_limits(constraint, name, size // N_FEATURES)
    radius = constraint.radius
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


def _linear_limits(constraint, name, n_outputs):
    """Return what `_lifting` does, for a box or a polytope: the same for the coefficients of each output."""
    if name == "box":
        bounds, rows = np.column_stack([constraint.lower, constraint.upper]), []
    else:
        bounds = np.array(constraint.bounds)
        rows = [("ineq", *row) for row in zip(constraint.A_ub, constraint.b_ub, strict=True)]
        rows += [("eq", *row) for row in zip(constraint.A_eq, constraint.b_eq, strict=True)]

    def limit(kind, row, number):
        return {"type": kind, "fun": lambda v: number - row @ v, "jac": lambda v: -row}

    limits = [
        limit(kind, np.kron(row, one), number) for kind, row, number in rows for one in np.eye(n_outputs)
    ]
    bounds = np.repeat(bounds, n_outputs, axis=0)
    return _Linear(np.eye(len(bounds))), limits, bounds.tolist(), bounds.mean(axis=1)


def dense_completion(shape, rows, columns, y, weights, radius):
    """Return the smallest weighted mean square of entries in a nuclear-norm ball, by dense matrices."""

    def value_and_gradient(x):
        gradient, error = np.zeros(shape), x[rows, columns] - y
        gradient[rows, columns] = weights * error
        return 0.5 * weights @ error**2, gradient

    return nuclear_optimum(value_and_gradient, weights.max(), shape, radius)


def nuclear_optimum(value_and_gradient, lipschitz, shape, radius):
    """Minimise over a nuclear-norm ball by accelerated projected gradients, until nothing moves any more."""
    x = previous = np.zeros(shape)
    value = np.inf
    t = 1.0
    for _ in range(20_000):
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = x + (t - 1) / t_next * (x - previous)
        _, gradient = value_and_gradient(ahead)
        left, values, right = np.linalg.svd(ahead - gradient / lipschitz, full_matrices=False)
        previous, x, t = x, (left * project_simplex(values, radius)) @ right, t_next
        new, _ = value_and_gradient(x)
        if new > value:
            t = 1.0
        if abs(value - new) <= 1e-13 * new:
            break
        value = new
    return new


def dense_featured_completion(A, C, rows, columns, y, weights, radius, penalty=None):
    """The smallest loss of ``A W C^T`` with the sum of the singular values of W at most `radius`.

    With a penalty there are biases of the rows and the columns of the matrix, which are eliminated: the loss
    is ``(z - y)^T H (z - y) / 2`` then. Accelerated projected gradient, until it no longer moves.
    """
    H = np.diag(weights)
    if penalty is not None:
        biases = np.hstack([np.eye(len(A))[rows], np.eye(len(C))[columns]])
        ridge = biases.T @ H @ biases + penalty * np.eye(biases.shape[1])
        H = H - H @ biases @ np.linalg.solve(ridge, biases.T @ H)
    steepest = np.linalg.norm(H, 2) * np.linalg.norm(A, 2) ** 2 * np.linalg.norm(C, 2) ** 2
    x = previous = np.zeros((A.shape[1], C.shape[1]))
    value, t = np.inf, 1.0
    for _ in range(50_000):
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = x + (t - 1) / t_next * (x - previous)
        residual = np.zeros((len(A), len(C)))
        residual[rows, columns] = H @ ((A @ ahead @ C.T)[rows, columns] - y)
        left, values, right = np.linalg.svd(ahead - A.T @ residual @ C / steepest, full_matrices=False)
        previous, x, t = x, (left * project_simplex(values, radius)) @ right, t_next
        errors = (A @ x @ C.T)[rows, columns] - y
        new = 0.5 * errors @ H @ errors
        if new > value:
            t = 1.0
        if abs(value - new) <= 1e-14 * new:
            break
        value = new
    return new


def project_simplex(values, radius):
    """Project non-negative, descending values onto those with sum at most `radius`."""
    if values.sum() <= radius:
        return values
    excess = (np.cumsum(values) - radius) / np.arange(1, len(values) + 1)
    return np.maximum(values - excess[np.flatnonzero(values > excess)[-1]], 0.0)


def peak_of(function):
    """Return how many bytes a function allocates at once."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
