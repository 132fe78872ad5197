"""A fit holds BLAS to one thread while it is inside, and not longer."""

from contextlib import suppress
from threading import Event, Thread

import pytest
import threadpoolctl
from sklearn.datasets import load_breast_cancer
from threadpoolctl import threadpool_info, threadpool_limits

from skfw import HFWLogisticRegression
from skfw.engine import Constraint, L1Ball

X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
LONG = 60.0  # seconds, after which a test has hung


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread only")
        # From threadpoolctl 3.8 on only the thread that set a limit first may set others, while it lives.
        openblas = threadpoolctl.OpenBLASController
        getattr(openblas, "clear_controlling_thread", lambda: None)()
        yield
        getattr(openblas, "clear_controlling_thread", lambda **_: None)(force=True)


class Watched(Constraint):
    """An l1 ball that calls a function at its oracle's fourth call."""

    contains_zero = True

    def __init__(self, radius, action):
        self.radius, self.action, self.calls = radius, action, 0

    def lmo(self, direction, hint=None):
        self.calls += 1
        if self.calls == 4:
            self.action()
        return L1Ball(self.radius).lmo(direction)

    def diameter(self, shape):
        return 2.0 * self.radius


def fit_with(action):
    return HFWLogisticRegression(Watched(3.0, action), tol=1e-3).fit(X, y)


def test_one_thread_inside_and_as_many_as_before_outside():
    seen = []
    fit_with(lambda: seen.append(blas_threads()))
    assert seen == [{1}]
    assert blas_threads() == {2}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_limit_is_lifted_after_an_error(error):
    def fail():
        raise error

    for _ in range(2):  # a limit that was left behind would be taken for the original one
        with pytest.raises(error):
            fit_with(fail)
        assert blas_threads() == {2}
    test_one_thread_inside_and_as_many_as_before_outside()


class FitInThread:
    """A fit that goes on only when it is told, and whose thread may live on after it."""

    def __init__(self, thread_lives_on, error=None):
        self.error, self.thread_lives_on = error, thread_lives_on
        self.entered, self.may_go_on, self.ended, self.may_die = Event(), Event(), Event(), Event()
        self.thread = Thread(target=self.run, daemon=True)

    def run(self):
        with suppress(RuntimeError):
            fit_with(self.stay)
        self.ended.set()
        assert self.may_die.wait(LONG)

    def stay(self):
        self.entered.set()
        assert self.may_go_on.wait(LONG)
        if self.error:
            raise self.error

    def enter(self):
        self.thread.start()
        assert self.entered.wait(LONG)

    def end(self):
        self.may_go_on.set()
        assert self.ended.wait(LONG)
        if not self.thread_lives_on:
            self.die()

    def die(self):
        self.may_die.set()
        self.thread.join(LONG)


@pytest.mark.parametrize("error", [None, RuntimeError()], ids=["well", "badly"])
@pytest.mark.parametrize("thread_lives_on", [False, True])
def test_of_overlapping_fits_the_first_lifts_the_limit(error, thread_lives_on):
    """Whichever ends last: another thread could not lift it."""
    for second_ends_first, expected in ((True, [{1}, {1}, {1}, {2}]), (False, [{1}, {1}, {2}, {2}])):
        first, second = FitInThread(thread_lives_on, error), FitInThread(False)
        ends = (second.end, first.end) if second_ends_first else (first.end, second.end)
        seen = []
        for event in (first.enter, second.enter, *ends):
            event()
            seen.append(blas_threads())
        first.die()
        assert seen == expected
