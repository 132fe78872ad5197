"""Weighted momentum against constant momenta and against restarts, on mushrooms.

    python examples/paper/other_momenta.py --data DIR

A constant momentum takes the steps 2/(k+3) of the paper's analysis of it. The restarts take L D^2 from the
spectral Lipschitz constant and the Euclidean diameter, and compare two gaps of the same iterate.
"""

from common import ITERATIONS, load, parse, print_radii
from threadpoolctl import threadpool_limits

from skfw.engine import Constant, GapRestart, ParameterFree, Weighted

DATA_SET = "mushrooms"
CONSTRAINTS = ("l2", "n-support")
RESTARTED = "WFW, restarts"
CONSTANTS = {"0.6": "delta = 0.6", "0.8": "delta = 0.8"}


def restarts(trace):
    """Return the iterations at which a run was restarted: all but the newest plane lost their weight."""
    return [k for k, weight in enumerate(trace["weight"]) if k and weight == 1.0]


def run(data_sets, iterations=ITERATIONS):
    """Return primal errors by constraint and name, and the iterations of restarts by constraint."""
    errors, restarted = {}, {}
    for constraint in CONSTRAINTS:
        problem = data_sets[DATA_SET].problems[constraint]
        momenta = {name: Constant(float(value)) for value, name in CONSTANTS.items()}
        momenta[RESTARTED] = GapRestart(Weighted(), problem.scale)
        traces = {"WFW": problem.trace("WFW", iterations)}
        for name, momentum in momenta.items():
            traces[name] = problem.run(iterations, momentum=momentum, step_rule=ParameterFree()).trace
        errors[constraint] = {name: problem.error(trace) for name, trace in traces.items()}
        restarted[constraint] = restarts(traces[RESTARTED])
    return errors, restarted


def draw(results, path):
    """Draw a panel for each constraint, with a mark where a run was restarted."""
    from matplotlib.figure import Figure

    errors, restarted = results
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, constraint in zip(figure.subplots(1, len(errors)), errors, strict=True):
        for name, error in errors[constraint].items():
            axes.loglog(error, linewidth=1, label=name)
        marks = restarted[constraint]
        axes.loglog(marks, errors[constraint][RESTARTED][marks], "k.", markersize=3, label="a restart")
        axes.set_title(f"{DATA_SET}, {constraint}")
        axes.set_xlabel("iteration")
    figure.axes[0].set_ylabel("primal error")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)


def main():
    """Run and draw."""
    options = parse(__doc__)
    data_sets = load(options.data, (DATA_SET,))
    print_radii(data_sets)
    draw(run(data_sets), options.figures / "other_momenta.png")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
