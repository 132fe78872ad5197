"""Primal error and rank against iterations on MovieLens 100K, in the nuclear ball of radius 3.

    python examples/paper/matrix_completion.py --data DIR

The ratings are prepared as in the paper: the mean, then the rows' means, then the columns' are subtracted,
and the remainder is divided by its norm. The objective is half the sum of squared errors, so it starts at
0.5, and its Lipschitz constant is exactly one. The optimum that errors are measured from has a certified gap
of at most 5e-4.

An iterate is a sum of as many rank-one terms as there were steps, and its rank is that number until the
matrix is full. What is shown are two numerical ranks, the number of singular values above one thousandth and
above one hundredth of the largest; the paper does not say which it counts.
"""

from dataclasses import dataclass

import numpy as np
from common import COLOURS, LINES, MOMENTA, parse
from threadpoolctl import threadpool_limits

from skfw.engine import (
    Adaptive,
    NuclearBall,
    ObservedEntries,
    ParameterFree,
    Problem,
    Smooth,
    SquaredLoss,
    best_corrector,
    frank_wolfe,
)

RADIUS = 3.0
ITERATIONS = 300
VARIANTS = ("FW", "UFW", "WFW", "FW-s", "UFW-s", "WFW-s")
RANK_EVERY = 10
RANK_TOLERANCES = (1e-3, 1e-2)
OPTIMUM_GAP = 5e-4


@dataclass(frozen=True)
class Curve:
    """Primal errors at every iteration, and at some of them the rank for each tolerance."""

    errors: np.ndarray
    rank_iterations: list[int]
    ranks: np.ndarray


def load_ratings(folder):
    """Return users, movies and ratings of MovieLens 100K."""
    users, movies, ratings, _ = np.loadtxt(folder / "ml-100k" / "u.data", dtype=int).T
    return users, movies, ratings


def prepare(users, movies, ratings):
    """Return the problem of the matrix that is completed."""
    rows, columns = (np.unique(ids, return_inverse=True)[1] for ids in (users, movies))
    order = np.lexsort((columns, rows))  # the products with the data are fastest then
    rows, columns, values = rows[order], columns[order], ratings[order] - ratings.mean()
    for groups in (rows, columns):
        values = values - (np.bincount(groups, values) / np.bincount(groups))[groups]
    values /= np.linalg.norm(values)
    entries = ObservedEntries(rows, columns, (rows.max() + 1, columns.max() + 1))
    loss = SquaredLoss(values, np.full(len(values), 1.0 / len(values)))
    return Problem(loss, entries, NuclearBall(RADIUS))


def numerical_ranks(x):
    """Count the singular values above each tolerance, relative to the largest."""
    values = x.svd()[1]
    return [int(np.sum(values > tolerance * values.max(initial=0.0))) for tolerance in RANK_TOLERANCES]


def run(ratings, iterations=ITERATIONS):
    """Return the curve of each variant."""
    problem = prepare(*ratings)
    n_entries = len(problem.loss.targets)  # the engine's objective is a mean, the paper's a sum
    optimum = frank_wolfe(
        problem,
        momentum=Adaptive(),
        corrector=best_corrector(problem),
        tolerance=OPTIMUM_GAP / n_entries,
    )
    rules = {"": ParameterFree(), "s": Smooth(problem.lipschitz)}
    curves = {}
    for variant in VARIANTS:
        momentum, _, step = variant.partition("-")
        ranks = {}

        def record(state, ranks=ranks):
            if state.iteration % RANK_EVERY == 0:
                ranks[state.iteration] = numerical_ranks(state.x)

        options = {"momentum": MOMENTA[momentum], "step_rule": rules[step], "callback": record}
        trace = frank_wolfe(problem, max_iter=iterations, **options).trace
        errors = n_entries * (trace["objective"] - optimum.objective)
        curves[variant] = Curve(errors, list(ranks), np.array(list(ranks.values())))
    return curves


def draw(results, path):
    """Draw the primal errors, and the ranks for each tolerance."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4), layout="constrained")
    errors, *ranks = figure.subplots(1, 1 + len(RANK_TOLERANCES))
    for variant, curve in results.items():
        momentum, _, step = variant.partition("-")
        style = {"color": COLOURS[momentum], "linestyle": LINES[step], "linewidth": 1, "label": variant}
        errors.loglog(curve.errors, **style)
        for axes, rank in zip(ranks, curve.ranks.T, strict=True):
            axes.plot(curve.rank_iterations, rank, **style)
    errors.set(xlabel="iteration", ylabel="primal error")
    for axes, tolerance in zip(ranks, RANK_TOLERANCES, strict=True):
        axes.set(xlabel="iteration", ylabel=f"singular values above {tolerance:g} of the largest")
    errors.legend(ncols=2, fontsize="small")
    figure.savefig(path, dpi=120)


def main():
    """Run and draw."""
    options = parse(__doc__)
    draw(run(load_ratings(options.data)), options.figures / "matrix_completion.png")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
