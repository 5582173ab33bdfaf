"""Every method on a real language model, SmolLM2-135M-Instruct: on short instructions and on structured text."""
