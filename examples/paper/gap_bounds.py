"""The gaps that the methods prove, and the theorems' bounds of them, with the table of the introduction.

    python examples/paper/gap_bounds.py --data DIR

At an iterate the plain gap comes from its tangent plane alone, the generalised gap from the average of the
planes of the iterates before. L D^2 takes the spectral Lipschitz constant and the Euclidean diameter, the
smallest that is known here, so the bounds are at their tightest. That of uniform weights has a harmonic
number in place of the paper's logarithm, which is a little too small.
"""

from dataclasses import dataclass

import numpy as np
from common import COLOURS, ITERATIONS, load, parse, print_radii, print_table
from threadpoolctl import threadpool_limits

from skfw.engine import GapRestart, ParameterFree, Weighted

DATA_SET = "mushrooms"
CONSTRAINTS = ("l2", "l1")
VARIANTS = ("FW", "UFW", "WFW", "WFW-s")
RESTARTED = "WFW, restarts"
METHODS = (
    ("FW (Jaggi 2013)", "1", "Type I", "27 L D^2 / (4 (K+1))"),
    ("Lacoste-Julien and Jaggi 2015", "2", "Type II", "2 L D^2 / sqrt(k+1)"),
    ("Nesterov 2018", "2", "Type II", "4 L D^2 / (k+1)"),
    ("WFW (Alg. 2)", "1", "Type II", "2 L D^2 / (k+1)"),
    ("WFW with restarts (Alg. 3)", "2", "Type II", "2 L D^2 / (k+1+c), c >= 0"),
)


@dataclass(frozen=True)
class Gaps:
    """The gaps of a run at each iterate, and L D^2 of its problem."""

    plain: np.ndarray
    generalised: np.ndarray
    scale: float


def measure(paper_problem, iterations, **options):
    """Run a variant and return its gaps."""
    problem = paper_problem.problem
    objectives, offsets, directions = [], [], []

    def record(state):
        evaluation = state.point.evaluation
        objectives.append(state.objective)
        offsets.append(evaluation.offset)
        directions.append(problem.data.adjoint(evaluation.residual))

    weights = paper_problem.run(iterations, callback=record, **options).trace["weight"]
    plain, generalised = [], []
    for objective, offset, direction, weight in zip(objectives, offsets, directions, weights, strict=True):
        plain.append(objective - offset - problem.constraint.lmo(direction).value)
        if not generalised:  # there is no iterate before the first
            average_offset, average_direction = offset, direction
        bound = average_offset + problem.constraint.lmo(average_direction).value
        generalised.append(objective - bound)
        average_offset = (1.0 - weight) * average_offset + weight * offset
        average_direction = (1.0 - weight) * average_direction + weight * direction
    return Gaps(np.array(plain), np.array(generalised), paper_problem.scale)


def run(data_sets, iterations=ITERATIONS):
    """Return the gaps by constraint and variant."""
    results = {}
    for constraint in CONSTRAINTS:
        problem = data_sets[DATA_SET].problems[constraint]
        settings = {variant: problem.parts(variant) for variant in VARIANTS}
        gaps = {
            variant: measure(problem, iterations, momentum=momentum, step_rule=step_rule)
            for variant, (momentum, step_rule) in settings.items()
        }
        gaps[RESTARTED] = measure(
            problem,
            iterations,
            momentum=GapRestart(Weighted(), problem.scale),
            step_rule=ParameterFree(),
        )
        results[constraint] = gaps
    return results


def weighted_bound(gaps):
    """Return the bound of weighted momentum, 2 L D^2 / (k+1), at k = 1, 2, ..."""
    k = np.arange(1, len(gaps.plain))
    return 2.0 * gaps.scale / (k + 1)


def uniform_bound(gaps):
    """Return the bound of uniform momentum, L D^2 H_k / (2k), at k = 1, 2, ..."""
    k = np.arange(1, len(gaps.plain))
    return gaps.scale * np.cumsum(1.0 / k) / (2 * k)


def rates_and_gaps(gaps):
    """Return the rate of each of the methods after the last iteration, and the gap, where it was run."""
    scale, count = gaps["FW"].scale, len(gaps["FW"].plain)  # as many iterates as K + 1
    return [
        f"{27 * scale / (4 * count):.2g}, {gaps['FW'].plain.min():.2g}",
        f"{2 * scale / np.sqrt(count):.2g}, not run",
        f"{4 * scale / count:.2g}, not run",
        f"{2 * scale / count:.2g}, {gaps['WFW'].generalised[-1]:.2g}",
        f"at most {2 * scale / count:.2g}, {gaps[RESTARTED].generalised[-1]:.2g}",
    ]


def table(results):
    """Return the paper's comparison as rows, with what was measured."""
    headings = ["method", "subproblems", "guarantee", "rate", *(f"{c}: rate, gap" for c in results)]
    columns = map(rates_and_gaps, results.values())
    return [headings, *([*method, *found] for method, *found in zip(METHODS, *columns, strict=True))]


def draw(results, path):
    """Draw gaps and bounds, a panel for each constraint."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    for axes, (constraint, gaps) in zip(figure.subplots(1, len(results)), results.items(), strict=True):
        k = np.arange(1, len(gaps["FW"].plain))
        curves = {
            "FW, smallest plain gap so far": (np.minimum.accumulate(gaps["FW"].plain)[1:], "FW", "-"),
            "UFW, generalised gap": (gaps["UFW"].generalised[1:], "UFW", "-"),
            "UFW, bound": (uniform_bound(gaps["UFW"]), "UFW", ":"),
            "WFW, generalised gap": (gaps["WFW"].generalised[1:], "WFW", "-"),
            "WFW, plain gap": (gaps["WFW"].plain[1:], "WFW", "--"),
            "WFW, bound": (weighted_bound(gaps["WFW"]), "WFW", ":"),
        }
        for label, (values, momentum, line) in curves.items():
            axes.loglog(k, values, color=COLOURS[momentum], linestyle=line, linewidth=1, label=label)
        axes.set_title(f"{DATA_SET}, {constraint}")
        axes.set_xlabel("iteration")
    figure.axes[0].set_ylabel("gap")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)


def main():
    """Run, print the table and draw."""
    options = parse(__doc__)
    data_sets = load(options.data, (DATA_SET,))
    print_radii(data_sets)
    results = run(data_sets)
    print_table(table(results))
    draw(results, options.figures / "gap_bounds.png")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
