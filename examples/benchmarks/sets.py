"""Seconds to certified gaps in each set, beside the l2 ball in which the loss is as small.

The l2 ball has the fastest corrector, so it is what the other sets are measured by: its radius is found by
bisection, so that both models are about as hard to find. All fits are those of ``HFWLogisticRegression`` with
an intercept; `tol` is relative to the null model. The two fits take turns, and times are medians.

    python examples/benchmarks/sets.py --data DIR --table sets.csv

DIR holds w7a.bz2, ijcnn1.bz2 and farm-ads, as for `logistic`; the data set of many classes is made.
"""

import argparse
import csv
import os
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from ladder import simple_table, take_turns
from logistic import classes, farm_ads, load
from scipy.stats import entropy
from sklearn.exceptions import ConvergenceWarning

from skfw import HFWLogisticRegression
from skfw.engine import Box, GroupBall, L1Ball, L2Ball, LInfBall, NSupportBall, NuclearBall, Simplex

# How large a set is, at first where few features matter and then where many do.
SETS = {
    "l1": (lambda radius, n_features: L1Ball(radius), (10.0, 100.0)),
    "n-support, 10": (lambda radius, n_features: NSupportBall(radius, 10), (3.0, 30.0)),
    "groups of 5": (lambda radius, n_features: GroupBall(radius, np.arange(n_features) // 5), (5.0, 50.0)),
    "linf": (lambda radius, n_features: LInfBall(radius), (0.1, 1.0)),
    "box": (lambda radius, n_features: Box(0.0, radius), (0.1, 1.0)),
    "simplex": (lambda radius, n_features: Simplex(radius), (10.0, 100.0)),
}
# Of several classes these are measured: entrywise norms of a matrix, and the norm that is made for it.
SETS_OF_CLASSES = {
    **{name: SETS[name] for name in ("l1", "n-support, 10", "groups of 5")},
    "nuclear": (lambda radius, n_features: NuclearBall(radius), (10.0, 100.0)),
}
TOLERANCES = (1e-4, 1e-6)
# Losses are similar where they differ by this share of what the null model loses more.
SIMILAR = 0.01


@dataclass
class Case:
    """A data set and a set of models, and what was measured."""

    data: str
    name: str
    radius: float
    objective: float = np.nan
    l2_radius: float = np.nan
    nonzeros: int = 0
    seconds: dict = field(default_factory=dict)  # tolerance -> seconds of the set and of the l2 ball
    converged: bool = True

    def ratio(self, tolerance):
        """Seconds in the set over seconds in the l2 ball."""
        own, l2 = self.seconds[tolerance]
        return own / l2


def fit(X, y, constraint, tolerance):
    """Fit a model."""
    return HFWLogisticRegression(constraint, tol=tolerance).fit(X, y)


def similar_l2_ball(X, y, objective):
    """Return the l2 ball in which the loss is about as small: a larger one at first, then by bisection."""
    null = entropy(np.unique(y, return_counts=True)[1])
    low, high, radius = 0.0, np.inf, 0.1
    while high > 1.001 * low:
        difference = fit(X, y, L2Ball(radius), 1e-4).objective_ - objective
        if abs(difference) <= SIMILAR * (null - objective):
            break
        low, high = (radius, high) if difference > 0.0 else (low, radius)
        radius = 4.0 * low if high == np.inf else (low + high) / 2.0
    return L2Ball(radius)


def measure(case, X, y, make, repeat, tolerances):
    """Fill in a case."""
    constraint = make(case.radius, X.shape[1])
    model = fit(X, y, constraint, min(tolerances))
    case.objective, case.converged = model.objective_, model.converged_
    case.nonzeros = int(np.count_nonzero(model.coef_))
    ball = similar_l2_ball(X, y, case.objective)
    case.l2_radius = ball.radius
    for tolerance in tolerances:
        runs = {"own": partial(fit, X, y, constraint, tolerance), "l2": partial(fit, X, y, ball, tolerance)}
        seconds = take_turns(runs, repeat)
        case.seconds[tolerance] = seconds["own"], seconds["l2"]
    parts = [
        f"{tolerance:g}: {case.seconds[tolerance][0]:8.3f} s, ratio {case.ratio(tolerance):6.2f}"
        for tolerance in tolerances
    ]
    print(
        f"{case.data:9} {case.name:14} {case.radius:5g} nonzeros {case.nonzeros:6d} "
        f"l2 {case.l2_radius:8.3g} | {' | '.join(parts)}{'' if case.converged else ' (not converged)'}",
        flush=True,
    )


def table(cases):
    """Return the seconds and ratios as a table for the documentation: two columns for each data set."""
    names, tolerances = list(dict.fromkeys(case.data for case in cases)), list(cases[0].seconds)
    rows = list(dict.fromkeys((case.name, case.radius) for case in cases))
    cells = {(case.data, case.name, case.radius): case for case in cases}

    def cell(data, row, tolerance):
        case = cells.get((data, *row))
        if case is None:
            return ""
        return f"{case.seconds[tolerance][0]:.2g} s ({case.ratio(tolerance):.1f})"

    header = ["\\", *(f"{name}, {tolerance:.0e}" for name in names for tolerance in tolerances)]
    return simple_table(
        header,
        [
            [f"{name}, {radius:g}"]
            + [cell(data, (name, radius), tolerance) for data in names for tolerance in tolerances]
            for name, radius in rows
        ],
    )


def write(cases, file):
    """Write all times as CSV."""
    with open(file, "w", newline="") as stream:
        lines = csv.writer(stream)
        tolerances = list(cases[0].seconds)
        columns = [
            f"{side}_{tolerance:.0e}" for tolerance in tolerances for side in ("seconds", "l2_seconds")
        ]
        lines.writerow(["data", "set", "radius", "objective", "nonzeros", "l2_radius", "converged", *columns])
        for case in cases:
            numbers = case.radius, case.objective, case.nonzeros, case.l2_radius
            seconds = [f"{number:.5f}" for tolerance in tolerances for number in case.seconds[tolerance]]
            lines.writerow([case.data, case.name, *numbers, case.converged, *seconds])


def main():
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the data")
    parser.add_argument("--only", nargs="*", help="names of data sets, by default all")
    parser.add_argument("--sets", nargs="*", help="names of sets, by default all")
    parser.add_argument("--tolerances", nargs="*", type=float, default=TOLERANCES, help="certified gaps")
    parser.add_argument("--repeat", type=int, default=5, help="fits whose median is taken")
    parser.add_argument("--table", help="CSV file to write")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table says what has not converged

    data_sets = {name: partial(load, options.data, name) for name in ("w7a", "ijcnn1")}
    data_sets |= {"farm-ads": partial(farm_ads, options.data), "classes": classes}
    done = []
    for data in options.only or data_sets:
        X, y = data_sets[data]()
        for name, (make, radii) in (SETS_OF_CLASSES if data == "classes" else SETS).items():
            if options.sets is None or name in options.sets:
                for radius in radii:
                    done.append(Case(data, name, radius))
                    measure(done[-1], X, y, make, options.repeat, options.tolerances)
    print(f"\n{os.cpu_count()} cores")
    print(table(done))
    if options.table:
        write(done, options.table)


if __name__ == "__main__":
    main()
