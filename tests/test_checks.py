"""The checks pass for the parts of the package, and find out what is wrong with others."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from problems import N_CLASSES, N_SAMPLES, data

from skfw.engine import (
    BiasedSquaredLoss,
    Constraint,
    DenseVector,
    DiagonalHessian,
    EntryMatrix,
    GroupBall,
    Hint,
    HuberLoss,
    L1Ball,
    L2Ball,
    LinearMinimum,
    LInfBall,
    LogisticLoss,
    MultinomialLoss,
    NSupportBall,
    NuclearBall,
    ObservedEntries,
    PoissonLoss,
    RankOne,
    SeparableLoss,
    SeveralTargets,
    Simplex,
    SparseVector,
    SquaredLoss,
    WeightedNuclearBall,
    check_constraint,
    check_loss,
)


def sets(shape, radius):
    yield from (L1Ball(radius), L2Ball(radius), LInfBall(radius), Simplex(radius))
    yield NSupportBall(radius, min(3, int(np.prod(shape))))
    yield GroupBall(radius, np.arange(shape[0]) // 2)
    if len(shape) == 2:
        rows, columns = (np.geomspace(0.1, 10.0, length) for length in shape)
        yield from (NuclearBall(radius), WeightedNuclearBall(radius, rows, columns))


@pytest.mark.parametrize(
    "shape, radius",
    [
        *(((7,), radius) for radius in (1e-6, 0.7, 1e6)),
        *(((4, 3), radius) for radius in (1e-6, 0.7, 1e6)),
        *((shape, 0.7) for shape in [(1,), (2,), (300,), (1, 1), (3, 40)]),
    ],
)
def test_sets_of_the_package_pass(shape, radius):
    for constraint in sets(shape, radius):
        check_constraint(constraint, shape)


def test_iterative_oracle_passes(monkeypatch):
    monkeypatch.setattr("skfw.engine.constraints._nuclear._DENSE_LIMIT", 3)
    check_constraint(NuclearBall(0.7), (12, 9))
    check_constraint(WeightedNuclearBall(0.7, np.geomspace(0.1, 1.0, 9), np.geomspace(1.0, 9.0, 12)), (9, 12))


class Maximising(L1Ball):
    def lmo(self, direction, hint=None):
        minimum = super().lmo(-direction)
        return replace(minimum, value=-minimum.value)


class WithoutSign(L1Ball):
    def lmo(self, direction, hint=None):
        index = int(np.abs(direction).argmax())
        atom = SparseVector(np.array([index]), np.array([-self.radius]))
        return LinearMinimum(atom, -self.radius * direction.flat[index])


class WithoutLargest(NSupportBall):
    def lmo(self, direction, hint=None):
        rest = direction.copy()
        rest.flat[np.abs(direction).argmax()] = 0.0
        return super().lmo(rest)


class WithoutRadius(L1Ball):
    def lmo(self, direction, hint=None):
        return L1Ball(1.0).lmo(direction)


class WithoutRoot(GroupBall):
    """The largest group by the sum of sizes."""

    def _group_norms(self, x):
        return np.bincount(self.groups, np.abs(x).reshape(len(x), -1).sum(axis=1))


class Fudged(L2Ball):
    """A small number against divisions by zero, which is not small for all directions."""

    def lmo(self, direction, hint=None):
        atom = -self.radius * direction / (np.linalg.norm(direction) + 1e-30)
        return LinearMinimum(DenseVector(atom), np.vdot(direction, atom))


class Thresholded(L2Ball):
    """All entries a little smaller, for a sparser atom, and no word about the slack."""

    def lmo(self, direction, hint=None):
        size = np.abs(direction)
        shrunk = np.sign(direction) * np.maximum(size - 0.01 * size.max(), 0.0)
        atom = super().lmo(shrunk).atom
        return LinearMinimum(atom, np.vdot(direction, atom.array))


class ValueWithoutRadius(L1Ball):
    def lmo(self, direction, hint=None):
        minimum = super().lmo(direction)
        return replace(minimum, value=minimum.value / self.radius)


class NegativeSlack(L1Ball):
    def lmo(self, direction, hint=None):
        return replace(super().lmo(direction), slack=-1e-9)


class NotANumber(L2Ball):
    def lmo(self, direction, hint=None):
        with np.errstate(invalid="ignore"):
            atom = -self.radius * direction / np.linalg.norm(direction)
        return LinearMinimum(DenseVector(atom), np.vdot(direction, atom))


class LazyWithoutSlack(L1Ball):
    """Any coordinate that is accurate enough."""

    def lmo(self, direction, hint=None):
        minimum = super().lmo(direction)
        for index, slope in enumerate(direction.flat):
            value = -self.radius * abs(slope)
            if value <= minimum.value + (hint or Hint()).accuracy:
                atom = SparseVector(np.array([index]), np.array([-self.radius * np.sign(slope)]))
                return LinearMinimum(atom, value)
        raise AssertionError


class PowerIteration(NuclearBall):
    """A few steps, and no word about the accuracy."""

    def lmo(self, direction, hint=None):
        right = np.ones(direction.shape[1])
        for _ in range(5):
            right = direction.T @ (direction @ (right / (np.linalg.norm(right) or 1.0)))
            right = right / (np.abs(right).max() or 1.0)
        right = right / (np.linalg.norm(right) or 1.0)
        image = direction @ right
        norm = np.linalg.norm(image)
        left = image / (norm or 1.0)
        return LinearMinimum(RankOne(left, right, -self.radius if norm else 0.0), -self.radius * norm)


class WrongForEntries(NuclearBall):
    def lmo(self, direction, hint=None):
        return super().lmo(-1.0 * direction if isinstance(direction, EntryMatrix) else direction, hint)

    def error_effect(self, error, zero):
        return np.inf


class ChangedDirection(L1Ball):
    def lmo(self, direction, hint=None):
        direction -= direction.mean()
        return super().lmo(direction)


class ShortDiameter(L2Ball):
    def diameter(self, shape):
        return 0.999 * super().diameter(shape)

    def scale_into(self, x):
        return None


class NoDiameter(L2Ball):
    def diameter(self, shape):
        return np.inf


class ZeroOutside(Simplex):
    contains_zero = True


class ScaledOutside(L1Ball):
    def scale_into(self, x):
        norm = np.linalg.norm(x)
        return x if norm <= self.radius else self.radius / norm * x


class ScaledInPlace(L1Ball):
    def scale_into(self, x):
        x *= min(self.radius / max(self.norm(x), 1e-300), 1.0)
        return x


class ScaledToNothing(L1Ball):
    def scale_into(self, x):
        with np.errstate(all="ignore"):
            return self.radius / np.abs(x).sum() * x


class MeanErrorEffect(L1Ball):
    def error_effect(self, error, zero):
        return self.radius * error.mean()


class HiddenParameter(L1Ball):
    def __init__(self, size=0.7):
        super().__init__(size)


class ConvertedParameter(L1Ball):
    def __init__(self, radius=0.7):
        super().__init__(1.0 * radius)


@dataclass(frozen=True)
class FrozenBall(Constraint):
    radius: float

    def lmo(self, direction, hint=None):
        return L1Ball(self.radius).lmo(direction)

    def diameter(self, shape):
        return 2.0 * self.radius


class InfiniteMultiplier(L1Ball):
    def multiplier(self, slope):
        return np.inf


class OwnAtom:
    """A dense vector in which one thing at a time goes wrong."""

    __array_ufunc__ = None

    def __init__(self, array):
        self.array = array

    def image(self, data):
        return data.apply(self.array)

    def inner(self, direction):
        return float(np.vdot(direction, self.array))

    def squared_distance(self, x):
        return float(((x - self.array) ** 2).sum())

    def __rmul__(self, scale):
        return type(self)(scale * self.array)

    def __radd__(self, x):
        return x + self.array


class WrongImage(OwnAtom):
    def image(self, data):
        return 2.0 * super().image(data)


class WrongInner(OwnAtom):
    def inner(self, direction):
        return abs(super().inner(direction))


class WrongDistance(OwnAtom):
    def squared_distance(self, x):
        return super().squared_distance(x) ** 0.5


class WrongSum(OwnAtom):
    def __radd__(self, x):
        return x - self.array


class WrongMultiple(OwnAtom):
    def __rmul__(self, scale):
        return self


def with_atoms(kind):
    class WithAtoms(L2Ball):
        def lmo(self, direction, hint=None):
            minimum = super().lmo(direction)
            return replace(minimum, atom=kind(minimum.atom.array))

    return WithAtoms(0.7)


def test_own_atoms_pass():
    check_constraint(with_atoms(OwnAtom), (5,))


# The set, the shape of the models, and what the message says.
WRONG_SETS = {
    "maximises": (Maximising(0.7), (5,), "lmo does not minimise"),
    "without sign": (WithoutSign(0.7), (5,), "lmo does not minimise"),
    "without largest": (WithoutLargest(0.7, 2), (5,), "lmo does not minimise"),
    "without radius": (WithoutRadius(2.0), (5,), "scale_into .* or lmo does not minimise"),
    "with a larger radius": (WithoutRadius(0.7), (5,), "diameter returns 1.4, but .* 2 apart"),
    "without root": (WithoutRoot(0.7, np.arange(100) // 20), (100,), "lmo does not minimise"),
    "fudged": (Fudged(0.7), (5,), "lmo does not minimise"),
    "thresholded": (Thresholded(0.7), (50,), "lmo does not minimise"),
    "value not attained": (ValueWithoutRadius(0.7), (5,), "lmo: value is not the inner product"),
    "negative slack": (NegativeSlack(0.7), (5,), "lmo must return .* slack=-1e-09"),
    "not a number": (NotANumber(0.7), (5,), "lmo must return .* value=nan"),
    "lazy": (LazyWithoutSlack(0.7), (50,), "lmo does not minimise"),
    "power iteration": (PowerIteration(0.7), (6, 5), "lmo does not minimise"),
    "wrong for entries": (WrongForEntries(0.7), (6, 5), "lmo: value is not the inner product"),
    "changed direction": (ChangedDirection(0.7), (5,), "lmo changes the direction"),
    "short diameter": (ShortDiameter(0.7), (50,), "diameter returns"),
    "no diameter": (NoDiameter(0.7), (5,), "diameter must be positive and finite; got inf"),
    "zero outside": (ZeroOutside(0.7), (5,), "contains_zero is True, but"),
    "scaled outside": (ScaledOutside(0.7), (5,), "scale_into returns a point outside"),
    "scaled in place": (ScaledInPlace(0.7), (5,), "scale_into changes its argument"),
    "scaled to nothing": (
        ScaledToNothing(0.7),
        (5,),
        "scale_into must return .* not finite for a model with a norm of 0",
    ),
    "mean error effect": (MeanErrorEffect(0.7), (5,), "error_effect returns"),
    "hidden parameter": (HiddenParameter(), (5,), "get_params .* 'size'"),
    "converted parameter": (ConvertedParameter(0.7), (5,), "get_params: .* radius="),
    "frozen": (FrozenBall(0.7), (5,), "set_params .* 'radius'"),
    "infinite multiplier": (InfiniteMultiplier(0.7), (5,), "multiplier.* is inf"),
    "wrong image": (with_atoms(WrongImage), (5,), "lmo: value .* by the method image"),
    "wrong inner": (with_atoms(WrongInner), (5,), "lmo: value .* by the method inner"),
    "wrong distance": (with_atoms(WrongDistance), (5,), "atom: squared_distance returns"),
    "wrong sum": (with_atoms(WrongSum), (5,), r"atom: x \+ atom and atom.image"),
    "wrong multiple": (with_atoms(WrongMultiple), (5,), r"atom: 0.75 \* x \+ 0.25 \* atom"),
}


@pytest.mark.parametrize("name", WRONG_SETS)
@pytest.mark.parametrize("random_state", range(3))
def test_wrong_sets_are_found(name, random_state):
    constraint, shape, message = WRONG_SETS[name]
    with pytest.raises(AssertionError, match=message):
        check_constraint(constraint, shape, random_state=random_state)


def test_only_a_wrong_claim_about_zero_is_an_error():
    """A ball elsewhere; of one that has zero in it, it would be no error not to say so."""

    class BallElsewhere(Constraint):
        contains_zero = True

        def lmo(self, direction, hint=None):
            minimum = L2Ball(1.0).lmo(direction)
            atom = 3.0 + minimum.atom.array
            return LinearMinimum(DenseVector(atom), np.vdot(direction, atom))

        def diameter(self, shape):
            return 2.0

    elsewhere, around_zero = BallElsewhere(), L2Ball(1.0)
    with pytest.raises(AssertionError, match="contains_zero is True"):
        check_constraint(elsewhere, (3,))
    elsewhere.contains_zero = around_zero.contains_zero = False
    check_constraint(elsewhere, (3,))
    check_constraint(around_zero, (3,))


@pytest.mark.parametrize(
    "constraint, shape", [(L1Ball(1.0), ()), (L1Ball(1.0), (2, 2, 2)), (NuclearBall(1.0), (5,))]
)
def test_shapes_that_make_no_sense(constraint, shape):
    with pytest.raises(ValueError, match="shape must be one or two numbers"):
        check_constraint(constraint, shape)


def test_errors_of_the_set_are_passed_on():
    with pytest.raises(ValueError, match="radius must be"):
        check_constraint(L1Ball(-1.0), (5,))


@dataclass(frozen=True)
class Quadratic(SeparableLoss):
    """Half the squared error by its four functions."""

    curvature = 1.0
    infimum = 0.0
    largest_prediction = 1e150

    def sample_value(self, predictions):
        return 0.5 * (predictions - self.targets) ** 2

    def sample_slope(self, predictions):
        return predictions - self.targets

    def sample_curvature(self, slope):
        return np.ones_like(slope)

    def sample_conjugate(self, slope):
        return slope * (0.5 * slope + self.targets)


def losses(intercept):
    _, weights, signs, labels, targets = data()
    for mean, scale in ((0.0, 1.0), (1e6, 1.0), (0.0, 1e-6), (0.0, 1e6)):
        yield SquaredLoss(mean + scale * targets, weights, intercept), None
    yield LogisticLoss(signs, weights, intercept), None
    yield MultinomialLoss(labels, N_CLASSES, weights, intercept), (N_SAMPLES, N_CLASSES)
    yield Quadratic(targets, weights, intercept), None
    yield PoissonLoss(np.floor(np.exp(targets)), weights, intercept), None
    for mean, epsilon in ((0.0, 0.8), (1e6, 0.8), (0.0, 1e-3), (0.0, 1e3)):
        yield HuberLoss(mean + targets, weights, intercept, epsilon), None
    columns = [SquaredLoss(column, weights, intercept) for column in (targets, 1e3 - targets, signs)]
    yield SeveralTargets(tuple(columns)), (N_SAMPLES, len(columns))
    rows, columns = np.divmod(np.arange(N_SAMPLES), 5)
    penalties = (0.1, 0.3) if intercept else (np.inf, np.inf)
    yield BiasedSquaredLoss(targets, weights, ObservedEntries(rows, columns, (5, 5)), *penalties), None


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("random_state", [0, 1])
def test_losses_of_the_package_pass(intercept, random_state):
    for loss, shape in losses(intercept):
        check_loss(loss, shape, random_state=random_state)


def quadratic(intercept=True, weights=None, **functions):
    """Return a loss that is wrong in some of its functions."""
    _, own, _, _, targets = data()
    return type("Wrong", (Quadratic,), functions)(targets, own if weights is None else weights, intercept)


def with_evaluation(change, **functions):
    """Return a loss whose evaluations are changed."""
    return quadratic(
        evaluate=lambda self, z, b=0.0: change(Quadratic.evaluate(self, z, b), self), **functions
    )


def changing_predictions(self, predictions, intercept=0.0):
    predictions += 1.0
    return Quadratic.evaluate(self, predictions, intercept)


def slightly_steeper(self, predictions, intercept=0.0):
    """A plane that touches the loss, but crosses it."""
    found, excess = Quadratic.evaluate(self, predictions, intercept), 1e-5
    offset = found.offset - excess * found.residual @ predictions
    return replace(found, residual=(1.0 + excess) * found.residual, offset=offset, size=2.0 * found.size)


def mean_instead_of_best(self, predictions, intercept=0.0):
    """The intercept of the mean target, whatever the predictions."""
    shift = self.weights @ self.targets
    return replace(self._evaluate_at(predictions + shift), intercept=shift)


# The loss, and what the message says.
WRONG_LOSSES = {
    "wrong sign": (
        quadratic(False, sample_slope=lambda self, z: self.targets - z),
        "derivative of value .*sample_slope",
    ),
    "wrong factor": (
        quadratic(sample_slope=lambda self, z: 1.001 * (z - self.targets)),
        "derivative .*sample_slope",
    ),
    "no half": (
        quadratic(False, sample_value=lambda self, z: (z - self.targets) ** 2),
        "derivative .*sample_value",
    ),
    "not convex": (quadratic(False, sample_value=lambda self, z: np.cos(z)), "not convex .sample_value"),
    "no target": (quadratic(False, sample_conjugate=lambda self, s: 0.5 * s**2), "offset .*sample_conjugate"),
    "wrong conjugate": (
        quadratic(sample_conjugate=lambda self, s: s * (s + self.targets)),
        "offset .*sample_conjugate",
    ),
    "wrong conjugate far out": (
        quadratic(
            sample_conjugate=lambda self, s: s * (np.where(abs(s) < 100.0, 0.5, 0.49) * s + self.targets)
        ),
        "plane of .* does not lie below",
    ),
    "high plane": (
        with_evaluation(lambda e, loss: replace(e, offset=e.offset + 1e-3)),
        "offset is not the height",
    ),
    "plane a little too high": (
        with_evaluation(lambda e, loss: replace(e, offset=e.offset + 1e-10)),
        "plane of residual and offset does not lie below",
    ),
    "slightly steeper": (quadratic(evaluate=slightly_steeper), "plane of .* does not lie below"),
    "unbalanced": (
        with_evaluation(
            lambda e, loss: replace(e, residual=e.residual + 1e-6 * loss.weights, size=2 * e.size)
        ),
        "derivative .* a shift of all predictions .* must sum to zero; it sums to 1e-06",
    ),
    "a little unbalanced": (
        with_evaluation(
            lambda e, loss: replace(e, residual=e.residual + 1e-12 * loss.weights, size=2 * e.size)
        ),
        "does not lie below .* must sum to zero; it sums to 1e-12",
    ),
    "mean instead of best": (
        quadratic(evaluate=mean_instead_of_best, subset=lambda self, rows: None),
        "offset is not the height",
    ),
    "negative curvature": (
        quadratic(sample_curvature=lambda self, s: -np.ones_like(s)),
        "apply .*sample_curvature",
    ),
    "double curvature": (
        quadratic(sample_curvature=lambda self, s: np.full_like(s, 2.0)),
        "apply .*sample_curvature",
    ),
    "along": (
        quadratic(curvature_along=lambda self, e, c: 2.0 * self.curvature_bound(c)),
        "curvature_along returns",
    ),
    "negative diagonal": (
        quadratic(
            hessian=lambda self, e: DiagonalHessian(-self.weights), curvature_along=lambda self, e, c: 0.0
        ),
        "diagonal must be non-negative",
    ),
    "scalar diagonal": (
        quadratic(hessian=lambda self, e: DiagonalHessian(np.ones(()))),
        r"diagonal must .* with shape \(\)",
    ),
    "small curvature": (
        quadratic(curvature=0.9, curvature_bound=lambda self, c: np.inf),
        "curvature=0.9 is no upper bound",
    ),
    "small bound": (
        quadratic(curvature_bound=lambda self, c: 0.9 * Quadratic.curvature_bound(self, c)),
        "curvature_bound returns",
    ),
    "not quadratic": (
        type("Wrong", (LogisticLoss,), {"is_quadratic": True})(*data()[2:0:-1]),
        "is_quadratic is True, but",
    ),
    "small size": (with_evaluation(lambda e, loss: replace(e, size=0.9 * e.size)), "evaluate: size is"),
    "small offset_size": (
        with_evaluation(lambda e, loss: replace(e, offset_size=0.9 * abs(e.offset))),
        "evaluate: offset_size is",
    ),
    "large infimum": (quadratic(False, infimum=0.1), "infimum=0.1 is no lower bound"),
    "overflow": (quadratic(largest_prediction=1e300), "overflow .* largest_prediction=1e.300"),
    "not a number": (with_evaluation(lambda e, loss: replace(e, offset=np.nan)), "offset=nan"),
    "scalar residual": (
        with_evaluation(lambda e, loss: replace(e, residual=0.0)),
        "residual must have the shape",
    ),
    "changed predictions": (quadratic(evaluate=changing_predictions), "evaluate changes the predictions"),
    "large weights": (quadratic(weights=np.ones(N_SAMPLES)), "weights must be positive and sum to one"),
    "negative weight": (
        quadratic(weights=np.append(-0.1, np.full(N_SAMPLES - 1, 1.1 / (N_SAMPLES - 1)))),
        "weights must be positive and sum to one; got weights from -0.1",
    ),
    "subset of weights": (
        quadratic(
            subset=lambda self, rows: replace(self, targets=self.targets[rows], weights=self.weights[rows])
        ),
        "subset: weights must",
    ),
    "subset in disorder": (
        quadratic(subset=lambda self, rows: Quadratic.subset(self, np.sort(rows))),
        "subset: all samples in another order",
    ),
}


@pytest.mark.parametrize("name", WRONG_LOSSES)
@pytest.mark.parametrize("random_state", [0, 1])
def test_wrong_losses_are_found(name, random_state):
    loss, message = WRONG_LOSSES[name]
    with pytest.raises(AssertionError, match=message):
        check_loss(loss, random_state=random_state)
