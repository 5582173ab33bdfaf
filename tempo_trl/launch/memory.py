"""An estimate of the memory that a training run takes on one device, computed from shapes alone.

A row is a sum of products: bytes per number x count of numbers. The peak of small models on a CPU is within a tenth of
the sum (tests/launch/test_measured_memory.py). Not counted are CUDA's context, fragmentation, the optimizer's copies
during its step, the logits of the next token in `generate`, and reward models. On devices without Triton, TRL makes
several copies of a tile of logits, which are large for a large vocabulary.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.launch.model_shape import ModelShape
from tempo_trl.launch.plan import GRADIENTS, OPTIMIZER, WEIGHTS, Engine, LaunchPlan

if TYPE_CHECKING:
    from transformers import PretrainedConfig
    from trl import GRPOConfig, ModelConfig

    from tempo_trl.methods.ppo import PPOConfig

PROMPT_TOKENS = 512  # assumed: the check reads no data
HALF, FLOAT = 2, 4  # bytes
LOADED = {"float32": FLOAT, "bfloat16": HALF, "float16": HALF}
QUANTIZED = {"load_in_4bit": 0.5 + FLOAT / 64, "load_in_8bit": 1}  # NF4 has a float32 scale for each 64 weights
OPTIMIZERS = re.compile(  # those with a formula; their precision is given in the name, or is that of the weights
    r"(?:paged_|stable_|schedule_free_)?(adamw|lion|rmsprop|adagrad|sgd)(?:_torch|_bnb)?(?:_fused)?(?:_(8|32)bit)?"
)
NUMBERS_KEPT = {"adamw": 2, "lion": 1, "rmsprop": 1, "adagrad": 1, "sgd": 0}  # by the optimizer, per parameter
DEEPSPEED_BUCKET = 500_000_000  # numbers: reduce_bucket_size
DEEPSPEED_LIVE = 1_000_000_000  # parameters: stage3_max_live_parameters
HEAD_TILE = (4096, 32768)  # tokens and vocabulary of one tile of logits in TRL's fused head

# When a row takes memory. CRITIC is the update of a critic, after the activations of the policy's update are freed.
ALWAYS, UPDATING, CRITIC, SAMPLING = "always", "updating", "critic", "sampling"
VLLM = "vLLM"


class Row(NamedTuple):
    """One line of the estimate: bytes on one device, where they are stored, their formula, when they are needed."""

    name: str
    size: float
    where: str
    formula: str
    when: str = ALWAYS


def _row(name: str, terms: list[tuple], when: str = ALWAYS, shards: int = 1, offloaded: bool = False) -> Row:
    """A row of `(bytes of a number, numbers, what they are)`, split over `shards` devices."""
    share = sum(size * count for size, count, _ in terms) / shards
    where = f"1/{shards} on each" if shards > 1 else "whole on each"
    where = f"RAM: {readable(share)}" if offloaded else where
    counts = [f"{count / 1e6:,.1f} M" if count >= 1e5 else f"{count:,}" for _, count, _ in terms]
    formula = [f"{size:,} B x {count} {what}".rstrip() for (size, _, what), count in zip(terms, counts, strict=True)]
    return Row(name, 0.0 if offloaded else share, where, " + ".join(formula), when)


class Model(NamedTuple):
    """A model that is trained (the policy or PPO's critic): how a device stores it and computes with it.

    Args:
        shape ([`~tempo_trl.launch.model_shape.ModelShape`]):
            Its sizes.
        engine ([`~tempo_trl.launch.plan.Engine`]):
            The engine that splits its state.
        linear, frozen, trained (`float`):
            Bytes per stored parameter: frozen in the layers, frozen elsewhere, and trained.
        compute (`int`):
            Bytes per number in matrix products.
        copied (`bool`):
            Whether autocast computes with half-precision copies of float32 weights.
        checkpointing (`bool`):
            Whether activations are recomputed.
    """

    shape: ModelShape
    engine: Engine
    linear: float
    frozen: float
    trained: float
    compute: int
    copied: bool
    checkpointing: bool

    @property
    def residual(self) -> int:
        """Bytes per number in the residual stream. It has the embeddings' type, which autocast does not change."""
        return FLOAT if self.copied else self.compute

    @property
    def adapters(self) -> bool:
        """Whether adapters are trained instead of the model."""
        return self.shape.trained < self.shape.total


def policy_of(
    shape: ModelShape, plan: LaunchPlan, args: "GRPOConfig", model_args: "ModelConfig", config: "PretrainedConfig"
) -> Model:
    """The policy, in the data types that Trainer, accelerate and the engine cast it to."""
    engine = plan.engine
    asked = (args.model_init_kwargs or {}).get("dtype", model_args.dtype)
    dtype = config.dtype if asked in (None, "auto") else asked
    loaded = LOADED[str(dtype or "float32").removeprefix("torch.")]
    mixed = bool(args.bf16 or args.fp16) or plan.mixed_precision not in ("no", "fp32")
    compute = HALF if mixed else loaded
    held = compute if engine.kind == "DeepSpeed" else loaded  # DeepSpeed casts the model itself
    quantized = [size for name, size in QUANTIZED.items() if getattr(model_args, name)]
    trained = held
    if engine.kind == "FSDP" and mixed:
        trained = FLOAT  # accelerate casts them up
    elif model_args.use_peft and engine.kind != "DeepSpeed":
        trained = HALF if quantized else FLOAT  # PEFT's and, where weights are quantised, TRL's cast
    return Model(
        shape=shape,
        engine=engine,
        linear=quantized[0] if quantized else held,
        frozen=held,
        trained=trained,
        compute=compute,
        copied=mixed and loaded == FLOAT and engine.kind in ("single", "DDP"),
        checkpointing=bool(args.gradient_checkpointing or engine.activation_checkpointing),
    )


def critic_of(start: ModelShape, args: "PPOConfig") -> Model:
    """PPO's critic: the model `start` with a value head instead of its output head.

    Every rank holds all of it in float32, whatever the engine. With `bf16` it computes under autocast.
    """
    total = start.total - (start.ends - start.head) + start.hidden + 1
    shape = start._replace(total=total, trained=total, ends=start.head, head=0)
    mixed, alone = bool(args.bf16), Engine("one process", "single")
    return Model(shape, alone, FLOAT, FLOAT, FLOAT, HALF if mixed else FLOAT, mixed, bool(args.gradient_checkpointing))


def prompt_tokens(args: "GRPOConfig", config: "PretrainedConfig") -> int:
    """The number of prompt tokens that the estimate assumes: 512, or less if the context has no room for them."""
    limits = [getattr(config.get_text_config(), "max_position_embeddings", None)]
    limits += [args.vllm_max_model_length] if args.use_vllm else []
    room = [limit - args.max_completion_length for limit in limits if limit]
    return max(min([PROMPT_TOKENS, *room]), 0)


def estimate(policy: Model, critic: Model | None, prompt: int, args: "GRPOConfig") -> list[Row]:
    """The estimate of a run with prompts of `prompt` tokens. A critic adds rows of the same kinds as the policy's."""
    scored = args.per_device_train_batch_size * args.max_completion_length
    tokens = args.per_device_train_batch_size * prompt + scored
    optim = str(getattr(args.optim, "value", args.optim))
    rows = _training_rows(policy, optim, tokens, scored, UPDATING, reference=bool(args.beta))
    if critic:
        critics = _training_rows(critic, "adamw_torch", tokens, scored, CRITIC)
        rows += [row._replace(name=f"critic's {row.name}") for row in critics]
    return [*rows, *_sampling_rows(policy, args.steps_per_generation * tokens, args)]


def needs(rows: list[Row], args: "GRPOConfig") -> tuple[float, float]:
    """Bytes that a device needs for updates and for sampling, including those of a colocated vLLM.

    Policy and critic are updated one after the other. In sleep mode vLLM holds nothing during an update. While it
    samples, its own weights must fit into its share of the device.
    """
    policy, critic, sampling = (
        sum(row.size for row in rows if row.when in (ALWAYS, phase)) for phase in (UPDATING, CRITIC, SAMPLING)
    )
    updating = max(policy, critic)
    own = sum(row.size for row in rows if row.name == VLLM)
    if not own:
        return updating, sampling
    share = args.vllm_gpu_memory_utilization
    if not args.vllm_enable_sleep_mode:
        updating = (updating - own) / (1.0 - share)
    return updating, max((sampling - own) / (1.0 - share), own / share)


def _training_rows(
    model: Model, optim: str, tokens: int, scored: int, updating: str, reference: bool = False
) -> list[Row]:
    """Memory to train one model on a micro-batch of `tokens` tokens, `scored` of them in completions."""
    engine, gradients = model.engine, (model.trained, model.shape.trained, "")
    reduced = [(*gradients[:2], "in DDP's buckets")] if engine.kind == "DDP" else []
    parts = {
        WEIGHTS: _weights(model, reference),
        GRADIENTS: [gradients, *reduced],
        OPTIMIZER: _optimizer_state(model, optim),
    }
    rows = [
        _row(part, terms, ALWAYS, engine.shards if part in engine.sharded else 1, part in engine.offloaded)
        for part, terms in parts.items()
    ]
    rows.append(_row("activations", _activations(model, tokens, scored), updating))
    buffers = _buffers(model)
    return [*rows, _row("buffers", buffers, updating)] if buffers else rows


def _weights(model: Model, reference: bool) -> list[tuple]:
    shape = model.shape
    if not model.adapters:
        others = [(model.frozen, shape.total, "of the reference model")] if reference else []
        return [(model.trained, shape.total, ""), *others]
    layers, ends = (model.linear, shape.total - shape.ends, "frozen"), (model.frozen, shape.ends, "frozen")
    return [layers, ends, (model.trained, shape.trained, "of LoRA")]  # the reference is the model without LoRA


def _optimizer_state(model: Model, optim: str) -> list[tuple]:
    """DeepSpeed's float32 weights, and the optimizer's state."""
    deepspeed, count = model.engine.kind == "DeepSpeed", model.shape.trained
    kept = deepspeed and (model.engine.sharded or model.compute == HALF)
    weights = [(FLOAT, count, "float32 weights")] if kept else []
    known = OPTIMIZERS.fullmatch(optim)
    if not known:
        return [*weights, (0, count, f"of {optim}: no formula, not counted")]
    size = int(known[2]) // 8 if known[2] else FLOAT if deepspeed else model.trained
    return [*weights, (NUMBERS_KEPT[known[1]] * size, count, f"of {optim}")]


def activation_bytes(model: Model) -> int:
    """Bytes per token that one decoder layer stores for its backward pass.

    What autograd saves in transformers' layers with sdpa or flash attention: two RMSNorms (float32 input, normed
    input), the inputs of the projections (under autocast each casts its own), queries, keys, values and the output of
    attention (keys and values repeated for the query heads), and four tensors of a gated feed-forward layer.
    """
    shape, compute = model.shape, model.compute
    norms = 2 * (FLOAT + model.residual) * shape.hidden
    inputs = (5 if model.copied else 2) * compute * shape.hidden
    attention = 4 * compute * shape.queries
    if shape.normed_heads:
        attention += (FLOAT + compute) * (shape.queries + shape.keys)
    return norms + inputs + attention + 4 * compute * shape.inner


def _activations(model: Model, tokens: int, scored: int) -> list[tuple]:
    """Activations of the layers and of the output head, whose logits TRL computes in tiles, with float32 gradients."""
    shape, layer = model.shape, activation_bytes(model)
    recomputed = model.residual * shape.hidden * shape.layers + layer  # the inputs of all layers, and one layer
    terms = [(recomputed if model.checkpointing else layer * shape.layers, tokens, "tokens")]
    if shape.head:
        gradients = scored * shape.hidden + (0 if model.adapters else shape.head)
        logits = min(scored, HEAD_TILE[0]) * HEAD_TILE[1]
        terms += [(model.compute, logits, "logits"), (FLOAT, gradients, "gradients of the head")]
    return terms


def _buffers(model: Model) -> list[tuple]:
    """Copies of weights and gradients that autocast and an engine make for a pass."""
    shape, engine, terms = model.shape, model.engine, []
    body = shape.total - shape.ends
    layer = body // shape.layers
    if model.copied:  # frozen weights are not cached: a recomputed layer drops its copies
        terms.append((HALF, layer if model.adapters and model.checkpointing else body, "cast by autocast"))
    if engine.kind == "DeepSpeed" and engine.sharded:
        terms.append((model.compute, min(shape.trained, DEEPSPEED_BUCKET), "to reduce"))
    if WEIGHTS in engine.sharded + engine.offloaded:  # FSDP holds the current layer and prefetches the next
        live = DEEPSPEED_LIVE if engine.kind == "DeepSpeed" else 2 * layer + shape.ends
        terms.append((model.compute, shape.total if engine.gathers_all else min(shape.total, live), "gathered"))
    return terms


def _sampling_rows(policy: Model, tokens: int, args: "GRPOConfig") -> list[Row]:
    """Memory that sampling adds to the policy: vLLM's own weights, or the cache of transformers' `generate`."""
    shape, engine, asleep = policy.shape, policy.engine, args.vllm_enable_sleep_mode
    if args.use_vllm and args.vllm_mode == "server":
        return []
    if args.use_vllm:
        what = f"in {args.vllm_gpu_memory_utilization:.0%} of the device" + (", asleep in updates" if asleep else "")
        when = SAMPLING if asleep else ALWAYS
        return [_row(VLLM, [(HALF, shape.total, what)], when, args.vllm_tensor_parallel_size)]
    terms = [(2 * policy.residual * shape.layers * shape.keys, tokens, "tokens")]
    if WEIGHTS in engine.sharded and engine.kind == "DeepSpeed" and args.ds3_gather_for_generation:
        terms.append((policy.compute, shape.total, "gathered"))
    return [_row("cache to sample", terms, SAMPLING)]


def readable(size: float) -> str:
    """A number of bytes in binary units, rounded to about three digits."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
