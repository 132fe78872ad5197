"""Random problems that mean harm: extreme scales and weights, repeats, contradictions, and every setting.

`python tests/test_hostile.py 10000 [first_seed]` runs so many fits and prints a tally.
"""

import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import skfw
from skfw import HFWImputer, HFWLogisticRegression, HFWMatrixCompletion
from skfw.engine import (
    Box,
    Constraint,
    DenseVector,
    GroupBall,
    LinearMinimum,
    NSupportBall,
    NuclearBall,
    Polytope,
)

EPS, TINY = np.finfo(np.float64).eps, np.finfo(np.float64).tiny
MOMENTA = ["adaptive", "weighted", "uniform", "none", 0.3]
STEPS = ["line_search", "directional", "smooth", "parameter_free"]
FORMS = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix}
SECONDS = 10.0  # of processor time: intercepts take long where predictions are far apart, but not for ever


class OwnBox(Constraint):
    """Coefficients from 0 to `radius`, known by their oracle alone."""

    contains_zero = True

    def __init__(self, radius):
        self.radius = radius

    def lmo(self, direction, hint=None):
        atom = np.where(direction < 0, self.radius, 0.0)
        return LinearMinimum(DenseVector(atom), float(np.vdot(direction, atom)))

    def diameter(self, shape):
        return self.radius * np.sqrt(np.prod(shape))

    def __repr__(self):
        return f"{type(self).__name__}({self.radius})"


class Differences(OwnBox):
    """The hull of ``radius * (e_i - e_j)``: sum zero, absolute values of sum at most twice the radius."""

    def lmo(self, direction, hint=None):
        atom = np.zeros(direction.shape)
        atom.flat[direction.argmin()] += self.radius
        atom.flat[direction.argmax()] -= self.radius
        return LinearMinimum(DenseVector(atom), self.radius * float(direction.min() - direction.max()))

    def diameter(self, shape):
        return 2.0 * self.radius


class OwnLowRank(OwnBox):
    """A user's own set of matrices, which borrows its oracle."""

    low_rank = True

    def lmo(self, direction, hint=None):
        return NuclearBall(self.radius).lmo(direction, hint)

    def diameter(self, shape):
        return 2.0 * self.radius


@dataclass(repr=False)
class Problem:
    """Data and what defines the optimum (`params`), and settings that should not change it."""

    estimator: type
    X: np.ndarray
    y: np.ndarray | None
    weights: np.ndarray | None
    params: dict
    settings: list

    def __repr__(self):
        parts = [f"{self.estimator.__name__}: {self.X.dtype} {self.X.shape}"]
        for name in ("X", "y", "weights"):
            if (array := getattr(self, name)) is not None and array.dtype.kind in "if":
                sizes = np.abs(array[(array != 0) & np.isfinite(array)].astype(np.float64))
                parts.append(f"|{name}| {sizes.min(initial=np.inf):.0e} to {sizes.max(initial=0):.0e}")
        return ", ".join([*parts, *(f"{name}={value!r}" for name, value in self.params.items())])


def log_uniform(rng, low, high, size=None):
    return 10.0 ** rng.uniform(low, high, size)


def some_scale(rng, limit):
    """Anything up to 10^limit; half of the time something moderate, for else nothing is left to optimise."""
    return log_uniform(rng, *rng.choice([(-1, 1), (-limit, limit)]))


def hostile_matrix(rng, shape, limit):
    X = rng.normal(size=shape)
    if rng.random() < 0.3:  # repeated rows
        X = X[rng.integers(0, rng.integers(1, len(X) + 1), len(X))]
    if rng.random() < 0.3:
        X = np.round(X)
    for j in range(X.shape[1]):
        kind = rng.choice(["plain", "constant", "zero", "mean", "sparse"], p=[0.6, 0.1, 0.1, 0.1, 0.1])
        X[:, j] = {
            "plain": X[:, j],
            "constant": np.full(len(X), X[0, j]),
            "zero": np.zeros(len(X)),
            "mean": 1e8 + log_uniform(rng, -8, 0) * X[:, j],
            "sparse": X[:, j] * (rng.random(len(X)) < 0.3),
        }[kind]
    scales = log_uniform(rng, -limit, limit, shape[1]) if rng.random() < 0.2 else some_scale(rng, limit)
    return np.clip(X * scales, -(10.0**limit), 10.0**limit)


def hostile_weights(rng, n):
    kind = rng.choice(["none", "zeros", "wide", "1e100", "1e308", "1e-300", "one"], p=[0.4] + [0.1] * 6)
    return {
        "none": None,
        "zeros": np.append(1.0, rng.integers(0, 2, n - 1)),
        "wide": log_uniform(rng, -300, 300, n),
        "1e100": 1e100 * rng.uniform(0.5, 2.0, n),
        "1e308": 1e308 * rng.uniform(0.5, 1.5, n),
        "1e-300": 1e-300 * rng.uniform(0.0, 2.0, n),
        "one": np.where(rng.permutation(n) == 0, 1e200, 1.0),
    }[kind]


def draw_settings(rng, forms, n=4):
    """The default, and others; few iterations, so that each is quick."""
    drawn = [{"form": "dense", "max_iter": 60}]
    for _ in range(n - 1):
        momentum = MOMENTA[rng.integers(len(MOMENTA))]
        drawn.append(
            {
                "form": str(rng.choice(forms)),
                "momentum": momentum,
                "step_size": str(rng.choice(STEPS)),
                "corrective": bool(rng.random() < 0.5),
                "restart": bool(rng.random() < (0.05 if momentum in ("adaptive", "none") else 0.3)),
                "tol": float(rng.choice([0.0, 1e-12, 1e-6, 1e-2])),
                "max_iter": int(rng.integers(1, 60)),
            }
        )
    return drawn


def draw_problem(rng):
    draws = [draw_logistic, draw_completion, draw_imputer]
    return draws[rng.choice(3, p=[0.45, 0.45, 0.1])](rng)


def draw_logistic(rng):
    n_classes, n_features = int(rng.choice([2, 2, 3, 4])), int(rng.integers(1, 7))
    n = n_classes if rng.random() < 0.1 else int(rng.integers(n_classes, 30))
    dtype = np.float32 if rng.random() < 0.25 else np.float64
    limit = 15 if dtype == np.float32 else 150
    X = hostile_matrix(rng, (n, n_features), limit)
    if rng.random() < 0.3:  # separable
        y = np.searchsorted(np.quantile(X[:, 0], np.arange(1, n_classes) / n_classes), X[:, 0])
    else:
        y = rng.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)
    radius = some_scale(rng, limit)
    if rng.random() < 0.5:  # where the constraint is felt
        largest = np.abs(X).max() or 1.0
        radius = float(np.clip(log_uniform(rng, -1, 2) / largest, 10.0**-limit, 10.0**limit))
    names = ["l1", "l2", "linf", "n_support", "simplex", "group", "box", "differences", "bounds", "polytope"]
    constraint = str(rng.choice([*names, *["nuclear"] * (n_classes > 2)]))
    if constraint == "n_support":
        constraint = NSupportBall(radius, int(rng.integers(1, n_features + 1)))
    elif constraint == "group":
        constraint = GroupBall(radius, rng.integers(0, 3, n_features))
    elif constraint in ("box", "differences"):
        constraint = {"box": OwnBox, "differences": Differences}[constraint](radius)
    elif constraint in ("bounds", "polytope"):
        lower, upper = np.sort(rng.uniform(-1, 1, size=(2, n_features)), axis=0)
        fixed = rng.random(n_features) < 0.2
        lower, upper = radius * lower, radius * np.where(fixed, lower, upper)
        if constraint == "bounds":
            constraint = Box(lower, upper)
        else:
            rows = hostile_matrix(rng, (int(rng.integers(1, 4)), n_features), 20)
            inside = rng.uniform(lower, upper)
            room = rng.choice([0.0, 0.1]) * np.abs(rows) @ (upper - lower)
            constraint = Polytope(rows, rows @ inside + room, bounds=np.column_stack([lower, upper]))
    params = {"constraint": constraint, "radius": radius, "fit_intercept": bool(rng.random() < 0.6)}
    if rng.random() < 0.1:
        params["class_weight"] = "balanced"
    weights = hostile_weights(rng, n)
    return Problem(HFWLogisticRegression, X.astype(dtype), y, weights, params, draw_settings(rng, [*FORMS]))


def draw_completion(rng):
    shape = [1 if rng.random() < 0.15 else int(rng.integers(1, 13)) for _ in range(2)]
    n = int(rng.choice([1, 2, 10, 60]))
    ids = np.column_stack([rng.integers(0, size, n) for size in shape])
    values = hostile_matrix(rng, shape, 150)[tuple(ids.T)]
    if rng.random() < 0.5:  # repeated entries disagree
        values = values + rng.normal(size=n) * np.abs(values).max()
    if rng.random() < 0.1:
        values[:] = values[0]
    radius = log_uniform(rng, -1, 1) if rng.random() < 0.6 else log_uniform(rng, -150, 150)
    normalize = bool(rng.random() < 0.5)
    if not normalize and rng.random() < 0.7:
        radius = float(np.clip(log_uniform(rng, -1, 1) * (np.abs(values).max() or 1.0), 1e-150, 1e150))
    sets = ["weighted_nuclear", "nuclear", NuclearBall(radius), OwnLowRank(radius)]
    params = {
        "constraint": sets[rng.choice(4, p=[0.4, 0.2, 0.2, 0.2])],
        "radius": radius,
        "normalize": normalize,
        "biases": str(rng.choice(["both", "rows", "columns", "mean", "none"])),
        "bias_penalty": [3.0, None, 1e-8, 1e8][rng.choice(4, p=[0.4, 0.3, 0.2, 0.1])],
        "clip": (-1.0, 1.0) if rng.random() < 0.2 else None,
        "random_state": 0,
    }
    weights = hostile_weights(rng, n)
    return Problem(HFWMatrixCompletion, ids, values, weights, params, draw_settings(rng, ["dense"]))


def draw_imputer(rng):
    shape = (int(rng.integers(1, 30)), int(rng.integers(1, 7)))
    dtype, limit = (np.float32, 15) if rng.random() < 0.25 else (np.float64, 150)
    X = hostile_matrix(rng, shape, limit)
    X[rng.random(shape) < rng.choice([0.1, 0.5, 0.9])] = np.nan
    params = {"radius": float(log_uniform(rng, -1, 1)) if rng.random() < 0.7 else None, "random_state": 0}
    params["bias_penalty"] = float(rng.choice([5.0, 1e-8, 1e8]))
    params["keep_empty_features"] = True
    tries = [("dense", 1e-2, 60), ("observed", 0.0, 30), ("dense", 1e-8, 60)]
    settings = [{"form": form, "tol": tol, "max_iter": max_iter} for form, tol, max_iter in tries]
    return Problem(HFWImputer, X.astype(dtype), None, None, params, settings)


def formed(X, form):
    """Return the data as an array or a sparse matrix; "observed" stores what is known, zeros included."""
    if form != "observed":
        return FORMS[form](X)
    rows, columns = np.nonzero(~np.isnan(X))
    return sparse.csr_matrix((X[rows, columns], (rows, columns)), shape=X.shape)


def relative_weights(problem):
    """Weights of sum one. Those too small beside the largest for a float64 are none, as documented for 0."""
    weights = np.ones(len(problem.X)) if problem.weights is None else problem.weights / problem.weights.max()
    if problem.params.get("class_weight") == "balanced":
        totals = np.bincount(problem.y, weights)[problem.y]
        weights = np.divide(weights, totals, out=np.zeros(len(weights)), where=totals > 0.0)
    weights = weights.astype(np.longdouble)
    return weights / weights.sum()


def log_losses(scores, labels, worse=0.0):
    """Loss of each sample, if all other scores were higher by `worse`."""
    rows = np.arange(len(labels))
    scores = scores - scores[rows, labels][:, np.newaxis] + np.reshape(worse, (-1, 1))
    scores[rows, labels] = 0.0
    return np.logaddexp.reduce(scores, axis=1)


def logistic_reference(problem, model):
    """Log-loss in extended precision, and what rounding may have changed in it.

    Rounding moves a score by a few units in the last place of the sum of the sizes it is made of; the
    allowance is what that does to the loss. Data in float32 has coefficients rounded to float32.
    """
    coef, intercept = model.coef_.astype(np.longdouble), model.intercept_.astype(np.longdouble)
    X, eps = problem.X.astype(np.longdouble), np.finfo(problem.X.dtype).eps
    scores = X @ coef.T + intercept
    moved = 4 * (X.shape[1] + 4) * eps * (np.abs(X) @ np.abs(coef).T + np.abs(intercept)).max(axis=1)
    if scores.shape[1] == 1:
        scores = np.hstack([0 * scores, scores])
    weights = relative_weights(problem)
    kept = weights > 0  # the labels of the classes that are left
    labels = np.searchsorted(model.classes_, problem.y[kept])
    losses = log_losses(scores[kept], labels)
    worse = log_losses(scores[kept], labels, 2 * moved[kept])
    return weights[kept] @ losses, weights[kept] @ (worse - losses)


def completion_reference(problem, model):
    """Objective in extended precision, and what rounding may have changed in it.

    A singular value decomposition is exact up to units in the last place of the largest singular value, and
    what is left of a value without its biases up to those of the largest value.
    """
    weights = relative_weights(problem)
    kept = weights > 0
    rows, columns = (
        np.searchsorted(ids, problem.X[kept, i]) for i, ids in enumerate([model.row_ids_, model.column_ids_])
    )
    y, weights = problem.y[kept].astype(np.longdouble), weights[kept]
    left, right = model.row_factors_.astype(np.longdouble), model.column_factors_.astype(np.longdouble)
    row_biases, column_biases = (
        biases.astype(np.longdouble) for biases in (model.row_biases_, model.column_biases_)
    )
    error = np.sum(left[rows] * right[columns], axis=1) + row_biases[rows] + column_biases[columns]
    error += np.longdouble(model.mean_) - y
    size = np.abs(row_biases[rows]) + np.abs(column_biases[columns]) + np.abs(y).max()
    size += model.singular_values_.sum()
    moved = 64 * EPS * np.sqrt(np.longdouble(len(left) + len(right))) * size
    ridge = np.longdouble(model.bias_penalty or 0.0)
    ridge /= len(y) if problem.weights is None else problem.weights.astype(np.longdouble).sum()
    squares = 0.0
    if model.bias_penalty is not None:
        for groups, biases in ((rows, row_biases), (columns, column_biases)):
            total = np.bincount(groups, weights.astype(np.float64), len(biases))
            squares += np.maximum(ridge, EPS * total) @ biases**2  # a penalty has a floor
    return 0.5 * (weights @ error**2 + squares), weights @ (np.abs(error) * moved + moved**2 / 2)


def set_excess(problem, model):
    """How far outside of the set the model is, relative to its radius."""
    if problem.estimator is HFWMatrixCompletion:
        if problem.params["normalize"] or problem.params["constraint"] == "weighted_nuclear":
            return 0.0  # in units that only the solver knows
        return float(model.singular_values_.sum() / problem.params["radius"]) - 1
    constraint, coef = problem.params["constraint"], model.coef_.astype(np.longdouble).T
    radius = np.longdouble(problem.params["radius"])
    coef = coef / radius
    sizes = np.abs(coef)
    if constraint == "simplex":
        return max(abs(coef.sum() - 1), -coef.min())
    if isinstance(constraint, Differences):
        return max(abs(coef.sum()), sizes.sum() / 2 - 1)
    if isinstance(constraint, OwnBox):
        return max(coef.max() - 1, -coef.min())
    if isinstance(constraint, Box):
        lower, upper = (
            np.array([bound], dtype=np.longdouble).T / radius
            for bound in (constraint.lower, constraint.upper)
        )
        return max((coef.reshape(len(lower), -1) - upper).max(), (lower - coef.reshape(len(lower), -1)).max())
    if isinstance(constraint, Polytope):
        system = constraint.system(len(coef))
        units = np.maximum(system.sizes, TINY)
        columns = model.coef_.astype(np.float64).reshape(-1, len(coef))
        missed = max(system.scaled(units).worst_miss(column / units) for column in columns)
        return 1e-6 * missed  # HiGHS works to 1e-10
    if isinstance(constraint, (GroupBall, NSupportBall)):
        return constraint.norm(coef.astype(np.float64)) - 1
    norm = {
        "l1": np.sum,
        "l2": lambda sizes: np.sqrt(np.sum(sizes**2)),
        "linf": np.max,
        "nuclear": lambda _: np.linalg.svd(coef.astype(np.float64), compute_uv=False).sum(),
    }[constraint]
    return norm(sizes) - 1


def violations(problem, model):
    """Yield what is wrong with a fitted model, a line each."""
    outer, model = model, getattr(model, "completion_", model)
    objective, bound, gap = model.objective_, model.lower_bound_, model.gap_
    numbers = [v for k, v in vars(model).items() if k.endswith("_") and not k.startswith(("_", "trace"))]
    for number in numbers:
        if isinstance(number, (float, np.ndarray)) and np.asarray(number).dtype.kind == "f":
            # A set without a radius has no multiplier either.
            optional = any(number is each for each in (bound, gap, model.multiplier_, model.radius_))
            if not (np.isfinite(number).all() or optional):
                yield f"not finite: {next(k for k, v in vars(model).items() if v is number)}"
    if not gap >= 0.0:
        yield f"gap_ negative: {gap}"
    if not (np.isfinite(bound) or (bound == -np.inf and gap == np.inf)):
        yield f"lower_bound_ {bound} with gap_ {gap}"
    if not abs(gap - max(objective - bound, 0.0)) <= 4 * np.spacing(objective):
        yield f"gap_ {gap} is not objective_ {objective} - lower_bound_ {bound}"
    gaps = model.trace_["gap"]
    if not (gaps >= 0.0).all():
        yield f"trace: negative gap {gaps.min()}"
    if not (gaps[1:-1] <= gaps[:-2] + 64 * EPS * model.trace_["objective"].max()).all():
        yield f"trace: gap grows by {np.max(gaps[1:] - gaps[:-1])} at objective {objective}"
    if not objective <= model.trace_["objective"][0]:
        yield f"objective_ {objective} is worse than {model.trace_['objective'][0]}, where the run began"
    if problem.estimator is HFWImputer:
        filled = outer.transform(problem.X)
        if not np.isfinite(filled).all():
            yield "transform is not finite"
        if not np.array_equal(filled[~np.isnan(problem.X)], problem.X[~np.isnan(problem.X)]):
            yield "transform changes observed values"
        return
    reference = logistic_reference if problem.estimator is HFWLogisticRegression else completion_reference
    expected, allowance = reference(problem, model)
    allowance += 64 * EPS * expected + 1e3 * TINY
    if not abs(objective - expected) <= allowance:
        yield f"objective_ {objective} is {float(expected)} give or take {float(allowance):.1g}"
    # In the last row predictions are computed afresh: it may be worse by what was rounded in all rows before.
    rounded = 64 * EPS * model.trace_["objective"].max() + len(gaps) * float(allowance)
    if len(gaps) > 1 and not gaps[-1] <= gaps[-2] + rounded and objective < model.trace_["objective"][0]:
        yield f"trace: gap grows by {gaps[-1] - gaps[-2]} in the last row, at objective {objective}"
    predicted = [model.predict(problem.X)]
    if problem.estimator is HFWLogisticRegression:
        predicted = [model.predict_proba(problem.X), model.decision_function(problem.X)]
    elif model.clip and not np.abs(predicted[0]).max() <= 1.0:
        yield "clip has no effect"
    excess = float(set_excess(problem, model))
    # Sums of as many terms as there are coefficients, moved by as many steps, each of them rounded.
    if not excess <= 64 * np.finfo(problem.X.dtype if problem.X.dtype.kind == "f" else float).eps:
        yield f"outside of the set by {excess:.1g} of the radius"
    if not all(np.isfinite(values).all() for values in predicted):
        yield "predictions are not finite"


def one_class_left(problem):
    if problem.estimator is not HFWLogisticRegression:
        return False
    return len(np.unique(problem.y[relative_weights(problem).astype(np.float64) > 0])) < 2


def fit(problem, setting):
    """Return the fitted model or None, the message of a legitimate ValueError, and a list of failures."""
    setting = dict(setting)
    X = formed(problem.X, setting.pop("form"))
    model = problem.estimator(**problem.params, **setting)
    targets = () if problem.y is None else (problem.y, problem.weights)
    began, fitted = time.process_time(), False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model.fit(X, *targets)
            fitted = True
            failures = list(violations(problem, model))
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            ours = {"skfw", "sklearn"} & {*Path(frame.filename).parts}
            spoken = not fitted and str(error).endswith(".") and len(str(error)) > 30
            if isinstance(error, ValueError) and spoken and ours:
                return None, str(error), []
            place = f"{Path(frame.filename).name}:{frame.name}"
            return None, None, [f"{type(error).__name__} in {place}: {str(error)[:80]}"]
    if (seconds := time.process_time() - began) > SECONDS:
        failures.append(f"slow: {seconds:.1f} seconds")
    if one_class_left(problem):
        failures.append("one class is left and nothing said so")
    return model, None, failures


def examine(problem):
    """Return the messages of the ValueErrors, and the failures with their settings."""
    messages, failures, models = [], [], []
    for setting in problem.settings:
        model, message, found = fit(problem, setting)
        failures += [(failure, setting) for failure in found]
        if message is not None:
            messages.append(message)
            if one_class_left(problem) and "class" not in message and "restart" not in message:
                failures.append((f"one class is left, but: {message}", setting))
        elif model is not None:
            models.append((getattr(model, "completion_", model), setting))
    if models and problem.params["radius"] is not None:
        best, where = min(models, key=lambda pair: pair[0].objective_)
        proof, other = max(models, key=lambda pair: pair[0].lower_bound_)
        # The objective is itself a rounded sum: a few units in its last place, and no more.
        excess = proof.lower_bound_ - best.objective_
        if excess > 8 * np.spacing(best.objective_):
            relative = excess / best.objective_ if best.objective_ else np.inf
            failures.append(
                (f"lower_bound_ above objective_ by {relative:.1e} of it: {other} against", where)
            )
    return messages, failures


def check(problem):
    _, failures = examine(problem)
    assert not failures, f"{problem}\n" + "\n".join(f"{failure}: {setting}" for failure, setting in failures)


@pytest.mark.parametrize("seed", range(40))
def test_no_problem_breaks_a_promise(seed):
    check(draw_problem(np.random.default_rng(seed)))


def main(n_fits, first_seed=0):
    fits, errors, kinds, seed = 0, Counter(), Counter(), first_seed
    while fits < n_fits:
        problem = draw_problem(np.random.default_rng(seed))
        messages, failures = examine(problem)
        fits += len(problem.settings)
        errors.update(message[:60] for message in messages)
        kinds.update(failure[:45] for failure, _ in failures)
        for failure, setting in failures:
            print(f"seed {seed}: {failure} | {setting} | {problem}", flush=True)
        seed += 1
    print(f"\n{skfw.__file__}: {fits} fits, seeds {first_seed} to {seed - 1}")
    for title, counts in (("ValueErrors", errors), ("failures", kinds)):
        print(f"{sum(counts.values())} {title}")
        for text, count in counts.most_common():
            print(f"{count:6d}  {text}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
