"""An estimate of the memory that a training run takes on one device, counted from shapes alone.

P is a number of parameters, S the devices that a thing is split over, B the rows of an update's micro-batch, N the
tokens in those rows (prompts and completions). Not counted: CUDA's context, fragmentation, the copies that an
optimizer makes during its step, and reward models.
"""

from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.launch.model_shape import ModelShape
from tempo_trl.launch.plan import GRADIENTS, OPTIMIZER, WEIGHTS, Engine, LaunchPlan

if TYPE_CHECKING:
    from transformers import PretrainedConfig
    from trl import GRPOConfig, ModelConfig

PROMPT_TOKENS = 512  # assumed: the check reads no data
HALF, FLOAT = 2, 4  # bytes
LOADED = {"float32": FLOAT, "bfloat16": HALF, "float16": HALF}
# NF4 has a float32 scale for each 64 weights.
QUANTIZED = {"load_in_4bit": 0.5 + FLOAT / 64, "load_in_8bit": 1.0}
# Numbers kept a parameter, and the bytes of each; None is the type of what the optimizer updates.
OPTIMIZER_STATES = {
    **dict.fromkeys(["adamw_torch", "adamw_torch_fused", "schedule_free_adamw", "stable_adamw"], (2, None)),
    **dict.fromkeys(["adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit"], (2, 1)),
    "paged_adamw_32bit": (2, FLOAT),
    **dict.fromkeys(["adagrad", "rmsprop"], (1, None)),
    **dict.fromkeys(["lion_32bit", "paged_lion_32bit", "rmsprop_bnb", "rmsprop_bnb_32bit"], (1, FLOAT)),
    **dict.fromkeys(["lion_8bit", "paged_lion_8bit", "rmsprop_bnb_8bit"], (1, 1)),
    "sgd": (0, None),
}
DEEPSPEED_BUCKET = 500_000_000  # numbers: reduce_bucket_size
DEEPSPEED_LIVE = 1_000_000_000  # parameters: stage3_max_live_parameters
HEAD_TILE = (4096, 32768)  # tokens and vocabulary of one tile of logits in TRL's fused head

# CRITIC: the update of a critic of its own, which comes when the activations of the policy's are gone.
ALWAYS, UPDATING, CRITIC, SAMPLING = "always", "updating", "critic", "sampling"
VLLM = "vLLM"


class Load(NamedTuple):
    """What the formulas take beside the shape.

    Args:
        engine ([`~tempo_trl.launch.plan.Engine`]):
            What splits the state.
        linear, frozen, trained (`float`):
            Bytes of a parameter that is held: of a frozen linear layer, frozen elsewhere, and trained.
        compute, residual (`int`):
            Bytes of a number in matrix products and in the residual stream.
        copied (`bool`):
            Whether autocast computes with copies of float32 weights.
        rows, sampled, prompt, completion (`int`):
            Rows of an update's micro-batch and of a generation on one device; tokens of a prompt and of a completion.
        checkpointing, adapters (`bool`):
            Whether activations are recomputed, and whether adapters train in place of the model.
    """

    engine: Engine
    linear: float
    frozen: float
    trained: float
    compute: int
    residual: int
    copied: bool
    rows: int
    sampled: int
    prompt: int
    completion: int
    checkpointing: bool
    adapters: bool


class Row(NamedTuple):
    """One line of the estimate: bytes on one device, where the thing lies, how it is counted, and when it is there."""

    name: str
    size: float
    where: str
    formula: str
    when: str = ALWAYS


def load_of(plan: LaunchPlan, args: "GRPOConfig", model_args: "ModelConfig", config: "PretrainedConfig") -> Load:
    """What the run holds and computes in, as Trainer, accelerate and the engine cast it."""
    engine, adapters = plan.engine, bool(model_args.use_peft)
    loaded = _loaded_bytes(args, model_args, config)
    mixed = bool(args.bf16 or args.fp16) or plan.mixed_precision not in ("no", "fp32")
    compute = HALF if mixed else loaded
    held = compute if engine.kind == "DeepSpeed" else loaded  # DeepSpeed casts the model itself
    quantized = [size for name, size in QUANTIZED.items() if getattr(model_args, name)]
    trained = held
    if engine.kind == "FSDP" and mixed:
        trained = FLOAT  # accelerate casts them up
    elif adapters and engine.kind != "DeepSpeed":
        trained = HALF if quantized else FLOAT  # PEFT's and, where weights are quantised, TRL's cast
    copied = mixed and loaded == FLOAT and engine.kind in ("single", "DDP")
    return Load(
        engine=engine,
        linear=quantized[0] if quantized else held,
        frozen=held,
        trained=trained,
        compute=compute,
        residual=FLOAT if copied else compute,  # embeddings are not cast by autocast, and their type stays
        copied=copied,
        rows=args.per_device_train_batch_size,
        sampled=args.per_device_train_batch_size * args.steps_per_generation,
        prompt=_prompt_tokens(args, config),
        completion=args.max_completion_length,
        checkpointing=bool(args.gradient_checkpointing or engine.activation_checkpointing),
        adapters=adapters,
    )


def _prompt_tokens(args: "GRPOConfig", config: "PretrainedConfig") -> int:
    limits = [getattr(config.get_text_config(), "max_position_embeddings", None)]
    limits += [args.vllm_max_model_length] if args.use_vllm else []
    room = [limit - args.max_completion_length for limit in limits if limit]
    return max(min([PROMPT_TOKENS, *room]), 0)


def _loaded_bytes(args: "GRPOConfig", model_args: "ModelConfig", config: "PretrainedConfig") -> int:
    asked = (args.model_init_kwargs or {}).get("dtype", model_args.dtype)
    dtype = config.dtype if asked in (None, "auto") else asked
    return LOADED[str(dtype or "float32").removeprefix("torch.")]


def estimate(shape: ModelShape, load: Load, args: "GRPOConfig") -> list[Row]:
    """The estimate, a thing a row."""
    return [
        *_weights(shape, load),
        *_training_state(shape, load, args.optim),
        *_other_weights(shape, load, args),
        *_work_of_an_update(shape, load),
        *_sampling(shape, load, args),
    ]


def needs(rows: list[Row], args: "GRPOConfig") -> tuple[float, float]:
    """Bytes that a device has to have for updates and to sample, colocated vLLM's share of it among them.

    An asleep vLLM holds nothing during an update. When it samples, its own weights have to fit into its share.
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


def _placed(load: Load, part: str, name: str, whole: float, formula: str, when: str = ALWAYS) -> Row:
    """`whole` bytes where the engine keeps things of its kind."""
    shards = load.engine.shards if part in load.engine.sharded else 1
    if shards > 1:
        formula = f"{formula} / {shards}"
    if part in load.engine.offloaded:
        return Row(name, 0.0, f"RAM: {readable(whole / shards)}", formula, when)
    return Row(name, whole / shards, f"1/{shards} on each" if shards > 1 else "whole on each", formula, when)


def _weights(shape: ModelShape, load: Load) -> list[Row]:
    if not load.adapters:
        return [_placed(load, WEIGHTS, "weights", load.trained * shape.total, product(load.trained, shape.total))]
    rest = shape.total - shape.linear
    whole = load.linear * shape.linear + load.frozen * rest
    formula = f"{product(load.linear, shape.linear)} + {product(load.frozen, rest)}"
    adapters = _placed(load, WEIGHTS, "LoRA", load.trained * shape.trained, product(load.trained, shape.trained))
    return [_placed(load, WEIGHTS, "frozen weights", whole, formula), adapters]


def _training_state(shape: ModelShape, load: Load, optim: str) -> list[Row]:
    """Gradients (DDP reduces them in buckets as large again), the optimizer's numbers, DeepSpeed's float32 weights."""
    deepspeed, count = load.engine.kind == "DeepSpeed", shape.trained
    times = 2 if load.engine.kind == "DDP" else 1
    formula = ("with DDP's buckets 2 x " if times == 2 else "") + product(load.trained, count)
    rows = [_placed(load, GRADIENTS, "gradients", times * load.trained * count, formula)]
    if deepspeed and (load.engine.sharded or load.compute == HALF):
        rows.append(_placed(load, OPTIMIZER, "float32 weights", FLOAT * count, product(FLOAT, count)))
    name = str(getattr(optim, "value", optim))
    if name not in OPTIMIZER_STATES:
        return [*rows, Row("optimizer state", 0.0, "unknown", f"not counted: no formula for optim {name}")]
    numbers, size = OPTIMIZER_STATES[name]
    size = size or (FLOAT if deepspeed else load.trained)
    formula = f"{name}: {numbers} x {product(size, count)}"
    return [*rows, _placed(load, OPTIMIZER, "optimizer state", numbers * size * count, formula)]


def _other_weights(shape: ModelShape, load: Load, args: "GRPOConfig") -> list[Row]:
    """The reference model, autocast's copies, and what an engine gathers and buffers for a pass."""
    rows, engine = [], load.engine
    if args.beta and not load.adapters:  # with adapters, the reference is the model without them
        rows.append(
            _placed(load, WEIGHTS, "reference model", load.frozen * shape.total, product(load.frozen, shape.total))
        )
    if load.copied:  # frozen weights are not cached: a recomputed layer drops its copies
        count = shape.layer if load.adapters and load.checkpointing else shape.linear
        rows.append(whole_row("autocast's copies", HALF * count, product(HALF, count)))
    if engine.kind == "DeepSpeed" and engine.sharded:
        count = min(shape.trained, DEEPSPEED_BUCKET)
        rows.append(whole_row("bucket to reduce", load.compute * count, product(load.compute, count)))
    if WEIGHTS in engine.sharded + engine.offloaded:
        count = _gathered(shape, engine)
        rows.append(whole_row("gathered weights", load.compute * count, product(load.compute, count)))
    return rows


def _gathered(shape: ModelShape, engine: Engine) -> int:
    """Parameters that are whole at one time: FSDP has a layer at work and the next one coming."""
    if engine.gathers_all:
        return shape.total
    return min(shape.total, DEEPSPEED_LIVE if engine.kind == "DeepSpeed" else 2 * shape.layer + shape.ends)


def activation_bytes(shape: ModelShape, load: Load) -> float:
    """Bytes that one decoder layer keeps for its backward pass, a token.

    What autograd saves in transformers' layers with sdpa or flash attention: two RMSNorms (float32 input, normed
    input), the inputs of the projections (under autocast each casts its own), queries, keys, values and the output of
    attention (keys and values repeated for the query heads), and four tensors of a gated feed-forward layer.
    """
    norms = 2 * (FLOAT + load.residual) * shape.hidden
    inputs = (5 if load.copied else 2) * load.compute * shape.hidden
    attention = 4 * load.compute * shape.queries
    if shape.normed_heads:
        attention += (FLOAT + load.compute) * (shape.queries + shape.keys)
    return norms + inputs + attention + 4 * load.compute * shape.inner


def _work_of_an_update(shape: ModelShape, load: Load) -> list[Row]:
    """Activations, and the output head: TRL's works on tiles of the logits, and its gradients are float32."""
    scored = load.rows * load.completion
    tile = min(scored, HEAD_TILE[0]) * HEAD_TILE[1]
    gradients = scored * shape.hidden + (0 if load.adapters else shape.vocabulary * shape.hidden)
    head = load.compute * tile + FLOAT * gradients
    formulas = f"{product(load.compute, tile)} logits + {product(FLOAT, gradients)}"
    return [whole_row("activations", *activations(shape, load)), whole_row("output head", head, formulas)]


def activations(shape: ModelShape, load: Load) -> tuple[float, str]:
    """Bytes that the decoder layers keep of a micro-batch, and how they are counted."""
    tokens, layer = load.rows * (load.prompt + load.completion), activation_bytes(shape, load)
    if not load.checkpointing:
        return layer * shape.layers * tokens, f"{shape.layers} layers x {layer:,} B x {tokens:,} tokens"
    a_token = load.residual * shape.hidden * shape.layers + layer
    formula = f"({load.residual} B x {shape.hidden} x {shape.layers} layers + {layer:,} B) x {tokens:,} tokens"
    return a_token * tokens, formula


def _sampling(shape: ModelShape, load: Load, args: "GRPOConfig") -> list[Row]:
    """What sampling takes beside the weights: vLLM's own weights, or the caches of transformers' `generate`."""
    if args.use_vllm:
        if args.vllm_mode == "server":
            return []
        split = args.vllm_tensor_parallel_size
        own = product(HALF, shape.total) + (f" / {split}" if split > 1 else "")
        asleep = "; asleep in updates" if args.vllm_enable_sleep_mode else ""
        when = SAMPLING if args.vllm_enable_sleep_mode else ALWAYS
        where = f"{args.vllm_gpu_memory_utilization:.0%} of the device"
        return [Row(VLLM, HALF * shape.total / split, where, f"{own}, then its cache{asleep}", when)]
    cache = 2 * load.residual * shape.layers * shape.keys
    tokens = load.sampled * (load.prompt + load.completion)
    logits = load.sampled * shape.vocabulary
    rows = [
        whole_row("cache to sample", cache * tokens, f"{cache:,} B x {tokens:,} tokens", SAMPLING),
        whole_row("next logits", FLOAT * logits, product(FLOAT, logits), SAMPLING),
    ]
    if WEIGHTS in load.engine.sharded and load.engine.kind == "DeepSpeed" and args.ds3_gather_for_generation:
        formula = product(load.compute, shape.total)
        rows.append(whole_row("gathered to sample", load.compute * shape.total, formula, SAMPLING))
    return rows


def whole_row(name: str, size: float, formula: str, when: str = UPDATING) -> Row:
    """A row of something that is neither split nor offloaded."""
    return Row(name, size, "whole on each", formula, when)


def product(size: float, count: int) -> str:
    """`4 B x 1,720.6 M`: so many bytes a number."""
    return f"{size:g} B x {f'{count / 1e6:,.1f} M' if count >= 1e5 else f'{count:,}'}"


def readable(size: float) -> str:
    """Bytes in binary units, to three digits or so."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
