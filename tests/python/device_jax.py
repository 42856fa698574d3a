"""A right kernel of JAX on a GPU, which device_run.py has judged."""
import jax_kernels
from attest_attention import kernel

jitted = kernel(dtypes=["f32", "bf16"], features=["causal", "gqa", "lse", "new-shapes"],
                arrays="jax", device="cuda", backward="autograd",
                limits={"query_len": {"min": 1}, "key_len": {"min": 1},
                        "masks": ["full", "causal top_left"]})(jax_kernels.jitted.function)
