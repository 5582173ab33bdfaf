"""What the demo shows of the task `orders`, on answers made by hand."""

import pytest
import torch

from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.demo import answers, show
from tempo_trl.demo.answers import FIELDS, held_out_answers
from tempo_trl.demo.show import all_groups

from .order_runs import HELD_OUT, TRAINED, evaluated, recorded, shown, trained, wrong_city

ORDER, TRUTH = TRAINED[0]["order"], TRAINED[0]["truth"]


def test_checks_are_those_of_the_fields_and_of_all_of_them():
    found = answers.checks([TRUTH, wrong_city(TRUTH), "no"], [ORDER] * 3)
    assert found["city"].tolist() == [1, 0, 0]
    assert found["date"].tolist() == [1, 1, 0]
    assert found["all"].tolist() == [1, 0, 0]
    assert found["json"].tolist() == [1, 1, 0]


def test_rates_before_and_after_come_with_their_intervals(tmp_path):
    trained(tmp_path)
    evaluated(tmp_path)
    before, after = held_out_answers(tmp_path)
    assert after["answer"].tolist() == [row["truth"] for row in HELD_OUT]  # without the row of training
    rates = answers.held_out_rates(before, after)
    assert rates.loc[list(FIELDS), "before"].tolist() == [0] * 6
    assert rates["after"].tolist() == [1] * len(rates)
    text = shown(show.field_rates(rates, "GRPO", len(before)))
    assert "GRPO: right fields of 2 held-out orders" in text
    assert text.count("100% (34% to 100%)") == len(FIELDS) + 2


def test_an_answer_shows_its_right_and_wrong_fields():
    text = show.judged_text(wrong_city(TRUTH), ORDER)
    assert text.plain == f"{wrong_city(TRUTH)}\n5 of 6 right; wrong: city"
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert len(styles) > 2
    assert style_at(text, text.plain.index("Ulm")) == "dark_orange"
    assert style_at(text, text.plain.index("date")) == "dodger_blue1"
    assert show.judged_text(TRUTH, ORDER).plain.endswith("\n6 of 6 right")
    assert show.judged_text("", ORDER).plain == f"\n0 of 6 right; wrong: {', '.join(FIELDS)}"
    assert show.judged_text("a\nb", ORDER).plain.startswith("a⏎b\n0 of 6")


def style_at(text, index: int) -> str:
    return [span.style for span in text.spans if span.start <= index < span.end][-1]


@pytest.fixture
def group(tmp_path):
    (group,) = all_groups(recorded(tmp_path))
    return group


def test_span_credit_falls_on_the_fields_that_differ_and_grpo_s_on_all(group):
    # Of four completions one has another city: (0 - 3/4) / (std + 1e-4) with std 1/2, and the others (1/4) / 0.5001.
    credit = show.field_credit(group, 1)
    assert credit["city"] == pytest.approx(-0.75 / 0.5001, rel=1e-3)
    assert credit["date"] == 0
    assert show.field_credit(group, 0)["city"] == pytest.approx(0.25 / 0.5001, rel=1e-3)
    grpo = outcome_advantages(torch.from_numpy(group.rewards), 4)
    text = " ".join(shown(show.credit_of(group, "span credit")).split())
    assert f"{grpo[1]:+.2f} on every token" in text
    assert "city -1.50" in text
    assert text.count("GRPO") == text.count("span credit") == 3
