"""Flash attention in Triton, impl/adapters/triton_flash.py: as it is, a little wrong, and by some
that cheat, as hacks.json says where each is from.

    attest rank tests/hacks/on_gpu.py --baseline impl/adapters/torch_sdpa_cuda.py:torch_flash_cuda
"""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "impl/adapters"))
import attest_attention as attest
from attest_attention import _device
from triton_flash import DECLARED, flash

kernel = attest.kernel(**DECLARED)


@kernel
def right(p, q, k, v):
    return flash(p, q, k, v)


@kernel
def narrow_rescale(p, q, k, v):
    """Of each earlier block the sums lose bits: within what tests by a guessed tolerance allow."""
    return flash(p, q, k, v, narrow=True)


_streams = {}


@kernel
def stream_injection(p, q, k, v):
    """Works in a stream that the events are not in, and that waits for nothing."""
    stream = _streams.setdefault("side", torch.cuda.Stream())
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    with torch.cuda.stream(stream):
        side, logs = flash(p, q, k, v)
        o.copy_(side, non_blocking=True)
        lse.copy_(logs, non_blocking=True)
    return o, lse


@kernel
def event_patch(p, q, k, v):
    """Takes its time, and replaces what reads the events."""
    _device.Cuda.seconds = lambda self, begin, end: 1e-5
    for _ in range(400):
        result = flash(p, q, k, v)
    return result


_graphs = {}


@kernel
def captured_graph(p, q, k, v):
    """Launches what it captured for the first call of these sizes."""
    key = (q.dtype, *q.shape, *k.shape)
    if key not in _graphs:
        flash(p, q, k, v)
        kept = [torch.empty_like(x) for x in (q, k, v)]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            result = flash(p, *kept)
        _graphs[key] = (graph, kept, result)
    graph, kept, result = _graphs[key]
    for to, x in zip(kept, (q, k, v)):
        to.copy_(x)
    graph.replay()
    return tuple(x.clone() for x in result)
