"""What the scripts share: the data, the problems with their optima, and the variants of the method.

The variants are FW (no momentum), UFW (uniform weights) and WFW (weights 2/(k+2)), with parameter-free
steps, with smooth ones (-s) or with directionally smooth ones (-ds). As in the paper they run without
correctors and without an intercept, from zero. The smooth steps use the paper's Lipschitz constant,
||X||_F^2 / (4 N), which is several times larger than the spectral one that is skfw's default.
"""

import argparse
import bz2
import csv
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from skfw.engine import (
    Adaptive,
    Directional,
    L1Ball,
    L2Ball,
    LogisticLoss,
    NoMomentum,
    NSupportBall,
    ParameterFree,
    Problem,
    Result,
    Smooth,
    Uniform,
    Weighted,
    best_corrector,
    design_matrix,
    frank_wolfe,
)

DATA_SETS = ("mushrooms", "w7a", "ijcnn1", "real-sim")
CONSTRAINTS = ("l2", "l1", "n-support")
MOMENTA = {"FW": NoMomentum(), "UFW": Uniform(), "WFW": Weighted()}
COLOURS = {"FW": "tab:gray", "UFW": "tab:orange", "WFW": "tab:blue"}
LINES = {"": "-", "s": "--", "ds": ":"}
SUPPORT_SIZE = 2
ITERATIONS = 1000

# Certified accuracies, relative to log 2, the loss at zero: of an optimum, and where nonzeros are counted.
_OPTIMUM, _SOLUTION = 1e-10, 1e-8
# A coefficient of this fraction of the largest is zero.
_ZERO = 1e-6
# Where a radius is looked for, and in how many halvings on a logarithmic scale.
_RADII, _HALVINGS = (1e-2, 1e3), 12


@dataclass(frozen=True)
class PaperProblem:
    """The logistic loss of a data set over a ball, its optimum, and the runs made so far."""

    problem: Problem
    loose_lipschitz: float
    _traces: dict = field(default_factory=dict)

    @cached_property
    def optimum(self) -> Result:
        """The solution, certified by a run with a corrector."""
        return certified(self.problem, _OPTIMUM)

    @cached_property
    def scale(self) -> float:
        """L D^2 of the theorems, with the spectral Lipschitz constant and the Euclidean diameter."""
        return self.problem.lipschitz * self.problem.diameter**2

    def run(self, iterations, **options) -> Result:
        """Run Frank-Wolfe from zero without a corrector."""
        return frank_wolfe(self.problem, max_iter=iterations, **options)

    def trace(self, variant, iterations):
        """Return the trace of a variant such as "WFW-ds"; a second call costs nothing."""
        if (variant, iterations) not in self._traces:
            momentum, step_rule = self.parts(variant)
            result = self.run(iterations, momentum=momentum, step_rule=step_rule)
            self._traces[variant, iterations] = result.trace
        return self._traces[variant, iterations]

    def parts(self, variant):
        """Return the momentum and the step rule that a variant's name stands for."""
        momentum, _, step = variant.partition("-")
        rules = {"": ParameterFree(), "s": Smooth(self.loose_lipschitz), "ds": Directional()}
        return MOMENTA[momentum], rules[step]

    def error(self, trace):
        """Return the primal error of each iterate.

        It is measured from the certified lower bound of the optimum, and so too large by at most its gap.
        """
        return trace["objective"] - self.optimum.lower_bound

    def errors(self, variants, iterations):
        """Return the primal errors of variants by name."""
        return {variant: self.error(self.trace(variant, iterations)) for variant in variants}


@dataclass(frozen=True)
class DataSet:
    """A data set with labels -1 and 1, and its problem for each of the constraints."""

    X: object
    signs: np.ndarray

    @cached_property
    def share(self) -> float:
        """The share of entries that are not zero."""
        return np.count_nonzero(self.X.data) / np.prod(self.X.shape)

    @cached_property
    def problems(self) -> dict[str, PaperProblem]:
        """The problems by the name of the constraint.

        The radii of the l1 and n-support balls give solutions about as sparse as the data. The paper has no
        rule for the l2 ball; here its radius is the Euclidean norm of the l1 solution.
        """
        n_samples = len(self.signs)
        loss = LogisticLoss(self.signs, np.full(n_samples, 1.0 / n_samples), fit_intercept=False)
        design = design_matrix(self.X)
        lipschitz = float((self.X.data**2).sum()) / (4 * n_samples)

        def sparse_problem(ball):
            problem = Problem(loss, design, ball(1.0))
            return PaperProblem(problem.within(ball(sparse_radius(problem, ball, self.share))), lipschitz)

        l1 = sparse_problem(L1Ball)
        l2_ball = L2Ball(float(np.linalg.norm(l1.optimum.x)))
        l2 = PaperProblem(l1.problem.within(l2_ball), lipschitz)
        n_support = sparse_problem(lambda radius: NSupportBall(radius, SUPPORT_SIZE))
        return {"l2": l2, "l1": l1, "n-support": n_support}


def certified(problem, accuracy) -> Result:
    """Solve a problem to a certified accuracy, relative to the loss at zero."""
    return frank_wolfe(
        problem,
        momentum=Adaptive(),
        corrector=best_corrector(problem),
        tolerance=accuracy * problem.null.value,
    )


def nonzero_share(x):
    """Return the share of coefficients that are not zero."""
    sizes = np.abs(x)
    return float(np.mean(sizes > _ZERO * sizes.max()))


def sparse_radius(problem, ball, share):
    """Return a radius whose solution has about this share of nonzero coefficients, by bisection."""
    low, high = _RADII
    closest, distance = low, np.inf
    for _ in range(_HALVINGS):
        radius = float(np.sqrt(low * high))
        excess = nonzero_share(certified(problem.within(ball(radius)), _SOLUTION).x) - share
        if abs(excess) < distance:
            closest, distance = radius, abs(excess)
        if distance <= 0.5 / problem.data.shape[1]:  # no number of coefficients is closer
            break
        low, high = (low, radius) if excess > 0.0 else (radius, high)
    return closest


def load(folder, names):
    """Load those of the data sets that are there; real-sim is the one that may be missing."""
    found = {}
    for name in names:
        path = folder / f"{name}.bz2"
        if name == "real-sim" and not path.exists():
            continue
        with bz2.open(path) as file:
            X, y = load_svmlight_file(file)
        found[name] = DataSet(X, np.where(y == y.max(), 1.0, -1.0))
    return found


def print_radii(data_sets):
    """Print what the rules for the radii gave, and how accurately the optima are known."""
    shares, optimum = f"{'nonzero':>8} {'of data':>8}", f"{'optimum':>11} {'gap':>8}"
    print(f"{'data':10} {'constraint':10} {'radius':>8} {shares} {optimum}")
    for name, data in data_sets.items():
        for constraint, problem in data.problems.items():
            shares = f"{nonzero_share(problem.optimum.x):8.1%} {data.share:8.1%}"
            optimum = f"{problem.optimum.objective:11.4e} {problem.optimum.gap:8.1e}"
            radius = problem.problem.constraint.radius
            print(f"{name:10} {constraint:10} {radius:8.4g} {shares} {optimum}")


def print_table(rows):
    """Print rows of text, the first of them headings, as a table in Markdown."""
    headings, *rows = rows
    for row in (headings, ["---"] * len(headings), *rows):
        print(f"| {' | '.join(row)} |")


def save_table(rows, path):
    """Save rows of text as a file that a spreadsheet reads, or a page of the documentation."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def tail_mean(errors):
    """Return the geometric mean over the last tenth of the iterations: parameter-free curves zig-zag."""
    last = errors[-max(len(errors) // 10, 1) :]
    return float(np.exp(np.mean(np.log(last))))


def draw_curves(axes, errors):
    """Draw primal errors by variant against the iterations, both on logarithmic scales."""
    for variant, error in errors.items():
        momentum, _, step = variant.partition("-")
        axes.loglog(error, color=COLOURS[momentum], linestyle=LINES[step], linewidth=1, label=variant)
    axes.set_xlabel("iteration")


def parse(description):
    """Read the command line, the same for each script."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="folder with mushrooms.bz2, w7a.bz2, ijcnn1.bz2 and, if you like, real-sim.bz2 from "
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html and with ml-100k/u.data from "
        "https://grouplens.org/datasets/movielens/100k/; a script needs only the files it uses",
    )
    parser.add_argument("--figures", type=Path, default=Path(), help="folder for the picture")
    return parser.parse_args()
