"""What benchmarks against peers share: each peer climbs a ladder of tolerances, and then all take turns.

Tolerances of different solvers mean different things. A peer is timed at the cheapest of its own that gets
within `ACCURACY`, relative to the null model, of the best objective that any of them found. It is skfw that
has to know when it is there: it is stopped by its certificate.
"""

from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np

ACCURACY = 1e-6
_TOLERANCES = [10.0**-k for k in range(10)]


@dataclass(frozen=True)
class Rung:
    """What a peer reached with one of its tolerances."""

    tolerance: float
    seconds: float
    objective: float


@dataclass
class Case:
    """A problem, and what was measured on it."""

    data: str
    norm: str
    setting: str
    strength: float
    null: float
    ladders: dict = field(default_factory=dict)  # peer -> rungs
    seconds: dict = field(default_factory=dict)  # solver -> seconds, or None if it did not get there
    best: float = np.inf
    radius: float = 0.0
    support: int = 0

    @property
    def best_peer(self):
        """The fastest peer."""
        return min((s, name) for name, s in self.seconds.items() if name != "skfw" and s is not None)[1]

    @property
    def ratio(self):
        """Seconds of skfw over seconds of the fastest peer."""
        return self.seconds["skfw"] / self.seconds[self.best_peer]

    def climb(self, peer, fit, loss, limit):
        """Run a peer with tighter and tighter tolerances, until nothing changes any more.

        `fit` takes a tolerance and returns coefficients, and `loss` takes these.
        """
        rungs = self.ladders[peer] = []
        for tolerance in _TOLERANCES:
            seconds, coef = timed(fit, tolerance)
            size = float(np.abs(coef).sum() if self.norm == "l1" else np.linalg.norm(coef))
            penalty = size if self.norm == "l1" else size * size / 2.0
            value = loss(coef) + self.strength * penalty
            rungs.append(Rung(tolerance, seconds, value))
            if value < self.best:
                self.best, self.radius, self.support = value, size, int(np.count_nonzero(coef))
            settled = len(rungs) > 3 and abs(rungs[-3].objective - value) <= 1e-3 * ACCURACY * self.null
            # Where gradients are small, a peer may stay at zero until the tolerance is.
            if seconds > limit or (settled and size > 0.0):
                break

    def measure(self, peers, skfw, repeat):
        """Time each peer at the cheapest tolerance that gets there, and skfw, in turns.

        `peers` are fits by their names, as in `climb`; `skfw` is a fit without arguments.
        """
        enough = self.best + ACCURACY * self.null
        runs = {}
        for peer, rungs in self.ladders.items():
            reached = [(rung.seconds, rung.tolerance) for rung in rungs if rung.objective <= enough]
            self.seconds[peer] = None
            if reached:
                runs[peer] = partial(peers[peer], min(reached)[1])
        self.seconds |= take_turns(runs | {"skfw": skfw}, repeat)


def timed(function, *args):
    """Return the seconds of a call, and what it returned."""
    start = perf_counter()
    result = function(*args)
    return perf_counter() - start, result


def take_turns(runs, repeat):
    """Return the median seconds of each run: in turns, so that a machine busy for a while slows them all."""
    times = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            times[name].append(timed(run)[0])
    return {name: median(seconds) for name, seconds in times.items()}


def geometric_mean(ratios):
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))


def report(cases):
    """Print the ratios of the cases, and their geometric mean for each norm."""
    print(f"{'data':10} {'norm':4} {'setting':18} {'support':>7} {'skfw':>9} {'best peer':>26} {'ratio':>6}")
    for case in cases:
        peer = f"{case.best_peer} {case.seconds[case.best_peer]:8.4f} s"
        print(
            f"{case.data:10} {case.norm:4} {case.setting:18} {case.support:7d} "
            f"{case.seconds['skfw']:7.4f} s {peer:>26} {case.ratio:6.2f}"
        )
    for norm in dict.fromkeys(case.norm for case in cases):
        ratios = [case.ratio for case in cases if case.norm == norm]
        mean = geometric_mean(ratios)
        print(f"{norm}: geometric mean {mean:.2f}, largest {max(ratios):.2f}, cases {len(ratios)}")


def table(cases):
    """Return the ratios as a table for the documentation: a column for each data set."""
    names = list(dict.fromkeys(case.data for case in cases))
    settings = list(dict.fromkeys((case.norm, case.setting) for case in cases))
    cells = {(case.norm, case.setting, case.data): f"{case.ratio:.2f} ({case.best_peer})" for case in cases}
    return simple_table(
        ["\\", *names],
        [[", ".join(row), *(cells.get((*row, name), "") for name in names)] for row in settings],
    )


def simple_table(header, rows):
    """Return a table as reStructuredText."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    ruler = "  ".join("=" * width for width in widths)
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (header, *rows)]
    return "\n".join([ruler, lines[0], ruler, *lines[1:], ruler])
