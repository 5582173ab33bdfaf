"""The Slurm scripts, with fakes of what they call: the order of events, the arguments, and that every job ends."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tempo_trl.launch import cli
from tempo_trl.launch.arguments import launch_arguments
from tempo_trl.runs.recipes import recipes_folder

from .data.rows import HUB_ROWS, write_file
from .processes import living_in_group, wait_until
from .test_recipes import SERVER_FLAGS, arguments_on, devices_of

pytestmark = pytest.mark.matrix

HANG = 300  # seconds, for a busy machine: a job takes two
ONE, SEVERAL = "one_node", "several_nodes"
SCRIPTS = [ONE, SEVERAL]
# Fakes write at the same time: a line in one write.
SAY = """#!/bin/bash
say() { local line; printf -v line '%q ' "$@"; printf '%s\\n' "$line" >>"$LOG"; }
"""
FAKES = {
    # The status of a check is CHECK; training ends with TRAIN, or never.
    "tempo-trl": """
trap 'say ended trainer; exit 143' TERM
say tempo-trl "gpus=${CUDA_VISIBLE_DEVICES:-}" "$@"
[[ " $* " == *" --check "* ]] && exit "$CHECK"
[[ $SERVER == dies_later ]] && touch "$STATE/die"
[[ $SIGNAL ]] && kill -s "$SIGNAL" "$(ps -o sid= $$ | tr -d ' ')"  # the script, which leads its session
while [[ $TRAIN == never ]]; do sleep 1; done
exit "$TRAIN"
""",
    # The server is SERVER: healthy (at the third question or later), dead, deaf, dies_later (in training) or stubborn.
    "vllm": """
trap 'say ended server; exit 0' TERM
[[ $SERVER == stubborn ]] && trap '' TERM
say vllm "gpus=${CUDA_VISIBLE_DEVICES:-}" "VLLM_SERVER_DEV_MODE=$VLLM_SERVER_DEV_MODE" "$@"
echo "the server's own words"
touch "$STATE/began"
[[ $SERVER == dead ]] && exit 1
while [[ ! -e "$STATE/die" ]]; do sleep 1; done
""",
    "curl": """
say curl "${@: -1}"
until [[ -e "$STATE/began" ]]; do /bin/sleep 0.02; done
echo >>"$STATE/asked"
[[ $SERVER != deaf && $SERVER != dead && $(wc -l <"$STATE/asked") -ge 3 ]] || exit 7
""",
    # A task a node, as Slurm numbers them; what comes after the flags is the command.
    "srun": """
say srun "$@"
tasks=1
while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && tasks=${1#*=}; shift; done
trap 'kill $(jobs -p); wait; exit 143' TERM
for ((rank = 0; rank < tasks; rank++)); do SLURM_PROCID=$rank "$@" & done
status=0
for ((rank = 0; rank < tasks; rank++)); do wait -n || status=$?; done
exit "$status"
""",
    "scontrol": 'say scontrol "$@"\n[[ $1 == show ]] && printf "%s\\n" n1 n2 n3\ntrue\n',
    "sleep": "exec /bin/sleep 0.05\n",
}


class Job:
    """A script that has run: what its fakes were called with, and what it said as it ended, with no process left."""

    def __init__(self, script: str, folder: Path, *flags: str, status: int = 0, **behaviour: str):
        programs, self.folder = folder / "bin", folder
        programs.mkdir()
        for name, body in FAKES.items():
            (programs / name).write_text(SAY + body)
            (programs / name).chmod(0o755)
        environment = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "LOG": str(folder / "log"),
            "STATE": str(folder),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n[1-3]",
            **{"CHECK": "0", "SERVER": "healthy", "TRAIN": "0", "SIGNAL": "", "PATIENCE": str(HANG)},
            **behaviour,
        }
        command = ["bash", str(recipes_folder() / f"slurm/{script}.slurm"), *flags]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **streams)
        try:
            _, self.said = process.communicate(timeout=HANG)
            assert process.returncode == status, self.said
            wait_until(lambda: not living_in_group(process.pid))  # a fake's `sleep` outlives the fake a little
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def calls(self, program: str | None = None) -> list[list[str]]:
        """Calls in words, the program first; those of one program."""
        calls = map(shlex.split, (self.folder / "log").read_text().splitlines())
        return [call for call in calls if program in (None, call[0])]


@pytest.fixture
def run(tmp_path):
    """Run a script with `flags` and fakes of some behaviour, which ends with `status`."""
    return lambda script, *flags, **behaviour: Job(script, tmp_path, *flags, **behaviour)


def run_arguments(call: list[str]) -> list[str]:
    """The flags of a `tempo-trl train`."""
    return call[call.index("train") + 1 :]


@pytest.mark.parametrize("script", SCRIPTS)
def test_check_then_server_then_its_health_then_training_of_what_was_checked_then_the_end_of_the_server(script, run):
    job = run(script, "--seed", "3")
    names = [call[0] for call in job.calls()]
    times = {name: [i for i, other in enumerate(names) if other == name] for name in {*names}}
    checked, *trained = times["tempo-trl"]
    assert checked < min(times["vllm"]) < max(times["curl"]) < min(trained) < min(times["ended"])
    assert checked < min(times["curl"])
    assert len(times["curl"]) >= 3
    assert job.calls()[-1] == ["ended", "server"]
    assert (job.folder / "vllm-7.log").read_text() == "the server's own words\n"
    checked, *trained = map(run_arguments, job.calls("tempo-trl"))
    ranks = {ONE: [[]], SEVERAL: [["--machine_rank", "0"], ["--machine_rank", "1"]]}[script]
    assert sorted(trained) == [[*checked[:-1], *rank] for rank in ranks]
    assert checked[-5:] == ["--resume_from_checkpoint", "last", "--seed", "3", "--check"]


def test_one_node_splits_its_gpus_and_starts_the_server_for_itself_alone(run):
    job = run(ONE)
    (server,), train = job.calls("vllm"), job.calls("tempo-trl")[-1]
    assert server[2:] == ["VLLM_SERVER_DEV_MODE=1", "serve", "Qwen/Qwen3-4B", *SERVER_FLAGS, *server[-6:]]
    assert server[-6:] == ["--tensor-parallel-size", "2", "--host", "127.0.0.1", "--port", "8000"]
    assert (train[1], server[1]) == ("gpus=0,1,2,3,4,5", "gpus=6,7")
    assert set(map(tuple, job.calls("curl"))) == {("curl", "http://127.0.0.1:8000/health")}


def test_several_nodes_train_on_all_but_the_last_which_samples(run):
    job = run(SEVERAL)
    (server,) = job.calls("vllm")
    assert server[2:] == ["VLLM_SERVER_DEV_MODE=1", "serve", "Qwen/Qwen3-4B", *SERVER_FLAGS, *server[-4:]]
    assert server[-4:] == ["--tensor-parallel-size", "8", "--port", "8000"]
    assert sorted(call[1:4] for call in job.calls("srun")) == [
        ["--nodes=1", "--ntasks=1", "--nodelist=n3"],
        ["--nodes=2", "--ntasks=2", "--nodelist=n1,n2"],
    ]
    assert job.calls("scontrol") == [["scontrol", "show", "hostnames", "n[1-3]"]]
    assert set(map(tuple, job.calls("curl"))) == {("curl", "http://n3:8000/health")}
    launch = launch_arguments(max(map(run_arguments, job.calls("tempo-trl")[1:])))
    assert (launch.num_machines, launch.num_processes, launch.machine_rank) == (2, 16, 1)
    assert (launch.main_process_ip, launch.main_process_port) == ("n1", 29500)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_script_trains_as_its_recipe_does_with_the_arithmetic_in_its_comment(script, run):
    job = run(script)
    launch = launch_arguments(run_arguments(job.calls("tempo-trl")[-1]))
    devices, name = launch.num_processes, "qwen3-4b/math/eight_gpus/tempo"
    _, args, model_args, _ = arguments_on(devices, launch.training_script_args)
    products = r"#   an? (\w+) +(\d+) prompts x (\d+) generations = (\d+) devices x (\d+) per device x (\d+)\n"
    comment = re.findall(products, (recipes_folder() / f"slurm/{script}.slurm").read_text())
    sizes = args.gradient_accumulation_steps, args.steps_per_generation
    per_device, group = args.per_device_train_batch_size, args.num_generations
    assert comment == [
        (what, *map(str, (devices * per_device * steps // group, group, devices, per_device, steps)))
        for what, steps in zip(("update", "generation"), sizes, strict=True)
    ]
    assert devices * per_device * args.gradient_accumulation_steps == 384
    recipe = arguments_on(devices_of(name), ["--config", name]).training
    assert args.generation_batch_size == recipe.generation_batch_size
    assert args.vllm_server_host == {ONE: recipe.vllm_server_host, SEVERAL: "n3"}[script]
    assert model_args.model_name_or_path in job.calls("vllm")[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_real_check_lets_the_script_pass_and_stops_other_sizes(script, run, capsys):
    job = run(script)
    rows = write_file(job.folder / "rows.jsonl", HUB_ROWS["math"][:1] * 320)
    checked = ["train", *run_arguments(job.calls("tempo-trl")[0]), "--train_file", str(rows)]
    assert cli.main(checked) == 0
    assert cli.main([*checked, "--num_generations", "7"]) == 2
    assert "num_generations" in capsys.readouterr().err


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("behaviour", "status", "words", "last"),
    [
        ({"CHECK": "2"}, 2, "", "tempo-trl"),  # sizes that cannot work: before anything starts
        ({"SERVER": "dead"}, 1, "ended before it was up: see vllm-7.log", None),
        ({"SERVER": "deaf", "PATIENCE": "1"}, 1, "not up after 1 seconds: see vllm-7.log", None),
        ({"SERVER": "dies_later", "TRAIN": "never"}, 1, "ended while the run went on", "ended trainer"),
        ({"TRAIN": "3"}, 3, "", "ended server"),  # the status of a training that fails is the job's
    ],
)
def test_a_job_ends_in_time_whatever_fails(behaviour, status, words, last, script, run):
    job = run(script, status=status, **behaviour)
    assert words in job.said
    assert last is None or " ".join(job.calls()[-1]).startswith(last)
    started = len(job.calls("tempo-trl")) - 1  # after the check
    assert (started > 0) == ("TRAIN" in behaviour)
    assert bool(job.calls("vllm")) == ("CHECK" not in behaviour)


def test_a_server_that_does_not_listen_to_reason_is_killed(run):
    run(ONE, SERVER="stubborn")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("sent", "status", "requeued"), [("USR1", 0, True), ("TERM", 143, False)])
def test_a_job_out_of_time_goes_back_into_the_queue_and_a_cancelled_one_does_not(script, sent, status, requeued, run):
    job = run(script, TRAIN="never", SIGNAL=sent, status=status)
    assert (["scontrol", "requeue", "7"] in job.calls()) == requeued
    assert ["ended", "server"] in job.calls()
    assert ["ended", "trainer"] in job.calls()
