"""The rewards as TRL calls them: columns of the dataset reach them, metrics come back, and weights are TRL's."""

from tempo_trl import SpanCreditTrainer
from tempo_trl.rewards import format_reward, mean_reward, tool_call_fields

from ..tiny import tiny_tokenizer
from ..trainers.agents import DOORS, Rooms, scripted
from ..trainers.recording import picky, questions, train


def logged(trainer, key):
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def test_beside_format_reward_a_reward_of_none_counts_as_0(tiny_model, tmp_path):
    funcs, at_zero = [picky, format_reward], [1.0, 0.0]
    trainer = train(tiny_model, tmp_path, reward_funcs=funcs, reward_weights=at_zero, max_steps=4)
    unscored = [
        row for batch in trainer.batches for row in batch.output["advantages"][batch.rewards_per_func[:, 0].isnan()]
    ]
    assert any(row.any() for row in unscored), "TRL left them out: say so in the note of format_reward"


def open_two_doors(texts, completions, **columns):
    """The first two doors of the first script, as in each row of the data."""
    calls = [[{"name": "open", "arguments": {"door": door}} for door in DOORS[0][:2]]] * len(texts)
    spans = tool_call_fields(texts, completions, calls=calls)
    judged.extend((span.name, span.reward, span.start is None) for own in spans for span in own)
    return spans


judged = []


def test_plain_rewards_of_an_agent_are_the_means_of_its_spans(tiny_model, tmp_path):
    keywords = {"environment_factory": Rooms, "span_reward_funcs": [open_two_doors]}
    reward = mean_reward(open_two_doors, tiny_tokenizer())
    options = {"max_completion_length": 400, "max_steps": 1, "reward_funcs": reward, "trainer": keywords}
    rows = questions(conversational=True)
    trainer = train(tiny_model, tmp_path, scripted(SpanCreditTrainer), rows, **options)
    # Of 9 criteria, 4 per call: the scripts 1, 2, 3; 3, 4, 3; 5, 2; 1 miss extra_calls; that and both doors; one door;
    # the second call.
    [mean] = logged(trainer, "rewards/open_two_doors_reward/mean")
    assert abs(mean - (8 + 6 + 8 + 5) / 36) < 1e-6
    assert {place for *_, place in judged} == {False}
    half = len(judged) // 2
    assert judged[:half] == judged[half:]
