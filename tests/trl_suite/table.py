"""What TRL's tests say of the two trainers, as a table."""

Results = dict[str, tuple[str, str]]  # test: (passed, failed, refused or skipped; the error)


def table(stock: Results, ours: Results) -> str:
    """Counts of both runs, then each test that passes with one trainer and not with the other; refusals apart."""
    lines = [f"{'':20}{'GRPOTrainer':>12}{'TEMPOTrainer':>14}"]
    for outcome in ("passed", "failed", "refused", "skipped"):
        counts = [sum(result[0] == outcome for result in results.values()) for results in (stock, ours)]
        lines.append(f"{outcome:20}{counts[0]:>12}{counts[1]:>14}")
    sections = {
        "Passes with GRPOTrainer, TEMPOTrainer refuses it (documented)": lost(stock, ours, refused=True),
        "Passes with GRPOTrainer alone": lost(stock, ours, refused=False),
        "Passes with TEMPOTrainer alone": lost(ours, stock, refused=False),
    }
    for title, tests in sections.items():
        lines += ["", f"{title}: {len(tests) or 'none'}", *(f"  {name}\n    {why}" for name, why in tests.items())]
    return "\n".join(lines)


def lost(here: Results, there: Results, refused: bool) -> dict[str, str]:
    """Tests that pass here and not there, with the first line of the error."""
    found = {}
    for name, (outcome, _) in here.items():
        other, error = there.get(name, ("not collected", ""))
        if outcome == "passed" and other != "passed" and (other == "refused") == refused:
            found[name] = (error.splitlines() or [other])[0]
    return found


def regressions(stock: Results, ours: Results) -> int:
    """Tests that TEMPOTrainer fails where GRPOTrainer passes, without a refusal."""
    return len(lost(stock, ours, refused=False))
