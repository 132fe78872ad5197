"""Run all experiments of the paper, save their figures, and hold its claims against what is measured.

    python examples/paper/claims.py --data DIR --figures DIR

A claim is in our words, with its criterion, and comes with a number for each case it covers; a case holds if
its number is at most the limit. Errors are primal errors, in the form of their geometric mean over the last
tenth of the iterations, because single iterates of parameter-free steps zig-zag.
"""

from dataclasses import dataclass

import binary_classification
import directional_steps
import gap_bounds
import matrix_completion
import numpy as np
import other_momenta
from common import DATA_SETS, MOMENTA, load, parse, print_radii, print_table, save_table, tail_mean
from threadpoolctl import threadpool_limits

# "Much lower" and "a major impact" are in the eye of the beholder; this is what they mean here.
_ALIKE, _ORDER, _MUCH_LOWER = 2.0, 10.0, 0.75
# An objective that grows by less than this fraction of log 2 grows by rounding.
_ROUNDING = 1e-14
# The early stage of a run, and the first few of its iterations.
_EARLY, _FEW = 100, 10


@dataclass(frozen=True)
class Claim:
    """What the paper says, and a number for each case that is at most `limit` where it holds."""

    text: str
    limit: float
    cases: dict[str, float]

    @property
    def failures(self):
        """The cases where it does not hold; a number that is not one does not."""
        return [case for case, value in self.cases.items() if not value <= self.limit]

    @property
    def verdict(self):
        """Return "holds", "does not hold" or "holds partly"."""
        if not self.failures:
            return "holds"
        return "does not hold" if len(self.failures) == len(self.cases) else "holds partly"

    @property
    def measured(self):
        """Return the numbers, those that break the criterion in bold."""
        numbers = {c: f"{value:.3g}" if value < 1000 else f"{value:.0f}" for c, value in self.cases.items()}
        numbers |= {case: f"**{numbers[case]}**" for case in self.failures}
        return ", ".join(f"{case} {number}" for case, number in numbers.items())


def classification_claims(results):
    """Return what is said of classification."""
    means = {
        constraint: {name: {v: tail_mean(e) for v, e in errors.items()} for name, errors in by_data.items()}
        for constraint, by_data in results.items()
    }

    def free_over_smooth(constraint):
        """Return the error of parameter-free steps over that of smooth ones, for each momentum."""
        return {
            f"{name} {momentum}": mean[momentum] / mean[f"{momentum}-s"]
            for name, mean in means[constraint].items()
            for momentum in MOMENTA
        }

    def over_others(constraint):
        """Return the error of WFW over that of the better one of FW and UFW, for each data set."""
        return {name: mean["WFW"] / min(mean["FW"], mean["UFW"]) for name, mean in means[constraint].items()}

    def uniform_over_plain(constraint, faster):
        """Return how UFW compares with FW, turned so that at most one means what is claimed."""
        ratios = {name: mean["UFW"] / mean["FW"] for name, mean in means[constraint].items()}
        return {name: ratio if name in faster else 1.0 / ratio for name, ratio in ratios.items()}

    def spread(mean, variants):
        values = [mean[variant] for variant in variants]
        return max(values) / min(values)

    growth = {
        f"{name} {constraint}": max(
            # The primal error differs from the objective by a constant.
            max(float(np.diff(errors[variant]).max()), 0.0) / np.log(2.0)
            for variant in ("FW-s", "UFW-s", "WFW-s")
        )
        for constraint, by_data in results.items()
        for name, errors in by_data.items()
    }
    like_plain = {
        name: spread(mean, ("FW", "UFW")) / _ALIKE
        if name in ("w7a", "mushrooms")
        else mean["UFW"] / mean["FW"]
        for name, mean in means["l1"].items()
    }
    smooth_support = {
        f"{name}, WFW-s and FW-s": spread(mean, ("WFW-s", "FW-s")) / _ALIKE
        for name, mean in means["n-support"].items()
    }
    mean = means["n-support"]["ijcnn1"]
    smooth_support["ijcnn1, FW-s over UFW-s"] = mean["FW-s"] / mean["UFW-s"]
    return [
        Claim(
            "l2: parameter-free steps beat smooth ones (error over that of smooth steps, at most 1)",
            1.0,
            free_over_smooth("l2"),
        ),
        Claim(
            "l2: with parameter-free steps WFW beats FW and UFW everywhere (error over that of the "
            "better one, at most 1)",
            1.0,
            over_others("l2"),
        ),
        Claim(
            "l2: UFW beats FW on mushrooms and real-sim only (UFW's error over FW's there, FW's over "
            "UFW's elsewhere, at most 1)",
            1.0,
            uniform_over_plain("l2", faster=("mushrooms", "real-sim")),
        ),
        Claim(
            "smooth steps never increase the objective (largest increase over log 2, at most rounding, "
            "1e-14)",
            _ROUNDING,
            growth,
        ),
        Claim(
            "l1: with smooth steps the three momenta are alike (largest error over the smallest, at most 2)",
            _ALIKE,
            {name: spread(mean, ("FW-s", "UFW-s", "WFW-s")) for name, mean in means["l1"].items()},
        ),
        Claim(
            "l1: parameter-free steps beat smooth ones in the end (error over that of smooth steps, at "
            "most 1)",
            1.0,
            free_over_smooth("l1"),
        ),
        Claim(
            "l1: with parameter-free steps WFW beats FW and UFW everywhere (error over that of the "
            "better one, at most 1)",
            1.0,
            over_others("l1"),
        ),
        Claim(
            "l1: UFW is like FW on w7a and mushrooms and faster elsewhere (half the ratio of their "
            "errors there, UFW's error over FW's elsewhere, at most 1)",
            1.0,
            like_plain,
        ),
        Claim(
            "n-support: with smooth steps WFW is like FW, and UFW slower on ijcnn1 (half the ratio of "
            "the errors; FW's error over UFW's; at most 1)",
            1.0,
            smooth_support,
        ),
        Claim(
            "n-support: with parameter-free steps UFW is not faster than FW (FW's error over UFW's, at "
            "most 1)",
            1.0,
            uniform_over_plain("n-support", faster=()),
        ),
        Claim(
            "n-support: with parameter-free steps WFW beats FW and UFW everywhere (error over that of "
            "the better one, at most 1)",
            1.0,
            over_others("n-support"),
        ),
    ]


def directional_claims(results):
    """Return what is said of directional steps."""
    means = {
        f"{name} {constraint}": {variant: tail_mean(error) for variant, error in errors.items()}
        for constraint, by_data in results.items()
        for name, errors in by_data.items()
    }
    return [
        Claim(
            "the curvature along the line improves smooth steps by an order of magnitude (error of -ds "
            "over that of -s, at most 0.1; it is 1 where both are as accurate as the optimum is known)",
            1.0 / _ORDER,
            {
                f"{case} {momentum}": mean[f"{momentum}-ds"] / mean[f"{momentum}-s"]
                for case, mean in means.items()
                for momentum in MOMENTA
            },
        ),
        Claim(
            "UFW-ds is worse than WFW-ds (WFW-ds's error over UFW-ds's, at most 1)",
            1.0,
            {case: mean["WFW-ds"] / mean["UFW-ds"] for case, mean in means.items()},
        ),
    ]


def momentum_claims(results):
    """Return what is said of other momenta."""
    errors, restarts = results
    means = {
        constraint: {name: tail_mean(e) for name, e in by_name.items()}
        for constraint, by_name in errors.items()
    }
    constants = tuple(other_momenta.CONSTANTS.values())
    return [
        Claim(
            "WFW is faster than constant momenta (error over that of the better constant, at most 1)",
            1.0,
            {c: mean["WFW"] / min(mean[name] for name in constants) for c, mean in means.items()},
        ),
        Claim(
            "the choice of a constant momentum matters (smaller error over the larger, at most 0.5)",
            1.0 / _ALIKE,
            {
                c: min(mean[name] for name in constants) / max(mean[name] for name in constants)
                for c, mean in means.items()
            },
        ),
        Claim(
            "restarts make WFW slightly better (error over that without restarts, at most 1)",
            1.0,
            {c: mean[other_momenta.RESTARTED] / mean["WFW"] for c, mean in means.items()},
        ),
        Claim(
            "there are no restarts after the first few iterations (the last one's iteration, at most 10)",
            _FEW,
            {c: max(iterations, default=0) for c, iterations in restarts.items()},
        ),
    ]


def completion_claims(results):
    """Return what is said of matrix completion."""
    errors = {variant: tail_mean(curve.errors) for variant, curve in results.items()}

    def rank_ratios(variant, others):
        """Return the rank over the smallest of the others', after a third of the iterations and all."""
        curve = results[variant]
        ratios = curve.ranks / np.min([results[other].ranks for other in others], axis=0).clip(min=1)
        return {
            f"rank above {tolerance:g} at {curve.rank_iterations[place]}": float(ratios[place, column])
            for place in (len(ratios) // 3, -1)
            for column, tolerance in enumerate(matrix_completion.RANK_TOLERANCES)
        }

    smooth = ("FW-s", "WFW-s")
    return [
        Claim(
            "completion: WFW converges faster than FW, to a lower rank (WFW's over FW's, at most 1)",
            1.0,
            {"error": errors["WFW"] / errors["FW"]} | rank_ratios("WFW", ["FW"]),
        ),
        Claim(
            "completion: UFW-s has a larger error than WFW-s and FW-s (the larger of theirs over its "
            "own, at most 1)",
            1.0,
            {"error": max(errors[variant] for variant in smooth) / errors["UFW-s"]},
        ),
        Claim(
            "completion: UFW-s has a much lower rank than WFW-s and FW-s (rank over the smaller of "
            "theirs, at most 0.75)",
            _MUCH_LOWER,
            rank_ratios("UFW-s", smooth),
        ),
    ]


def gap_claims(results):
    """Return what is said of gaps, in the introduction and in the theorems."""
    bounds = {
        "WFW": gap_bounds.weighted_bound,
        "WFW-s": gap_bounds.weighted_bound,
        "UFW": gap_bounds.uniform_bound,
    }
    return [
        Claim(
            "the generalised gap of every iterate is within its bound (largest gap over bound, at most 1)",
            1.0,
            {
                f"{variant} {constraint}": float(np.max(gaps[variant].generalised[1:] / bound(gaps[variant])))
                for constraint, gaps in results.items()
                for variant, bound in bounds.items()
            },
        ),
        Claim(
            "early on the generalised gap is smaller than the plain one (share of WFW's iterations 1 to"
            " 100 where it is not, at most 0.1)",
            0.1,
            {
                constraint: float(
                    np.mean(gaps["WFW"].generalised[1 : _EARLY + 1] >= gaps["WFW"].plain[1 : _EARLY + 1])
                )
                for constraint, gaps in results.items()
            },
        ),
        Claim(
            "one subproblem an iteration gives a smaller gap with momentum than without (WFW's last "
            "generalised gap over the smallest plain gap of FW, at most 1)",
            1.0,
            {c: gaps["WFW"].generalised[-1] / gaps["FW"].plain.min() for c, gaps in results.items()},
        ),
        Claim(
            "restarts make the generalised gap smaller (mean over the last tenth, over that without "
            "restarts, at most 1)",
            1.0,
            {
                c: tail_mean(gaps[gap_bounds.RESTARTED].generalised) / tail_mean(gaps["WFW"].generalised)
                for c, gaps in results.items()
            },
        ),
    ]


def table(claims):
    """Return the claims as rows."""
    headings = ["claim (criterion)", "measured", "verdict"]
    return [headings, *([claim.text, claim.measured, claim.verdict] for claim in claims)]


def main():
    """Run everything, print the tables and save them."""
    options = parse(__doc__)
    data_sets = load(options.data, DATA_SETS)
    ratings = matrix_completion.load_ratings(options.data)
    print_radii(data_sets)
    experiments = [
        (gap_bounds, data_sets, gap_claims),
        (binary_classification, data_sets, classification_claims),
        (directional_steps, data_sets, directional_claims),
        (other_momenta, data_sets, momentum_claims),
        (matrix_completion, ratings, completion_claims),
    ]
    claims = []
    for script, data, claims_of in experiments:
        results = script.run(data)
        script.draw(results, options.figures / f"{script.__name__}.png")
        claims += claims_of(results)
        if script is gap_bounds:
            tables = {"gaps": gap_bounds.table(results)}
    tables["claims"] = table(claims)
    for name, rows in tables.items():
        print()
        print_table(rows)
        save_table(rows, options.figures / f"{name}.csv")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
