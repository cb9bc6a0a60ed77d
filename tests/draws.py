# SPDX-License-Identifier: Apache-2.0
"""Has Hypothesis draw the same examples in each run of a commit, or, with `--draws N`, other ones.

The ordinary suite draws from a seed that follows from the test's source alone, so that two runs of a commit
agree and a change fails by its own fault. The random suite, `./harp_setup test --draws N`, draws N times as
many examples from a new seed in each run. The ordinary suite does not draw them again: whatever the random
suite finds becomes an `@example` of its test, in the commit that mends it.

A test sets its number of examples with `@draw_examples(COUNT)`, or gets EXAMPLES; it sets nothing of this itself.
"""

from __future__ import annotations

import importlib
import pkgutil

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine

import harpctl

EXAMPLES = 100
SHRINK_S = 60  # then the smallest example so far is reported
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)  # no time limits this phase
CHECKS_LEFT_OUT = (
    HealthCheck.too_slow,  # a matter of the machine
    HealthCheck.function_scoped_fixture,  # a folder or a compiler, which examples may share
)


def choose_suite(times: int) -> None:
    """Choose the suite: the ordinary one for 0, else the random one with so many times the examples.

    To be called before the first test module is imported.
    """
    settings.register_profile(
        "harp-fixed",
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,  # what an earlier run found is drawn in no later one
        deadline=None,
        phases=PHASES,
        print_blob=True,
        suppress_health_check=CHECKS_LEFT_OUT,
    )
    settings.register_profile(
        "harp-random",
        settings.get_profile("harp-fixed"),
        max_examples=EXAMPLES * max(times, 1),
        derandomize=False,
    )
    settings.load_profile("harp-random" if times else "harp-fixed")
    engine.MAX_SHRINKING_SECONDS = SHRINK_S


def draw_examples(count: int) -> settings:
    """Let a test draw so many examples, in the random suite `--draws` times as many."""
    return settings(max_examples=count * settings().max_examples // EXAMPLES)


def import_all() -> None:
    """Import every module of the product, as Hypothesis also draws the constants of what is imported.

    With it a test draws the same alone as in the whole suite.
    """
    product = [module.name for module in pkgutil.walk_packages(harpctl.__path__, "harpctl.")]
    for name in (*product, "dist.make"):
        if not name.endswith("__main__"):
            importlib.import_module(name)
