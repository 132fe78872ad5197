"""From the estimators' flat parameters to the engine's objects, with errors that name what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from numbers import Integral, Real

import numpy as np

from .engine import (
    Adaptive,
    Constant,
    Constraint,
    Directional,
    L1Ball,
    L2Ball,
    LineSearch,
    LInfBall,
    Momentum,
    NoMomentum,
    NSupportBall,
    NuclearBall,
    ParameterFree,
    Simplex,
    Smooth,
    StepRule,
    Uniform,
    Weighted,
    WeightedNuclearBall,
)

_BALLS = {"l1": L1Ball, "l2": L2Ball, "linf": LInfBall, "simplex": Simplex}
LINEAR_CONSTRAINTS = (*_BALLS, "n_support", "nuclear")
COMPLETION_CONSTRAINTS = ("weighted_nuclear", "nuclear")
_MOMENTA = {"adaptive": Adaptive(), "weighted": Weighted(), "uniform": Uniform(), "none": NoMomentum()}
_STEPS: dict[str, Callable[[Callable[[], float]], StepRule]] = {
    "parameter_free": lambda lipschitz: ParameterFree(),
    "smooth": lambda lipschitz: Smooth(lipschitz()),
    "directional": lambda lipschitz: Directional(),
    "line_search": lambda lipschitz: LineSearch(),
}


def make_constraint(
    constraint, radius, names, *, support_size=None, matrix_weights=(None, None), seed=0
) -> Constraint:
    """Return the constraint that a name and a radius stand for; an object stands for itself."""
    if isinstance(constraint, Constraint):
        return constraint
    check_name("constraint", constraint, names, " or a Constraint object")
    check_number("radius", radius, above=0.0)
    if constraint == "n_support":
        check_integer("support_size", support_size, at_least=1)
        return NSupportBall(float(radius), int(support_size))
    if constraint == "nuclear":
        return NuclearBall(float(radius), seed)
    if constraint == "weighted_nuclear":
        return WeightedNuclearBall(float(radius), *matrix_weights, seed)
    return _BALLS[constraint](float(radius))


def make_momentum(momentum) -> Momentum:
    """Return the momentum that a name or a constant weight stands for."""
    if isinstance(momentum, Real) and 0.0 < momentum < 1.0:
        return Constant(float(momentum))
    check_name("momentum", momentum, _MOMENTA, " or a number strictly between 0 and 1")
    return _MOMENTA[momentum]


def check_restart(restart, momentum) -> None:
    """Raise a ValueError unless `restart` is a boolean, and there is a past to forget."""
    check_flag("restart", restart)
    reasons = {"adaptive": "which forgets the past by itself where that helps", "none": "which keeps no past"}
    if restart and isinstance(momentum, str) and momentum in reasons:
        raise ValueError(
            f"restart=True needs a momentum with fixed weights, 'weighted', 'uniform' or a number; "
            f"got momentum={momentum!r}, {reasons[momentum]}."
        )


def make_step_rule(step_size, lipschitz: Callable[[], float]) -> StepRule:
    """Return the step rule that a name stands for; `lipschitz` is called only by the rule that needs it."""
    check_name("step_size", step_size, _STEPS)
    return _STEPS[step_size](lipschitz)


def check_name(name, value, names, otherwise="") -> None:
    """Raise a ValueError unless `value` is one of the names; the message says what else it may be."""
    if isinstance(value, str) and value in names:
        return
    close = get_close_matches(value.lower(), names, n=1) if isinstance(value, str) else []
    raise ValueError(
        f"{name} must be one of {', '.join(map(repr, names))}{otherwise}; got {name}={value!r}"
        f"{f'; did you mean {close[0]!r}?' if close else '.'}"
    )


def check_number(name, value, *, above=-np.inf, at_least=-np.inf) -> None:
    """Raise a ValueError unless `value` is a finite number in the range."""
    if not is_number(value) or not np.isfinite(value) or value <= above or value < at_least:
        wanted = f"above {above:g}" if above > -np.inf else f"of at least {at_least:g}"
        raise ValueError(f"{name} must be a finite number {wanted}; got {name}={value!r}.")


def check_radius(radius) -> None:
    """Raise a ValueError unless a radius is a positive number, or "scale"."""
    if isinstance(radius, str) and radius != "scale":
        raise ValueError(f"radius must be 'scale' or a finite number above 0; got radius={radius!r}.")
    if not isinstance(radius, str):
        check_number("radius", radius, above=0.0)


def check_integer(name, value, *, at_least) -> None:
    """Raise a ValueError unless `value` is an integer of at least `at_least`."""
    if not is_number(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}; got {name}={value!r}.")


def is_number(value, kind=Real) -> bool:
    """Whether `value` is a number of this kind. A boolean is none, though Python counts with it."""
    return isinstance(value, kind) and not isinstance(value, bool)


def check_flag(name, value) -> None:
    """Raise a ValueError unless `value` is a boolean."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {name}={value!r}.")


def as_sample_weight(sample_weight, n_samples, name="sample_weight"):
    """Return the weights as an array of floats; None stands for ones."""
    if sample_weight is None:
        return np.ones(n_samples)
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must have numbers; got {name}={sample_weight!r:.50}.") from error
    if weights.ndim == 0:
        weights = np.full(n_samples, weights)
    if weights.shape != (n_samples,):
        raise ValueError(
            f"{name} must have shape ({n_samples},), one weight for each sample; got shape {weights.shape}."
        )
    if not np.isfinite(weights).all() or weights.min() < 0.0:
        raise ValueError(
            f"{name} must be finite and non-negative; got weights from {weights.min()} to {weights.max()}."
        )
    if weights.max() == 0.0:
        raise ValueError(f"{name} must have a positive weight; got weights that are all zero.")
    return weights


def check_sample_weight(sample_weight, n_samples, name="sample_weight"):
    """Return the weights divided by the largest; None stands for ones."""
    return relative_weights(as_sample_weight(sample_weight, n_samples, name))


def relative_weights(weights):
    """Return weights divided by the largest."""
    with np.errstate(over="ignore"):  # NumPy 1 warns of a quotient of numbers below the normal range
        return weights / weights.max()
