"""What TRL's tests say of the two trainers, as a table."""

from pathlib import Path
from xml.etree import ElementTree

Results = dict[str, tuple[str, str]]  # test: (passed, failure, error or skipped; the message)


def results_of(report: Path) -> Results:
    """The outcomes in pytest's report in XML."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}"
        found[name] = next(((what.tag, what.get("message", "")) for what in case), ("passed", ""))
    return found


def table(stock: Results, ours: Results) -> str:
    """Counts of both runs, then each test that passes with one trainer and not with the other."""
    lines = [f"{'':20}{'GRPOTrainer':>12}{'TEMPOTrainer':>14}"]
    for outcome in ("passed", "failure", "error", "skipped"):
        counts = [sum(result[0] == outcome for result in results.values()) for results in (stock, ours)]
        lines.append(f"{outcome:20}{counts[0]:>12}{counts[1]:>14}")
    for trainer, tests in (("GRPOTrainer", lost(stock, ours)), ("TEMPOTrainer", lost(ours, stock))):
        lines += ["", f"Passes with {trainer} alone: {len(tests) or 'none'}"]
        lines += [f"  {name}\n    {why}" for name, why in tests.items()]
    return "\n".join(lines)


def lost(here: Results, there: Results) -> dict[str, str]:
    """Tests that pass here and not there, with the first line of the error."""
    others = {name: there.get(name, ("not collected", "")) for name in here if here[name][0] == "passed"}
    return {
        name: (error.splitlines() or [outcome])[0] for name, (outcome, error) in others.items() if outcome != "passed"
    }
