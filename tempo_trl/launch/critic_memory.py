"""What PPO's critic takes of a device beside the policy: rows that [`~tempo_trl.launch.memory.estimate`] lacks."""

from typing import TYPE_CHECKING

from tempo_trl.launch.memory import ALWAYS, CRITIC, FLOAT, HALF, Load, Row, activations, product, whole_row
from tempo_trl.launch.model_shape import ModelShape

if TYPE_CHECKING:
    from tempo_trl.methods.ppo import PPOConfig

STATE = 4 * FLOAT  # bytes a parameter: weight, gradient and two numbers of AdamW


def critic_rows(shape: ModelShape, load: Load, args: "PPOConfig") -> list[Row]:
    """What the critic takes; `shape` is that of the model it starts from, `load` the policy's.

    It is float32 and whole on every rank under every engine, and bf16 is autocast's.
    """
    if args.shared_trunk:
        head = value_head_parameters(shape)
        return [whole_row("value head", STATE * head, product(STATE, head), ALWAYS)]
    count, mixed = critic_parameters(shape), bool(args.bf16)
    load = load._replace(
        compute=HALF if mixed else FLOAT,
        residual=FLOAT,
        copied=mixed,
        checkpointing=bool(args.gradient_checkpointing),
    )
    rows = [whole_row("critic", STATE * count, f"weights, gradients, AdamW: {product(STATE, count)}", ALWAYS)]
    if mixed:
        rows.append(
            whole_row("critic's copies", HALF * shape.linear, f"autocast's: {product(HALF, shape.linear)}", CRITIC)
        )
    size, formula = activations(shape, load)
    return [*rows, whole_row("critic's work", size, f"{formula}, after the policy's", CRITIC)]


def critic_parameters(shape: ModelShape) -> int:
    """Parameters of the token classifier of one label: a value head in the place of the output head."""
    embedding = shape.vocabulary * shape.hidden
    return shape.total - (shape.ends - embedding) + value_head_parameters(shape)


def value_head_parameters(shape: ModelShape) -> int:
    """Parameters of a linear layer from a hidden state to a value."""
    return shape.hidden + 1
