"""Blocks on the workers of a Dask cluster."""

from __future__ import annotations

import pickle

import numpy as np
from dask.sizeof import sizeof
from distributed import wait

from ..engine import DesignMatrix, Hessian, Loss, Runner

# What all tasks of a pass are given goes to the scheduler with each of them if it is at most this many bytes.
# If it is larger it goes once, as a task of its own that the others read from each other's workers.
_SMALL = 1 << 14
_BLOCKS_PER_THREAD = 2


class OnCluster(Runner):
    """Has functions applied to blocks by ordinary tasks, which the scheduler places, spills and recomputes.

    Parameters
    ----------
    client : distributed.Client
    """

    # Measured with 2 to 32 blocks on two local workers.
    latency = 0.05

    def __init__(self, client):
        self.client = client

    @property
    def n_parts(self):
        """Into how many blocks arrays and frames that are no collections are cut."""
        return max(_BLOCKS_PER_THREAD * sum(self.client.nthreads().values()), 1)

    @property
    def memory(self):
        """How many bytes the workers may have together."""
        limits = [each["memory_limit"] for each in self.client.scheduler_info()["workers"].values()]
        if not (limits and all(limits)):
            return np.inf  # there are no workers yet, or they have no limits
        return np.mean(limits) * len(self.client.nthreads())  # some versions tell of a few workers only

    def run(self, function, shared, pieces):
        if len(pickle.dumps(shared)) > _SMALL:
            shared = self.client.submit(_same, shared, pure=False)
        n_blocks = len(pieces[0])
        return tuple(self.client.map(function, [shared] * n_blocks, *pieces, pure=False))

    def submit(self, function, handles):
        return self.client.submit(function, list(handles), pure=False)

    def spread(self, parts):
        # As tasks, not scattered: what is scattered is lost with the worker that has it.
        return tuple(self.client.map(_same, list(parts), pure=False))

    def gather(self, handles):
        return self.client.gather(list(handles))

    def load(self, delayed):
        """Return handles of what delayed objects stand for, once they are computed."""
        futures = self.client.compute(list(delayed))
        with self.client.as_current():
            wait(futures)
        return tuple(futures)


def _same(value):
    return value


@sizeof.register((DesignMatrix, Hessian, Loss))
def _size(part):
    """Return how large a part of a block is: unless it knows, the scheduler moves blocks about."""
    return sum(map(sizeof, vars(part).values()))
