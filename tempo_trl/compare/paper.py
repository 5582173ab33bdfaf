"""Table 1 of the TEMPO paper: accuracy in %, Qwen3-1.7B and Qwen3-4B.

https://huggingface.co/papers/2509.18314, version 1. The math columns are from runs trained on MATH, the medical
columns from runs trained on MedQA. The paper does not say how answers were sampled, or how many, and gives no
intervals or seeds.
"""

SOURCE = "https://huggingface.co/papers/2509.18314, version 1, Table 1"
METHODS = ("base", "ppo", "grpo", "hepo", "tempo")  # the order of its rows
TASKS = {
    "math": "MATH",
    "gsm_hard": "GSM-HARD",
    "amc23": "AMC23",
    "medqa": "MedQA",
    "medmcqa": "MedMCQA",
    "mmlu_medical": "MMLU-Medical",
}
# The task that a column's runs were trained on: the first math column, and the first medical one.
TRAINED_ON = dict.fromkeys(list(TASKS)[:3], "math") | dict.fromkeys(list(TASKS)[3:], "medqa")
MODELS = {"qwen3-1.7b": "Qwen3-1.7B", "qwen3-4b": "Qwen3-4B"}
TABLE_1 = {  # columns as in TASKS
    "qwen3-1.7b": {
        "base": (68.5, 46.85, 57.5, 46.11, 43.17, 57.85),
        "ppo": (81.6, 53.37, 67.5, 52.94, 48.05, 70.16),
        "grpo": (82.4, 53.15, 72.5, 56.24, 49.56, 71.53),
        "hepo": (81.7, 52.09, 62.5, 54.28, 48.98, 71.35),
        "tempo": (87.0, 56.71, 75.0, 59.15, 51.54, 73.37),
    },
    "qwen3-4b": {
        "base": (71.3, 54.13, 75.0, 65.36, 56.63, 78.24),
        "ppo": (87.4, 58.07, 85.0, 72.03, 59.29, 83.10),
        "grpo": (87.6, 59.81, 85.0, 76.12, 60.55, 83.19),
        "hepo": (88.2, 59.51, 82.5, 74.31, 59.48, 82.37),
        "tempo": (91.0, 62.32, 92.5, 79.18, 62.51, 85.49),
    },
}


def table_1(model: str | None, method: str, task: str) -> float | None:
    """Accuracy in % that the paper reports for a method; None if Table 1 has no such cell."""
    values = TABLE_1.get(model or "", {}).get(method)
    return None if values is None or task not in TASKS else values[list(TASKS).index(task)]
