"""seqlab: a laboratory for sequence models in JAX and Flax."""

import os

# JAX 0.10.2 and newer compute some fused matmuls wrongly on the CPU (jax issues 39103, 39257, 40412);
# an empty fusion type turns that pass off. It must be in the environment before the backend starts.
_SAFE_CPU_FUSION = "--xla_cpu_experimental_ynn_fusion_type="
if _SAFE_CPU_FUSION not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_SAFE_CPU_FUSION}".strip()

# XLA logs an error, in kilobytes, for each program that it takes from the compilation cache on a CPU: it counts two
# tuning hints of its own (prefer-no-gather, prefer-no-scatter) as features that the machine lacks. Errors that matter
# are raised as well as logged.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"
