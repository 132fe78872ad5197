"""Momenta: what they choose, what they promise, and what the solver makes of a promise."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from problems import MOMENTA, problem

from skfw.engine import (
    Adaptive,
    AveragePlane,
    Choice,
    Constant,
    Corrector,
    Cut,
    Directional,
    GapRestart,
    L1Ball,
    LinearMinimum,
    Momentum,
    NoMomentum,
    ParameterFree,
    Problem,
    SparseVector,
    SquaredLoss,
    StepRule,
    Uniform,
    Weighted,
    best_corrector,
    design_matrix,
    frank_wolfe,
)

# Gaps close slowly here: every iteration of a run matters.
ROUND = problem("logistic", "l2", False)


def cut(bound, name=0):
    """A cut with this bound; its atom is the coordinate `name`."""
    atom = SparseVector(np.array([name]), np.ones(1))
    return Cut(AveragePlane(np.zeros(1), 0.0, 0.0, 0.0), np.zeros(4), LinearMinimum(atom, 0.0), bound)


@dataclass
class FakePlanes:
    """Planes with these bounds, which remember the averages that were asked for."""

    past_bound: float
    newest_bound: float
    objective: float = 1.0
    averages: list = field(default_factory=list)

    @property
    def past(self):
        return cut(self.past_bound, 1)

    @property
    def newest(self):
        return cut(self.newest_bound, 2)

    def average(self, weight):
        self.averages.append(weight)
        return self.newest if weight == 1.0 else cut(self.past_bound, 3)


def coordinate(choice):
    return int(choice.atom.indices[0])


def content(choice):
    return choice.weight, choice.clock, coordinate(choice), choice.cut.bound, choice.restarted


@pytest.mark.parametrize("clock", [0.0, 1.0, 7.0, 40.5])
def test_weights_and_steps(clock):
    assert Weighted().weight(clock) == Weighted().step(clock) == pytest.approx(2 / (clock + 2))
    assert NoMomentum().step(clock) == Adaptive().step(clock) == pytest.approx(2 / (clock + 2))
    assert Uniform().weight(clock) == Uniform().step(clock) == pytest.approx(1 / (clock + 1))
    assert Constant(0.6).weight(clock) == 0.6
    assert Constant(0.6).step(clock) == pytest.approx(2 / (clock + 3))
    assert NoMomentum().weight(clock) == 1.0
    assert GapRestart(Constant(0.6), 1.0).step(clock) == Constant(0.6).step(clock)


@pytest.mark.parametrize("momentum", [Weighted(), Uniform(), Constant(0.7), NoMomentum()], ids=str)
def test_fixed_weights_choose_the_average_and_its_atom(momentum):
    planes = FakePlanes(0.2, 0.1)
    choice = momentum.choose(planes, 5.0)
    assert planes.averages == [choice.weight] == [momentum.weight(5.0)]
    assert coordinate(choice) == (2 if momentum == NoMomentum() else 3)
    assert (choice.clock, choice.restarted) == (5.0, False)
    assert choice.cut.minimum.atom == choice.atom
    # Every step keeps their guarantees: nothing to promise, and nothing to fall back on.
    assert momentum.promise(5.0) == 0.0
    assert momentum.fallback(planes, 5.0) is None


@pytest.mark.parametrize("newest_bound", [0.1, 0.2, np.nextafter(0.2, 1.0), 0.5])
def test_a_restart_happens_exactly_where_the_newest_plane_proves_more(newest_bound):
    planes = FakePlanes(past_bound=0.2, newest_bound=newest_bound, objective=0.7)
    choice = GapRestart(Weighted(), scale=3.0).choose(planes, 5.0)
    assert choice.restarted == (newest_bound > 0.2)
    if choice.restarted:
        assert choice.clock == pytest.approx(2.0 * 3.0 / (0.7 - 0.2))
        assert (choice.weight, coordinate(choice), choice.cut.bound) == (1.0, 2, newest_bound)
        assert planes.averages == []
    else:
        assert content(choice) == content(Weighted().choose(planes, 5.0))


@pytest.mark.parametrize("name", ["weighted", "uniform", "constant"])
def test_restarts_of_a_run(name):
    """They show as a weight of one and, with steps of the momentum alone, in the steps from there on."""
    momentum = MOMENTA[name]
    plain = frank_wolfe(ROUND.problem, momentum=momentum, step_rule=ParameterFree(), max_iter=40)
    assert plain.n_restarts == 0
    restarting = GapRestart(momentum, ROUND.scale)
    result = frank_wolfe(ROUND.problem, momentum=restarting, step_rule=ParameterFree(), max_iter=40)
    steps, weights = result.trace["step"], result.trace["weight"]
    fresh = np.flatnonzero(weights == 1.0)
    assert fresh[0] == 0
    assert len(fresh) == 1 + result.n_restarts > 1
    for first, last in zip(fresh[1:], [*fresh[2:], len(steps) - 1], strict=True):
        clock = {
            "weighted": 2.0 / steps[first] - 2.0,
            "uniform": 1.0 / steps[first] - 1.0,
            "constant": 2.0 / steps[first] - 3.0,
        }[name]
        clocks = clock + np.arange(last - first)
        np.testing.assert_allclose(steps[first:last], [momentum.step(k) for k in clocks])
        np.testing.assert_allclose(weights[first + 1 : last], [momentum.weight(k) for k in clocks[1:]])


@pytest.mark.parametrize("clock", [1.0, 7.0, 40.5])
def test_what_adaptive_promises(clock):
    """The guarantee of `Weighted`, 2 L D^2 / (k + 1), at the iterate after this one."""
    assert Adaptive().promise(clock) == pytest.approx(2.0 / ((clock + 1.0) + 1.0))
    planes = FakePlanes(0.2, 0.1)
    assert content(Adaptive().fallback(planes, clock)) == content(Weighted().choose(planes, clock))


def test_a_past_that_is_kept_leads_towards_the_newest_atom():
    """Its own atom is where the last step went already."""
    choice = Adaptive().choose(FakePlanes(past_bound=0.2, newest_bound=0.1), 5.0)
    assert (choice.weight, choice.cut.bound, coordinate(choice), choice.clock) == (0.0, 0.2, 2, 5.0)
    choice = Adaptive().choose(FakePlanes(past_bound=0.2, newest_bound=0.2), 5.0)
    assert (choice.weight, choice.cut.bound, coordinate(choice)) == (1.0, 0.2, 2)


@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "n_support", "group", "simplex", "nuclear"])
def test_adaptive_weight_maximises_the_bound(constraint):
    """Against a fine grid of weights, at each iteration that did not have to fall back."""
    p = problem("multinomial", constraint, True).problem
    states = []
    trace = frank_wolfe(p, momentum=Adaptive(), max_iter=40, callback=states.append).trace
    planes = [AveragePlane.tangent(p.loss.evaluate(state.predictions)) for state in states]

    def bound(plane):
        return p.minimise(plane).bound

    past, searched = planes[0], 0
    for k in range(1, len(planes)):
        weight = trace["weight"][k]
        here = bound(past.blend(planes[k], weight))
        if weight != Weighted().weight(k):
            best = max(bound(past.blend(planes[k], other)) for other in np.linspace(0.0, 1.0, 101))
            assert here >= best - 0.02 * (trace["objective"][k] - best) - 1e-12
            searched += 1
        past = past.blend(planes[k], weight)
    assert searched > 20


class Promising(Momentum):
    """Averages as `Weighted` does, with a promise of its own, and remembers what it was asked."""

    def __init__(self, promise, has_fallback=True):
        self.promised, self.has_fallback, self.asked = promise, has_fallback, []

    def choose(self, planes, clock):
        return Weighted().choose(planes, clock)

    def step(self, clock):
        return Weighted().step(clock)

    def promise(self, clock):
        return self.promised

    def fallback(self, planes, clock):
        self.asked.append(clock)
        if not self.has_fallback:
            return None
        # Weight zero, and to nowhere: what no choice of `Weighted` looks like.
        return Choice(planes.past, 0.0, clock, SparseVector(np.array([0]), np.zeros(1)))


class Counted(StepRule):
    """Directional steps, counted."""

    def __init__(self):
        self.atoms = []

    def step(self, segment):
        self.atoms.append(segment.atom)
        return Directional().step(segment)


class Shrinking(Corrector):
    """Goes back towards zero, by a little: no better, or worse, than where it was."""

    def __init__(self, p, factor):
        self.problem, self.factor = p, factor

    def improve(self, point, newest, gap):
        return self.problem.at(self.factor * point.x)


def test_a_broken_promise_leads_to_the_fallback():
    momentum, rule = Promising(1e-12), Counted()
    result = frank_wolfe(ROUND.problem, momentum=momentum, step_rule=rule, max_iter=6)
    # The first step is the same with every momentum. After that each is made twice.
    assert momentum.asked == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(rule.atoms) == 6 + 5
    np.testing.assert_array_equal(result.trace["weight"][1:-1], np.zeros(5))
    assert [float(np.abs(atom.values).sum()) for atom in rule.atoms[2::2]] == [0.0] * 5


def test_a_promise_that_is_kept_needs_no_fallback():
    momentum, rule = Promising(1e12), Counted()
    frank_wolfe(ROUND.problem, momentum=momentum, step_rule=rule, max_iter=6)
    assert momentum.asked == []
    assert len(rule.atoms) == 6


def test_without_a_fallback_the_step_stands():
    momentum, rule = Promising(1e-12, has_fallback=False), Counted()
    result = frank_wolfe(ROUND.problem, momentum=momentum, step_rule=rule, max_iter=6)
    assert len(momentum.asked) == 5
    assert len(rule.atoms) == 6
    plain = frank_wolfe(ROUND.problem, momentum=Weighted(), step_rule=Directional(), max_iter=6)
    np.testing.assert_array_equal(result.trace["objective"], plain.trace["objective"])


@pytest.mark.parametrize("promise, n_steps", [(1e12, 0), (1e-12, 1 + 2 * 2), (0.0, 3)])
def test_a_corrected_iterate_within_the_promise_needs_no_step(promise, n_steps):
    """Where the promise is broken, or there is none, steps are tried; here what is corrected is better."""
    rule, corrector = Counted(), best_corrector(ROUND.problem)
    momentum = Promising(promise, has_fallback=promise > 0.0)
    result = frank_wolfe(ROUND.problem, momentum=momentum, corrector=corrector, step_rule=rule, max_iter=3)
    assert len(rule.atoms) == n_steps
    np.testing.assert_array_equal(result.trace["step"][:-1], 0.0)
    assert np.diff(result.trace["objective"]).max() < 0.0


def test_a_corrected_iterate_that_is_worse_gives_way_to_the_step():
    corrected = frank_wolfe(ROUND.problem, corrector=Shrinking(ROUND.problem, 0.5), max_iter=5)
    plain = frank_wolfe(ROUND.problem, max_iter=5)
    np.testing.assert_allclose(corrected.trace["objective"], plain.trace["objective"], rtol=1e-12)
    # From zero there is nowhere to shrink to, and the step is better than that.
    assert np.all(corrected.trace["step"][:-1] > 0.0)


def test_promises_are_in_units_of_the_largest_curvature_seen_so_far():
    """It is at most L D^2, which need not be known."""

    class Watched(Promising):
        def __init__(self, promise):
            super().__init__(promise, has_fallback=False)  # so that all runs are the same
            self.bounds = []

        def choose(self, planes, clock):
            choice = super().choose(planes, clock)
            self.bounds.append(choice.cut.bound)
            return choice

    class Measuring(StepRule):
        def __init__(self):
            self.curvatures = []

        def step(self, segment):
            self.curvatures.append(segment.curvature_bound)
            return Directional().step(segment)

    def run(promise):
        momentum, rule = Watched(promise), Measuring()
        result = frank_wolfe(p.problem, momentum=momentum, step_rule=rule, max_iter=9)
        return momentum, rule, result

    p = problem("squared", "group", False)
    momentum, rule, result = run(1.0)
    seen = np.maximum.accumulate(rule.curvatures)
    assert seen[-1] <= p.scale
    assert len(set(seen)) > 1
    assert np.diff(rule.curvatures).min() < 0.0
    gaps = result.trace["objective"][2:-1] - momentum.bounds[:-2]  # after the steps from iterates 1, 2, ...
    for clock, ratio in enumerate(gaps / seen[1:-1], start=1):
        assert clock not in run(ratio * (1.0 + 1e-9))[0].asked
        assert clock in run(ratio * (1.0 - 1e-9))[0].asked


class Looking(Momentum):
    """Looks at some averages before it chooses another one."""

    def __init__(self, looked_at):
        self.looked_at = looked_at

    def choose(self, planes, clock):
        for weight in self.looked_at:
            planes.average(weight)
        chosen = planes.average(0.01)
        return Choice(chosen, 0.01, clock, chosen.minimum.atom)

    def step(self, clock):
        return 1.0


def test_a_bound_that_was_seen_counts_even_if_it_was_not_chosen():
    """The first step leads to the optimum, where the newest plane proves all there is to prove."""
    loss = SquaredLoss(np.array([3.0, 1.0, 0.0]), np.full(3, 1 / 3))
    corner = Problem(loss, design_matrix(np.eye(3)), L1Ball(2.0))
    for looked_at, bound in (([], 0.0), ([1.0], 1 / 3), ([1.0, 0.5], 1 / 3)):
        result = frank_wolfe(corner, momentum=Looking(looked_at), step_rule=ParameterFree(), max_iter=1)
        assert result.objective == pytest.approx(1 / 3)
        assert result.lower_bound == pytest.approx(bound, abs=1e-12)


def test_at_the_first_iterate_there_is_no_past():
    """A momentum is not asked there: the newest plane is all there is."""

    class Never(Weighted):
        def choose(self, planes, clock):
            raise AssertionError

    assert frank_wolfe(ROUND.problem, momentum=Never(), max_iter=0).trace["weight"] == [1.0]


@dataclass
class Wedge:
    """Two planes of one coefficient from -1 to 1, whose average at any weight has a bound that is told."""

    bounds: tuple
    between: float
    objective: float = 10.0
    slack: float = 0.0
    looked_at: list = field(default_factory=list)

    def _cut(self, slope, bound, weight):
        atom = SparseVector(np.array([0]), np.array([-np.sign(slope)]))
        plane = AveragePlane(np.array([slope]), 0.0, 1.0, 0.0)
        return Cut(plane, np.array([slope]), LinearMinimum(atom, -abs(slope), self.slack), bound)

    @property
    def past(self):
        return self._cut(-1.0, self.bounds[0], 0.0)

    @property
    def newest(self):
        return self._cut(1.0, self.bounds[1], 1.0)

    def average(self, weight):
        self.looked_at.append(weight)
        return self._cut(2.0 * weight - 1.0, self.between, weight)


@pytest.mark.parametrize(
    "bounds, objective",
    [((-1.0, -1.0), 9.0), ((-1.0, 9.0), 9.0), ((9.0, -1.0), 9.0), ((0.0, 2.0 + 1e-12), 2.0 - 1e-10)],
    ids=["inside", "right", "left", "rounded"],
)
def test_adaptive_weights_are_weights_whatever_an_inexact_oracle_says(bounds, objective):
    """Bounds that are off by a slack let the lines meet outside: a weight there would be no average."""
    planes = Wedge(bounds, between=-5.0, objective=objective)
    choice = Adaptive().choose(planes, 3.0)
    assert all(0.0 < weight < 1.0 for weight in planes.looked_at)
    assert 0.0 <= choice.weight <= 1.0


@pytest.mark.parametrize("between, expected", [(-5.0, -1.0), (0.0, 0.0)])
def test_adaptive_chooses_the_best_that_it_has_looked_at(between, expected):
    planes = Wedge((-1.0, -2.0), between)
    choice = Adaptive().choose(planes, 3.0)
    assert planes.looked_at
    assert choice.cut.bound == expected


@pytest.mark.parametrize("slack, looks", [(0.49, True), (0.51, False)])
def test_adaptive_looks_for_nothing_that_the_oracles_slack_hides(slack, looks):
    planes = Wedge((-1.0, -2.0), between=-5.0, slack=slack)  # the lines meet 0.5 above the better bound
    Adaptive().choose(planes, 3.0)
    assert bool(planes.looked_at) == looks
