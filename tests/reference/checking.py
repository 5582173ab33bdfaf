"""What a test asks: does this run do what the reference did?"""

import pytest

from .cases import CASES, grows_trees
from .summary import differences, versions

# The table of completions shows what trains: GRPO-lambda's advantages after the clamp and the weights; it showed
# those before them. What enters the loss is compared under "advantages".
SHOWN_ANEW = {"grpo_lambda": "table/advantage"}


def assert_as_before(case: str, ours: dict, reference: dict) -> None:
    """
    Compare a run's summary with the reference's. Skip where the method samples its own completions and another
    machine has drawn other tokens; on a machine like the reference's that, too, is a difference.
    """
    anew = SHOWN_ANEW.get(case.split(",")[0])
    expected = {name: value for name, value in reference[case].items() if name != anew}
    made_with, here = reference["made with"], versions()
    others = [f"{name} {here[name]} for {made_with[name]}" for name in here if here[name] != made_with[name]]
    drew_others = any(ours.get(name) != expected[name] for name in expected if name.endswith("ids"))
    if drew_others and grows_trees(CASES[case]) and others:
        pytest.skip(f"other tokens were sampled than in the reference, with {', '.join(others)}")
    told = differences(expected, ours)
    commit = made_with["commit"][:7]
    assert not told, "\n".join([f"not as at {commit}, of the same versions but for {others}:", *told])
