"""The estimate of memory: parameters and state against real bytes, activations against what autograd saves."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen3ForCausalLM

from tempo_trl.launch.arguments import RunArguments, parse
from tempo_trl.launch.check import memory_rows
from tempo_trl.launch.memory import Model, Row, activation_bytes, estimate, needs, policy_of
from tempo_trl.launch.model_shape import ModelShape, model_shape
from tempo_trl.launch.plan import ALL, GRADIENTS, OPTIMIZER, Engine, LaunchPlan

from ..tiny import tiny_model_config

ON_ONE = LaunchPlan(1, 1, Engine("one process", "single"), "no")
HAND = ModelShape(
    total=1000,
    trained=1000,
    ends=400,
    head=400,
    layers=2,
    hidden=8,
    queries=8,
    keys=4,
    inner=16,
    normed_heads=False,
)


def llama_config() -> LlamaConfig:
    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3}
    return LlamaConfig(vocab_size=99, num_attention_heads=4, num_key_value_heads=2, **sizes)


CONFIGS = {
    "Qwen3": lambda: tiny_model_config(300),
    "Qwen3, tied": lambda: tiny_model_config(300, tie_word_embeddings=True),
    "Llama": llama_config,
}


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_real_model(name):
    config = CONFIGS[name]()
    model = AutoModelForCausalLM.from_config(config)
    shape = model_shape(config)
    assert shape.total == shape.trained == sum(p.numel() for p in model.parameters())
    layers = sum(p.numel() for p in model.model.layers.parameters())
    assert shape.total - shape.ends == layers + config.hidden_size  # and the last norm
    assert shape.head == model.get_output_embeddings().weight.numel()
    attention = model.model.layers[0].self_attn
    assert (shape.queries, shape.keys) == (attention.q_proj.out_features, attention.k_proj.out_features)
    assert shape.normed_heads == name.startswith("Qwen3")


@pytest.mark.parametrize("targets", [None, "all-linear", ["gate_proj"]])
def test_adapters_are_those_that_peft_makes(targets):
    adapters = LoraConfig(r=3, target_modules=targets, task_type="CAUSAL_LM")
    config = tiny_model_config(300)
    real = get_peft_model(Qwen3ForCausalLM(config), adapters)
    shape = model_shape(config, adapters)
    assert shape.trained == sum(p.numel() for p in real.parameters() if p.requires_grad) > 0
    assert shape.total == model_shape(config).total


def given(tmp_path, tiny_model, flags: str) -> RunArguments:
    run = f"--task sums --reward_funcs tempo_trl.demo.task.correct_answer --model_name_or_path {tiny_model}"
    return parse(f"{run} --output_dir {tmp_path} --use_cpu true {flags}".split())


@pytest.mark.parametrize(
    ("kind", "launched", "flags", "linear", "frozen", "trained", "compute", "residual", "copied"),
    [
        ("single", "no", "--bf16 false", 4, 4, 4, 4, 4, False),
        ("single", "bf16", "--bf16 false", 4, 4, 4, 2, 4, True),
        ("DDP", "no", "--bf16 true", 4, 4, 4, 2, 4, True),
        ("DDP", "no", "--bf16 true --dtype bfloat16", 2, 2, 2, 2, 2, False),
        ("DDP", "no", "--bf16 true --dtype auto", 4, 4, 4, 2, 4, True),
        ("DDP", "no", "--bf16 true --dtype bfloat16 --use_peft", 2, 2, 4, 2, 2, False),
        ("DDP", "no", "--bf16 true --dtype bfloat16 --use_peft --load_in_4bit", 0.5625, 2, 2, 2, 2, False),
        ("DeepSpeed", "no", "--bf16 true", 2, 2, 2, 2, 2, False),
        ("DeepSpeed", "no", "--bf16 true --use_peft", 2, 2, 2, 2, 2, False),
        ("FSDP", "no", "--bf16 true --dtype bfloat16", 2, 2, 4, 2, 2, False),
    ],
)
def test_each_engine_holds_and_computes_in_its_types(
    kind, launched, flags, linear, frozen, trained, compute, residual, copied, tmp_path, tiny_model
):
    run = given(tmp_path, tiny_model, flags)
    config = AutoConfig.from_pretrained(tiny_model)
    held = policy_of(HAND, LaunchPlan(2, 1, Engine("", kind), launched), run.training, run.model, config)
    assert (held.linear, held.frozen, held.trained) == (linear, frozen, trained)
    assert (held.compute, held.residual, held.copied) == (compute, residual, copied)


@pytest.mark.parametrize(
    ("flags", "prompt"),
    [
        ("--max_completion_length 1024", 512),
        ("--max_completion_length 4000", 96),  # the tiny model has 4,096 positions
        ("--max_completion_length 1024 --use_vllm --vllm_max_model_length 1124", 100),
    ],
)
def test_prompts_are_assumed_no_longer_than_there_is_room_for(flags, prompt, tmp_path, tiny_model):
    assert memory_rows(ON_ONE, given(tmp_path, tiny_model, flags))[0] == prompt


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optim", ["adamw_torch", "rmsprop", "sgd"])
def test_the_state_of_training_is_as_large_as_the_real_one(dtype, optim, tmp_path, tiny_model):
    run = given(tmp_path, tiny_model, f"--bf16 false --dtype {dtype} --optim {optim}")
    rows = {row.name: row.size for row in memory_rows(ON_ONE, run)[1]}
    config = json.loads(Path(tiny_model, "config.json").read_text())
    model = Qwen3ForCausalLM(tiny_model_config(config["vocab_size"])).to(getattr(torch, dtype))
    kinds = {"adamw_torch": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop, "sgd": torch.optim.SGD}
    optimizer = kinds[optim](model.parameters(), lr=1e-3)
    model(torch.arange(6)[None]).logits.float().sum().backward()
    optimizer.step()

    def total(tensors) -> int:
        return sum(tensor.nbytes for tensor in tensors)

    assert rows["weights"] == total(model.parameters())
    assert rows["gradients"] == total(p.grad for p in model.parameters())
    state = [t for numbers in optimizer.state.values() for name, t in numbers.items() if name != "step"]
    assert rows["optimizer state"] == total(state)


def model(engine: Engine, shape: ModelShape = HAND, **overrides) -> Model:
    """`shape` on `engine`, held and computed in two bytes, without checkpointing."""
    fields = {"linear": 2, "frozen": 2, "trained": 2, "compute": 2, "copied": False, "checkpointing": False}
    return Model(shape, engine, **(fields | overrides))


def arguments(**overrides) -> Namespace:
    """The fields that the estimate reads: micro-batches of eight completions of five tokens, two to sample."""
    vllm = {"use_vllm": True, "vllm_mode": "server", "vllm_tensor_parallel_size": 1, "vllm_enable_sleep_mode": False}
    batch = {"per_device_train_batch_size": 8, "max_completion_length": 5, "steps_per_generation": 2}
    others = {"optim": "adamw_torch", "beta": 0.0, "ds3_gather_for_generation": True}
    return Namespace(**(vllm | batch | others | overrides))


def rows_of(policy: Model, **overrides) -> list[Row]:
    """The estimate with prompts of three tokens."""
    return estimate(policy, None, 3, arguments(**overrides))


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_shards_as_in_figure_1_of_its_paper(stage, gigabytes):
    """7.5 billion parameters with mixed-precision Adam on 64 devices, https://huggingface.co/papers/1910.02054."""
    shards = {0: (), 1: (OPTIMIZER,), 2: (GRADIENTS, OPTIMIZER), 3: ALL}[stage]
    shape = HAND._replace(total=7_500_000_000, trained=7_500_000_000)
    rows = rows_of(model(Engine("", "DeepSpeed", shards, 64), shape))
    state = {"weights", "gradients", "optimizer state"}
    assert sum(row.size for row in rows if row.name in state) / 1e9 == pytest.approx(gigabytes, abs=0.06)


def by_name(engine: Engine, **overrides) -> dict:
    return {row.name: row.size for row in rows_of(model(engine, **overrides))}


def test_the_hand_worked_state_of_each_engine():
    # 1,000 parameters; two bytes each, and 2 x 2 of Adam's. The layers have 600, 300 each.
    names = ("weights", "gradients", "optimizer state")
    single = by_name(Engine("", "single"))
    assert [single[name] for name in names] == [2000, 2000, 4000]
    assert "buffers" not in single
    assert by_name(Engine("", "DDP"))["gradients"] == 2 * 2000  # reduced in buckets as large again
    fsdp = by_name(Engine("", "FSDP", ALL, 4), trained=4)
    assert [fsdp[name] for name in names] == [1000, 1000, 2000]
    assert fsdp["buffers"] == 2 * min(1000, 2 * 300 + 400)
    assert by_name(Engine("", "FSDP", ALL, 4, gathers_all=True))["buffers"] == 2 * 1000
    copies = by_name(Engine("", "single"), frozen=4, trained=4, copied=True)
    assert copies["buffers"] == 2 * 600


def test_the_hand_worked_state_in_main_memory():
    # Weights are split by 4; reduced and gathered are 1,000 numbers each. The optimizer has 4,000 bytes of float32
    # weights and 8,000 of Adam's.
    rows = {row.name: row for row in rows_of(model(Engine("", "DeepSpeed", ALL, 4, (GRADIENTS, OPTIMIZER))))}
    sizes = [rows[name].size for name in ("weights", "gradients", "optimizer state", "buffers")]
    assert sizes == [500, 0, 0, 2000 + 2000]
    assert [rows[name].where for name in ("weights", "gradients", "optimizer state")] == [
        "1/4 on each",
        "RAM: 500 B",
        "RAM: 3 KiB",
    ]
    assert rows["optimizer state"].formula == "4 B x 1,000 float32 weights + 8 B x 1,000 of adamw_torch"


def test_the_hand_worked_adapters():
    shape = HAND._replace(trained=10)
    quantised = model(Engine("", "DDP"), shape, linear=0.5, frozen=2, trained=4)
    rows = {row.name: row.size for row in rows_of(quantised, beta=0.1)}
    assert rows["weights"] == 600 * 0.5 + 400 * 2 + 40  # without the adapters, they are the reference
    assert (rows["gradients"], rows["optimizer state"]) == (80, 80)


def test_a_reference_model_is_sharded_where_weights_are():
    sharded = {True: Engine("", "DeepSpeed", ALL, 4), False: Engine("", "DeepSpeed", (GRADIENTS, OPTIMIZER), 4)}
    sizes = {whole: rows_of(model(engine), beta=0.1)[0] for whole, engine in sharded.items()}
    assert {whole: row.size for whole, row in sizes.items()} == {True: 2 * 500, False: 2 * 2000}
    assert sizes[True].formula == "2 B x 1,000 + 2 B x 1,000 of the reference model"


def test_the_hand_worked_batch():
    plain = model(Engine("", "single"))
    # A token of a layer: two norms 2 x (4 + 2) x 8, inputs 2 x 2 x 8, attention 4 x 2 x 8, feed-forward 4 x 2 x 16.
    assert activation_bytes(plain) == 96 + 32 + 64 + 128
    # Under autocast the norms work on float32, and five projections cast their input each.
    assert activation_bytes(plain._replace(copied=True)) == 128 + 80 + 64 + 128
    # 40 scored tokens: one tile of 40 x 32,768 logits; float32 gradients of 40 x 8 inputs and of 50 x 8 weights.
    head = 2 * 40 * 32768 + 4 * (40 * 8 + 50 * 8)
    assert by_name(plain.engine)["activations"] == 2 * 320 * 8 * (3 + 5) + head
    assert by_name(plain.engine, checkpointing=True)["activations"] == (2 * 8 * 2 + 320) * 64 + head
    adapters = rows_of(model(plain.engine, HAND._replace(trained=10)))
    assert adapters[3].size == 2 * 320 * 64 + head - 4 * 50 * 8  # the head does not train


def test_the_hand_worked_sampling():
    # keys and values of two layers, 4 wide, 16 rows of 8 tokens
    cache = 2 * 2 * 2 * 4 * 16 * 8
    assert rows_of(model(Engine("", "single")), use_vllm=False)[-1][:2] == ("cache to sample", cache)
    sharded = rows_of(model(Engine("", "DeepSpeed", ALL, 4)), use_vllm=False)
    assert sharded[-1].size == cache + 2 * 1000  # and the weights, gathered


@pytest.mark.parametrize("asleep", [False, True])
def test_a_colocated_sampler_takes_its_share_of_the_device(asleep):
    args = arguments(vllm_mode="colocate", vllm_enable_sleep_mode=asleep, vllm_gpu_memory_utilization=0.1)
    rows = estimate(model(Engine("", "single")), None, 3, args)
    work = sum(row.size for row in rows if row.name == "activations")
    updating, sampling = needs(rows, args)
    assert updating == pytest.approx((8000 + work) / (1 if asleep else 0.9))
    assert sampling == pytest.approx(2000 / 0.1)  # vLLM's own weights: the rest takes 8,000 / 0.9
    wide = arguments(vllm_mode="colocate", vllm_enable_sleep_mode=asleep, vllm_gpu_memory_utilization=0.5)
    assert needs(rows, wide)[1] == pytest.approx(8000 / 0.5)


@pytest.mark.parametrize("config", [tiny_model_config, LlamaConfig], ids=["Qwen3", "Llama"])
@pytest.mark.parametrize(("dtype", "autocast"), [("float32", False), ("float32", True), ("bfloat16", False)])
def test_activations_are_close_to_what_autograd_saves(config, dtype, autocast):
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 8, "num_key_value_heads": 4}
    saved = {}
    for layers in (1, 3):  # the difference is two layers: what the ends save cancels
        shape = config(vocab_size=99, num_hidden_layers=layers, head_dim=16, **sizes)
        real = AutoModelForCausalLM.from_config(shape).to(getattr(torch, dtype))
        saved[layers] = saved_bytes(real, rows=4, tokens=128, autocast=autocast)
    args = Namespace(bf16=autocast, fp16=False, model_init_kwargs=None, gradient_checkpointing=False)
    model_args = Namespace(dtype=dtype, use_peft=False, load_in_4bit=False, load_in_8bit=False)
    ours = activation_bytes(policy_of(model_shape(shape), ON_ONE, args, model_args, shape)) * 4 * 128
    assert ours == pytest.approx((saved[3] - saved[1]) / 2, rel=0.06)


def saved_bytes(model, rows: int, tokens: int, autocast: bool) -> int:
    """Bytes that autograd keeps for the backward pass, without weights and autocast's copies of them."""
    weights = {parameter.shape for parameter in model.parameters()}
    weights |= {shape[::-1] for shape in weights}
    storages = {}

    def keep(tensor):
        if tensor.shape not in weights:
            storages[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    ids = torch.randint(0, 99, (rows, tokens))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0  # padding on the left, as in a batch of prompts
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t), torch.autocast("cpu", enabled=autocast):
        model.model(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(size for size, _ in storages.values())


@pytest.mark.parametrize(
    ("optim", "formula"),
    [
        ("adamw_torch_fused", "4 B x 1,000 of adamw_torch_fused"),  # two numbers of the weights' two bytes
        ("schedule_free_adamw", "4 B x 1,000 of schedule_free_adamw"),
        ("adamw_bnb_8bit", "2 B x 1,000 of adamw_bnb_8bit"),
        ("paged_adamw_32bit", "8 B x 1,000 of paged_adamw_32bit"),
        ("paged_lion_8bit", "1 B x 1,000 of paged_lion_8bit"),
        ("adagrad", "2 B x 1,000 of adagrad"),
        ("sgd", "0 B x 1,000 of sgd"),
        ("galore_adamw", "0 B x 1,000 of galore_adamw: no formula, not counted"),
    ],
)
def test_an_optimizer_has_its_formula_or_is_named_and_not_counted(optim, formula):
    rows = rows_of(model(Engine("", "single")), optim=optim)
    assert [row.formula for row in rows if row.name == "optimizer state"] == [formula]
