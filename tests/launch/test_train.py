"""A training run, from its arguments to what it leaves in its folder."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset
from transformers.trainer_utils import get_last_checkpoint

from tempo_trl import PlainGRPOTrainer
from tempo_trl.data import BENCHMARKS
from tempo_trl.demo.task import policy_path
from tempo_trl.launch.arguments import LAUNCHED_WITH, launch_arguments, parse, recipe_parser
from tempo_trl.launch.datasets import refuse_functions_that_fail
from tempo_trl.launch.train import (
    _dataset_name,
    build_trainer,
    checkpoint_to_resume,
    last_evaluation,
    load_datasets,
    main,
)
from tempo_trl.rewards import json_fields, mean_reward
from tempo_trl.runs.recipes import accelerate_config_path
from tests.data.rows import HUB_ROWS, write_file
from tests.trainers.launching import run_ranks, torchrun

ROOT = Path(__file__).parents[2]
PARITY = "tests.trainers.recording.parity"  # pays a random model, too
ON_CPU = ["--use_cpu", "true", "--bf16", "false"]
GIVEN = ["--model_name_or_path", "some/model", "--task", "math", "--reward_funcs", "math_reward", *ON_CPU]


def recipe(folder: Path, text: str) -> list[str]:
    """Arguments that read `text` as a recipe."""
    path = folder / "recipe.yaml"
    path.write_text(text)
    return ["--config", str(path)]


def test_flags_override_the_recipe_and_the_recipe_the_defaults(tmp_path):
    argv = recipe(tmp_path, "learning_rate: 1e-4\nbeta: 0.1\nreward_funcs: math_reward\n")
    script_args, training_args, model_args, _ = parse([*argv, *GIVEN, "--beta", "0.2"])
    assert (training_args.learning_rate, training_args.beta, training_args.epsilon_high) == (1e-4, 0.2, 0.28)
    assert (script_args.reward_funcs, model_args.model_name_or_path) == (["math_reward"], "some/model")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--learning_rat 1", "`learning_rat` is unknown. Did you mean `learning_rate`?"),
        ("--method grpo --td_coef 1", "`td_coef` belongs to tempo, but this run uses method grpo. `tempo-trl"),
        ("--task maths", "`task` is 'maths', expected one of: math, gsm_hard, amc23, medqa, "),
        ("--dataset_name some/dataset", "got task and dataset_name"),
        ("--task sums --train_file rows.jsonl", "got train_file with `task` = 'sums', which does not read it"),
        ("--accelerate_config zero2", "`accelerate_config` is unknown"),
        ("--resume_from_checkpoint nowhere", "nowhere has no trainer_state.json"),
        ("--train_file nowhere.jsonl", "nowhere.jsonl"),
        ("--reward_funcs ./my_rewards.py", "cannot import function './my_rewards.py'"),
    ],
)
def test_wrong_flags_are_refused_in_one_paragraph(flags, message, capsys):
    assert main([*GIVEN, *flags.split()]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("tempo-trl train: error: ")
    assert message in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat: 1.0", "`learning_rat` is unknown. Did you mean `learning_rate`?"),
        ("learning-rate: 1.0", "`learning-rate` is unknown"),
        ("no_shuffle_dataset: true", "`no_shuffle_dataset` is unknown"),
        ("seed: 1\nbeta: 0.1\nseed: 2", "has seed more than once"),
        ("num_generations: six", "argument --num_generations/--num-generations: invalid int value: 'six'"),
        ("num_generations: 0", "`num_generations` is 0, expected at least 2"),
        ("do_eval: on", "argument --do_eval/--do-eval: Truthy value expected: got on"),
        ("td_coef: null", "`td_coef` is None, expected float."),
        ("seed: [1]", "`seed` is ['1'], expected int."),
        ("run_name: {a: b}", "`run_name` is {'a': 'b'}, expected str | None."),
        ("reward_weights: [1, one]", "argument --reward_weights/--reward-weights: invalid float value: 'one'"),
        ("env: fast", "`env` is 'fast', expected a mapping"),
        ("env: {A: [1]}", "`A` is ['1'], expected one value"),
        ("gpu_ids: [0, 1]", "`gpu_ids` is ['0', '1'], expected one value. Several are one text, such as `0,1`"),
        ("multi_gpu: maybe", "got maybe"),
        ("dtype: float16x", "argument --dtype: invalid choice: 'float16x'"),
        ("train_sampling_strategy: bogus", "invalid choice: 'bogus'"),
        ("lora_r: 4", "got lora_r without `use_peft`"),
        ("lora_target_modules: [q_proj]\nuse_peft: false", "got lora_target_modules without `use_peft`"),
        ("bnb_4bit_quant_type: fp4", "got bnb_4bit_quant_type without `load_in_4bit`"),
        ("chat_template_kwargs: true", "`chat_template_kwargs` is 'true', expected a mapping."),
        ("- seed", "contains a sequence, expected a mapping"),
    ],
)
def test_a_wrong_recipe_is_refused(text, message, tmp_path):
    with pytest.raises(ValueError) as caught:
        parse([*recipe(tmp_path, text), *GIVEN])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("output_dir: 2026", "2026"),
        ("run_name: 1:30", "1:30"),
        ("run_name: 007", "007"),
        ("run_name: off", "off"),
        ("run_name: 2026-01-31", "2026-01-31"),
        ("run_name: 'null'", "null"),
        ("run_name: null", None),
        ("max_completion_length:", None),
        ("max_completion_length: '64'", 64),
        ("learning_rate: 1e-6", 1e-6),
        ("do_eval: no", False),
        ("fsdp_config: settings.json", "settings.json"),
        ("eval_strategy: no", "no"),
        ("reward_weights: [1, 1e-1]", [1.0, 0.1]),
        ("reward_weights: 1", [1.0]),
        ("reward_weights: null", None),
        ("lora_target_modules: [1, off]\nuse_peft: true", ["1", "off"]),
        ("generation_kwargs: {a: 1e-5, b: 1:30, c: off}", {"a": 1e-5, "b": "1:30", "c": False}),
        ("model_init_kwargs: {a: [1, {b: 2026-01-31}], c: '5'}", {"a": [1, {"b": "2026-01-31"}], "c": "5"}),
    ],
)
def test_the_type_of_a_field_decides_how_its_value_is_read(text, value, tmp_path):
    arguments = parse([*recipe(tmp_path, text), *GIVEN])
    name = text.partition(":")[0]
    (read,) = [getattr(own, name) for own in (arguments.training, arguments.model) if hasattr(own, name)]
    assert read == value
    assert isinstance(read, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset_name: a\nstreaming: true", "got streaming without `datasets`. Remove it."),
        ("dataset_name: a\ntest_split_size: 0.25", "got test_split_size without `datasets`"),
        (
            "datasets: [{path: a}]\ndataset_streaming: true",
            "got dataset_streaming beside `datasets`, expected it beside `dataset_name`. ",
        ),
        ("datasets: [{path: a}]\ndataset_config: main", "got dataset_config beside `datasets`"),
        ("datasets: [{path: a}]\nstreaming: true\ntest_split_size: 0.1", "got test_split_size with `streaming`"),
        ("datasets: [{path: a, colums: [prompt]}]", "unexpected keyword argument 'colums'. Correct the recipe."),
    ],
)
def test_fields_of_data_that_the_source_does_not_read_are_refused(text, message, tmp_path):
    given = "model_name_or_path: a\nreward_funcs: [math_reward]\noutput_dir: b\nbf16: false\n"
    with pytest.raises(ValueError) as caught:
        parse(recipe(tmp_path, given + text))
    assert message in str(caught.value)


@pytest.mark.parametrize("written", ["true", "True"])
def test_a_switch_that_is_text_as_a_flag_may_be_written_as_other_switches_are(written, tmp_path):
    assert recipe_parser(recipe(tmp_path, f"fsdp: {written}\n"))[0].get_default("fsdp") is True


def test_a_key_of_the_launcher_that_is_unset_is_not_passed_on(tmp_path):
    text = "multi_gpu: false\nnum_processes: null\nnum_machines: 1\nquiet: true\nfsdp_offload_params: true\n"
    arguments = launch_arguments([*recipe(tmp_path, text), *GIVEN])
    assert (arguments.multi_gpu, arguments.num_processes, arguments.num_machines) == (False, None, 1)
    assert (arguments.quiet, arguments.fsdp_offload_params) == (True, "true")


@pytest.mark.parametrize("method", ["tempo", "grpo"])
def test_data_that_do_not_fill_a_generation_are_refused_before_anything_is_saved(method, tmp_path):
    rows = write_file(tmp_path / "rows.jsonl", HUB_ROWS["math"][:1] * 3)
    sizes = "--num_generations 2 --per_device_train_batch_size 8 --max_steps 3 --report_to none"
    run = f"--method {method} --task math --reward_funcs {PARITY} --model_name_or_path {policy_path()}"
    flags = f"{run} {sizes} --train_file {rows} --output_dir {tmp_path / 'o'}"
    with pytest.raises(RuntimeError, match="no whole generation, which takes 4 prompts"):
        main([*flags.split(), *ON_CPU])
    assert not (tmp_path / "o" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--task math --reward_funcs math_reward", "Set `model_name_or_path`"),
        ("--model_name_or_path m --reward_funcs math_reward", "got no training data, expected exactly one of task"),
        ("--model_name_or_path m --task math", "got no reward. Set `reward_funcs`"),
    ],
)
def test_a_run_needs_a_model_data_and_a_reward(flags, message):
    with pytest.raises(ValueError, match=message):
        parse([*flags.split(), *ON_CPU])


def test_a_recipe_may_set_the_environment_and_what_is_the_launchers(tmp_path, monkeypatch):
    monkeypatch.setenv("TEMPO_TRL_TEST", "old")
    argv = [*recipe(tmp_path, "accelerate_config: ddp\nnum_processes: 2\nenv: {TEMPO_TRL_TEST: 1.10}\n"), *GIVEN]
    assert parse(argv).training.seed == 42
    assert os.environ["TEMPO_TRL_TEST"] == "1.10"
    arguments = launch_arguments([*argv, "--num_processes", "4"])
    assert arguments.config_file == str(accelerate_config_path("ddp"))
    assert arguments.num_processes == 4


def datasets_of(*flags: str):
    """Datasets of a run with `flags`; those of `GIVEN` that take a task."""
    return load_datasets(parse([*GIVEN, "--do_eval", "true", *flags]))


@pytest.fixture
def asked(monkeypatch) -> list[tuple]:
    """What the Hub and files are asked for. They have the test's rows."""
    asked = []

    def load_dataset(*address: str, split: str, **_) -> Dataset:
        asked.append((*address, split))
        names = [name for name, benchmark in BENCHMARKS.items() if benchmark.hub_id == address[0]]
        return Dataset.from_list(HUB_ROWS[names[0] if names else "math"])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    return asked


def test_a_benchmark_comes_from_its_splits_on_the_hub_and_gives_the_card_its_name(asked):
    flags = ["--task", "medmcqa", "--prompt_style", "authors-code", "--system_prompt", "Be brief."]
    train_dataset, _ = datasets_of(*flags)  # TRL's dataset_test_split is test, where MedMCQA withholds the answers
    assert asked == [("openlifescienceai/medmcqa", "train"), ("openlifescienceai/medmcqa", "validation")]
    system, user = train_dataset[0]["prompt"]
    assert system["content"] == "Be brief." and "A: VLDL, B: LDL" in user["content"]
    assert _dataset_name(parse([*GIVEN, *flags]).script) == "openlifescienceai/medmcqa"
    assert _dataset_name(parse([*GIVEN, *flags, "--train_file", "rows.jsonl"]).script) is None


def test_rows_that_are_tested_on_are_not_trained_on_where_they_are_to_be_dropped(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = HUB_ROWS["math"] + [HUB_ROWS["math"][0] | {"problem": "$2 + 0$?"}]
    train_file, eval_file = (write_file(tmp_path / f"{i}.jsonl", rows[i:]) for i in (0, 1))
    flags = ["--train_file", str(train_file), "--eval_file", str(eval_file)]
    assert [dataset.num_rows for dataset in datasets_of(*flags)] == [2, 1]
    assert [dataset["row_id"][:] for dataset in datasets_of(*flags, "--drop_leaked_rows", "true")] == [[0], [0]]
    verdicts = [record.getMessage() for record in caplog.records if record.name.startswith("tempo_trl")]
    assert ["kept" in verdicts[0], "dropped" in verdicts[1]] == [True, True]


@pytest.mark.parametrize("split", ["train", "train[:-500]"])
def test_a_benchmark_with_one_split_trains_on_it_and_evaluates_only_on_a_slice(split, asked, caplog):
    flags = ["--task", "function_calls", "--dataset_train_split", split]
    assert datasets_of(*flags, "--do_eval", "false")[1] is None
    assert (asked, caplog.text) == ([(BENCHMARKS["function_calls"].hub_id, "func_calling_singleturn", split)], "")
    for wants_two in (["--do_eval", "true"], ["--do_eval", "false", "--drop_leaked_rows", "true"]):
        with pytest.raises(ValueError, match=r"Set `dataset_train_split` to train\[:-500\]"):
            datasets_of(*flags, *wants_two)
    flags = ["--task", "function_calls", "--dataset_train_split", "train[:-9]", "--dataset_test_split", "train[-9:]"]
    assert [dataset.num_rows for dataset in datasets_of(*flags)] == [2, 2]


def test_the_evaluation_rows_are_asked_for_only_where_a_run_needs_them(asked, caplog):
    hub, no_evaluation = "DigitalLearningGmbH/MATH-lighteval", ["--do_eval", "false"]
    assert datasets_of(*no_evaluation)[1] is None
    assert asked == [(hub, "train")]
    asked.clear()
    assert datasets_of(*no_evaluation, "--drop_leaked_rows", "true")[1] is None
    assert asked == [(hub, "train"), (hub, "test")]
    assert "1 training rows are also evaluation rows. They are dropped" in caplog.text


def folder_of(path: Path, prompts: list[str], split: str = "train") -> Path:
    """A dataset of one split that `load_dataset` reads by the name of its folder."""
    path.mkdir(exist_ok=True)
    write_file(path / f"{split}.jsonl", [{"prompt": prompt} for prompt in prompts])
    return path


def test_a_line_of_the_data_that_is_not_json_is_refused_in_one_paragraph(tmp_path, capsys):
    folder = folder_of(tmp_path / "rows", ["1?"])
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"prompt": ')
    flags = f"--dataset_name {folder} --model_name_or_path some/model --reward_funcs {PARITY}"
    assert main([*flags.split(), *ON_CPU]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "error: cannot load what the run needs: " in error and "JSON parse error" in error


def test_every_process_holds_out_the_same_rows_of_a_mixture(tmp_path):
    folder = folder_of(tmp_path / "rows", [f"{i}?" for i in range(40)])
    text = f"datasets:\n  - path: {folder}\ntest_split_size: 0.25\n"
    argv = [*recipe(tmp_path, text), "--model_name_or_path", "some/model", "--reward_funcs", PARITY, *ON_CPU]
    held_out = []
    for state in (0, 1):  # of a process
        np.random.seed(state)
        train, test = load_datasets(parse([*argv, "--do_eval"]))
        assert not {*train["prompt"]} & {*test["prompt"]}
        held_out.append(sorted(test["prompt"]))
    assert len(held_out[0]) == 10
    assert held_out[0] == held_out[1]


def write_record(folder: Path, began: float, resumed_at: float | None = None) -> None:
    """The record of a run that began and was maybe resumed at these seconds."""
    started = [datetime.fromtimestamp(time, UTC).isoformat() for time in (began, resumed_at) if time is not None]
    earlier = [{"started": each} for each in started[:-1]]
    (folder / "tempo").mkdir(exist_ok=True)
    (folder / "tempo/run.json").write_text(json.dumps({"started": started[-1], "earlier": earlier}))


def test_last_is_the_last_whole_checkpoint_of_the_run_or_a_fresh_start(tmp_path, capsys):
    def resumed(*flags: str) -> str | None:
        return checkpoint_to_resume(parse([*GIVEN, "--output_dir", str(tmp_path / "out"), *flags])[1])

    assert resumed("--resume_from_checkpoint", "last") is None
    for step in (9, 10, 11, 12):
        (tmp_path / f"out/checkpoint-{step}").mkdir(parents=True)
    for step, state in ((9, "{}"), (10, "{}"), (11, '{"global_')):  # 11 and 12 were cut short
        (tmp_path / f"out/checkpoint-{step}/trainer_state.json").write_text(state)
    (tmp_path / "out/checkpoint-best").mkdir()  # a name of the user's own
    newest = str(tmp_path / "out/checkpoint-10")
    assert resumed() is None
    os.utime(tmp_path / "out/checkpoint-10/trainer_state.json", (1e9, 1e9))
    write_record(tmp_path / "out", began=1e9 - 9, resumed_at=2e9)
    assert resumed("--resume_from_checkpoint", "last") == resumed("--resume_from_checkpoint", "true") == newest
    assert resumed(*recipe(tmp_path, "resume_from_checkpoint: true")) == newest
    assert resumed("--resume_from_checkpoint", newest) == newest
    write_record(tmp_path / "out", began=1e9 + 9)
    assert resumed("--resume_from_checkpoint", "last").endswith("checkpoint-9"), "10 is of an earlier run"
    write_record(tmp_path / "out", began=3e9)
    assert resumed("--resume_from_checkpoint", "last") is None
    assert "older than the run of the record, which began at 2065" in capsys.readouterr().err
    (tmp_path / "published/tempo").mkdir(parents=True)
    (tmp_path / "published/trainer_state.json").write_text("{}")
    for path, told in (
        ("elsewhere", "no trainer_state.json"),
        (f"{tmp_path}/published", "is the folder of a run. Give one of its checkpoints, or last"),
        (f"{tmp_path}/out/checkpoint-11", "cannot be read to its"),
        (f"{tmp_path}/out", "is the folder of a run. Give one of its checkpoints, such as .*/checkpoint-12, or last"),
    ):
        with pytest.raises(ValueError, match=f"{path}.* {told}"):
            resumed("--resume_from_checkpoint", path)


@pytest.mark.matrix
@pytest.mark.parametrize("disk", [0, 1])
def test_ranks_whose_disks_are_not_shared_resume_from_one_checkpoint_or_none(disk, tmp_path):
    for rank in (0, 1):
        (tmp_path / f"disk{rank}/out").mkdir(parents=True)
    checkpoint = tmp_path / f"disk{disk}/out/checkpoint-4"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text("{}")
    main, other = run_ranks(torchrun(2), 2, "tests.launch.resuming_rank", "_", tmp_path)
    if disk == 0:
        assert main["found"] == "out/checkpoint-4"
        assert "out/checkpoint-4 has no trainer_state.json" in other["found"]
    else:
        assert main["found"] is other["found"] is None


def test_grpo_trains_on_a_dataset_by_name_with_trl_s_rewards(tiny_model, tmp_path):
    for split in ("train", "test"):
        data = folder_of(tmp_path / "data", [f"{split} {i}?" for i in range(4)], split)
    rewards = ["--reward_funcs", "get_soft_overlong_punishment", "think_format_reward", PARITY]
    argv = ["--method", "grpo", "--dataset_name", str(data), "--model_name_or_path", tiny_model, *rewards, *ON_CPU]
    trainer = build_trainer(parse([*argv, "--do_eval", "true", "--output_dir", str(tmp_path / "out")]))
    assert type(trainer) is PlainGRPOTrainer
    assert trainer.reward_func_names == ["soft_overlong_punishment_reward", "think_format_reward", "parity"]
    assert trainer.train_dataset[0]["prompt"] == "train 0?"
    assert trainer.eval_dataset[0]["prompt"] == "test 0?"


def needs_a_key(completions, key, prompt=None, **columns) -> list[float]:
    """A reward function that cannot do without a column."""


@pytest.mark.parametrize("method", ["grpo", "span_credit"])
@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({}, r"needs_a_key cannot be called .*, trainer_state\): missing a required argument: 'key'\. Add the column"),
        ({"key": 1}, "huggingface.co"),  # the model is the next that is not there
    ],
)
def test_a_column_that_a_reward_lacks_is_named_before_the_model_loads(method, given, refusal, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.REWARD", partial(needs_a_key, **given), raising=False)
    data = folder_of(tmp_path / "data", [f"{i}?" for i in range(4)])
    field = "--span_reward_funcs" if method == "span_credit" else "--reward_funcs"
    argv = ["--method", method, "--dataset_name", str(data), "--model_name_or_path", "no/such-model", *ON_CPU]
    with pytest.raises((ValueError, OSError), match=refusal):
        build_trainer(parse([*argv, field, f"{__name__}.REWARD", "--output_dir", str(tmp_path / "out")]))


@pytest.mark.parametrize("function", [json_fields, mean_reward(partial(json_fields, column="truth"))])
def test_the_row_that_a_reward_of_ours_cannot_read_is_named_before_the_model_loads(function):
    rows = Dataset.from_list([{"prompt": "?", "truth": cell} for cell in ('{"a": 1}', None, "Paris")])
    with pytest.raises(ValueError, match="row 2 of this call's column 'truth' is 'Paris', expected"):
        refuse_functions_that_fail([function], rows)
    refuse_functions_that_fail([function], rows.to_iterable_dataset())  # of which only the first row is read


@pytest.mark.parametrize("flags", [[], ["--resume_from_checkpoint", "last"]])
def test_files_of_an_earlier_run_are_told_where_a_run_starts_from_the_beginning(flags, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tempo_trl.runs.record.record_run", lambda *_: sys.exit("recorded"))
    folder = tmp_path / "out/checkpoint-9"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text("{}")
    with pytest.raises(SystemExit, match="recorded"):
        main(["--config", "sums/tempo", "--output_dir", str(tmp_path / "out"), *flags])
    assert ("out has checkpoint-9 of an earlier run, which" in capsys.readouterr().err) == (not flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model_name_or_path", "./absent"], "model_name_or_path is './absent', and there is no such folder"),
        (["--output_dir", "/proc/out"], "cannot make `output_dir`"),
        (["--report_to", "wandbb"], "wandbb is not supported"),
    ],
)
def test_what_the_trainer_cannot_be_built_from_is_one_line(flags, message, capsys, tmp_path):
    assert main(["--config", "sums/tempo", "--output_dir", str(tmp_path), *flags]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if "tempo-trl train: error" in line]
    assert message in line


def test_a_dataset_that_is_neither_here_nor_on_the_hub_is_said_to_be_in_neither(capsys, tmp_path):
    given = ["--model_name_or_path", "some/model", "--dataset_name", "data_jsn", "--reward_funcs", PARITY, *ON_CPU]
    assert main([*given, "--method", "tempo", "--output_dir", str(tmp_path)]) == 2
    assert "There is no folder 'data_jsn' here" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["dataset_name: {}", "datasets: [{{path: {}}}]"])
def test_data_that_are_a_file_are_refused_before_the_hub_is_asked(given, capsys, tmp_path):
    rows = write_file(tmp_path / "train.jsonl", [{"prompt": "1+1?"}])
    argv = recipe(tmp_path, given.format(rows))
    flags = ["--model_name_or_path", "some/model", "--reward_funcs", PARITY, "--output_dir", str(tmp_path / "out")]
    assert main([*argv, *flags, *ON_CPU]) == 2
    assert f"error: {rows} is a file, expected a folder or a name on the Hub. Give" in capsys.readouterr().err


@pytest.mark.parametrize(("step", "loads_best", "reward"), [(4, False, 0.5), (5, False, "anew"), (4, True, "anew")])
def test_the_trained_weights_are_evaluated_once(step, loads_best, reward):
    log = [{"step": 2, "eval_runtime": 1, "eval_reward": 0.1}, {"step": 4, "eval_runtime": 1, "eval_reward": 0.5}]
    trainer = SimpleNamespace(
        state=SimpleNamespace(global_step=step, log_history=[*log, {"step": step, "train_loss": 0.0}]),
        args=SimpleNamespace(load_best_model_at_end=loads_best),
        evaluate=lambda: {"eval_reward": "anew"},
    )
    assert last_evaluation(trainer)["eval_reward"] == reward


def train(rows: Path, folder: Path, *flags: str, launcher: tuple[str, ...] = ()) -> list[dict]:
    """Run the MATH recipe on the CPU with a tiny model, here or as `launcher` does; what it logged while training."""
    size = "--per_device_train_batch_size 6 --gradient_accumulation_steps 1 --steps_per_generation 1 --top_k 3"
    length = "--max_completion_length 16 --logging_steps 1 --save_steps 1 --save_total_limit 5 --use_vllm false"
    evaluation = f"--do_eval true --num_generations_eval 1 --train_file {rows} --eval_file {rows}"
    arguments = (
        f"--config {ROOT}/recipes/qwen3-1.7b/math/tempo.yaml --output_dir {folder} {size} {length} {evaluation}"
    )
    argv = [*arguments.split(), *ON_CPU, *flags]
    if launcher:
        command = [sys.executable, "-m", *launcher, *argv]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
        assert finished.returncode == 0, finished.stderr
    else:
        assert main(argv) == 0
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [logged for logged in history if "reward" in logged]


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    row = {"level": "Level 1", "type": "Algebra"}
    rows = [row | {"problem": f"What is ${a} + 1$?", "solution": rf"It is $\boxed{{{a + 1}}}$."} for a in range(8)]
    return write_file(tmp_path_factory.mktemp("rows") / "math.jsonl", rows)


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_a_run_is_launched_saved_evaluated_and_resumed(tiny_model, rows, tmp_path, monkeypatch, capfd):
    flags = ["--model_name_or_path", tiny_model, "--reward_funcs", PARITY]
    logged = train(rows, tmp_path, *flags, "--max_steps", "3", launcher=("tempo_trl", "train"))
    assert len(logged) == 3
    assert any(entry["tempo/branch_tokens"] > 0 for entry in logged)
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-3")
    assert "eval_reward" in json.loads((tmp_path / "eval_results.json").read_text())
    assert "eval_reward" in json.loads((tmp_path / "trainer_state.json").read_text())["log_history"][-1]
    assert (tmp_path / "model.safetensors").is_file()
    assert "- tempo\n" in (tmp_path / "README.md").read_text()

    monkeypatch.setenv(LAUNCHED_WITH, "zero2")  # as `tempo-trl train --accelerate_config zero2` does
    resume = ["--resume_from_checkpoint", "last", "--max_steps", "4"]
    resumed = train(rows, tmp_path, *flags, *resume)
    assert "Resuming with another max_steps than before. The optimizer and" in capfd.readouterr().err
    assert json.loads((tmp_path / "tempo/run.json").read_text())["command"][-2:] == ["--accelerate_config", "zero2"]
    assert LAUNCHED_WITH not in os.environ
    assert resumed[:3] == logged
    assert [entry["step"] for entry in resumed] == [1, 2, 3, 4]
