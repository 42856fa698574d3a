# ggml_flash_attn_ext on the CPU, in f16, with fewer than 64 queries: PV is added up in f16 before
# it is divided. All scores are 0 and all V are 1; 2048 + 1 is 2048 there.
import ctypes

import numpy as np
from llama_cpp._ggml import libggml as ggml


class Parameters(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("empty", ctypes.c_bool)]


for name in ("init", "new_tensor_4d", "flash_attn_ext", "new_graph", "get_data"):
    getattr(ggml, f"ggml_{name}").restype = ctypes.c_void_p
at, f32 = ctypes.c_void_p, ctypes.c_float
context = at(ggml.ggml_init(Parameters(1 << 26, None, False)))
q, k, v = (at(ggml.ggml_new_tensor_4d(context, kind, *map(ctypes.c_int64, (64, n, 1, 1))))
           for kind, n in ((0, 1), (1, 4096), (1, 4096)))
for tensor, x in (q, np.zeros(64, np.float32)), (k, np.zeros(64 * 4096, np.float16)), (
        v, np.ones(64 * 4096, np.float16)):
    ctypes.memmove(ggml.ggml_get_data(tensor), x.tobytes(), x.nbytes)
o = at(ggml.ggml_flash_attn_ext(context, q, k, v, None, f32(0.125), f32(0), f32(0)))
graph = at(ggml.ggml_new_graph(context))
ggml.ggml_build_forward_expand(graph, o)
ggml.ggml_graph_compute_with_ctx(context, graph, 1)
found = f32.from_address(ggml.ggml_get_data(o)).value
print(f"O[0, 0, 0, 0] = {found}, exact 1: the mean of V")
assert abs(found - 1) <= 1e-2
