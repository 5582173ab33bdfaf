"""Fine-tunes on the references that you have, and then trains on the checker, which needs none.

A language model writes orders in words as JSON: first TRL's SFTTrainer on 32 right answers, then SpanCreditTrainer.
The checks of held-out orders are printed before, between and after. About five minutes on two CPU cores:

    python examples/fine_tune_first.py
"""

from collections import Counter

from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from trl import SFTConfig, SFTTrainer

from tempo_trl import SpanCreditConfig, SpanCreditTrainer
from tempo_trl.data import load_prompts
from tempo_trl.demo.language_model import language_model
from tempo_trl.demo.sampling import sample_quickly_on_a_cpu, sampled
from tempo_trl.rewards import json_fields

FOLDER = "tempo_demo/fine_tune_first"
SETTINGS = {
    "lr_scheduler_type": "constant",
    "model_init_kwargs": {"dtype": "float32"},
    "bf16": False,
    "use_cpu": True,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "logging_steps": 1,
    "report_to": "none",
    "seed": 0,
}

sample_quickly_on_a_cpu()  # in less than half of the time
start = language_model().path
tokenizer = AutoTokenizer.from_pretrained(start)
orders = load_prompts("orders", "train").shuffle(seed=0)  # `prompt`, and the right JSON in the column `truth`
held_out = load_prompts("orders", "test").select(range(128))  # other names, towns, items and sentences


def checks(model: PreTrainedModel) -> dict[str, float]:
    """Of each check, the share of held-out answers that pass it."""
    prompts = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"] for prompt in held_out["prompt"]
    ]
    answers = sampled(model, prompts, [1] * len(prompts), 56, [tokenizer.eos_token_id], temperature=0.7)
    judged = json_fields([tokenizer.decode(answer) for [answer] in answers], truth=held_out["truth"])
    passed = Counter(name for spans in judged for name in {span.name for span in spans if span.reward})
    names = dict.fromkeys(span.name for span in judged[0])
    return {name: passed[name] / len(judged) for name in names}


shares = {"before": checks(AutoModelForCausalLM.from_pretrained(start, dtype="float32"))}

# Fine-tuning: four steps of eight references, with the loss on the answers alone. One epoch is quick to show: in
# earnest take more, until held-out checks stop rising.
args = SFTConfig(f"{FOLDER}/sft", max_steps=4, per_device_train_batch_size=8, learning_rate=4e-5, **SETTINGS)
references = orders.select(range(32)).map(
    lambda row: {"prompt": row["prompt"], "completion": [{"role": "assistant", "content": row["truth"]}]},
    remove_columns=orders.column_names,
)
trainer = SFTTrainer(start, args=args, train_dataset=references)
trainer.train()
trainer.save_model()
shares["after 32 references"] = checks(trainer.model)

# Training on the checks: eight answers to each of eight orders a step. No reference is an example any more: the
# checker says which fields of an answer are right, and where they stand.
args = SpanCreditConfig(
    f"{FOLDER}/span_credit",
    max_steps=12,
    num_generations=8,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=4,
    learning_rate=2e-5,
    max_completion_length=56,
    temperature=0.7,
    tree_forward="on",  # computes once what the answers to an order have in common
    **SETTINGS,
)
trainer = SpanCreditTrainer(f"{FOLDER}/sft", args=args, train_dataset=orders, span_reward_funcs=json_fields)
trainer.train()
shares["after 12 steps on the checks"] = checks(trainer.model)

table = Table("check", *shares, title="Held-out answers that pass each check")
for check in shares["before"]:
    table.add_row(check, *(f"{found[check]:.0%}" for found in shares.values()))
table.add_row("mean", *(f"{sum(found.values()) / len(found):.1%}" for found in shares.values()))
Console().print(table)
