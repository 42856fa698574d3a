"""Kernels of libraries for which attest repro --as has no language: what a script in NumPy has in
place of its kernel. None needs more than the library, each computes what its script asks, or there
is none, and the script is no longer than LINES."""
import re
import textwrap

LINES = 30
PLACEHOLDER = re.compile(r"def kernel\(.*\n    raise NotImplementedError.*\n")


class Asked:
    """What a script asks of its kernel, by the problem in its second line and by its call."""

    def __init__(self, script, tensor):
        self.problem = problem = script.splitlines()[1]
        call = re.search(r"kernel\(q, k, v, (.*)\)\[", script)[1]
        arrays, _, numbers = call.partition("scale=")
        self.tensor, self.names = tensor, arrays.replace(",", "").split()  # of d_o, mask and bias
        self.softcap = "softcap=" in numbers
        sizes = re.search(r" h(\d+)/(\d+) q(\d+) k(\d+) ", problem)
        self.heads, self.key_heads, self.queries, self.keys = map(int, sizes.groups())
        lengths = re.search(r" key_lens=(\[[\d, ]+\])", problem)
        self.lengths = lengths[1] if lengths else ""
        mask = re.search(r" (full|causal \w+|window -\d+\.\.0 \w+)(?= \w+=| sink| backward|$)",
                         problem)
        # What no flag says is left in the table, `mask`.
        self.mask = mask[1] if mask and " offset=" not in problem else ""
        corners = set(re.findall(r"\bcausal (\w+)", problem))
        self.corner = "" if len(corners) != 1 or re.search(r" or | offset=", problem) else \
            corners.pop()

    def define(self, about):
        more = ", softcap" if self.softcap else ""
        return f"def kernel({', '.join(['q, k, v', *self.names])}, scale{more}):  # {about}\n"


def _model(asked, node, opset, inputs, more, run, ends="return "):
    """A model of ONNX of one node, and what it gives. inputs: {name: (type, value)} by their
    order, of which one without a value is left out; more: attributes."""
    given = {name: each for name, each in inputs.items() if each[1]}
    arrays = ", ".join(f'"{name}": {value}' for name, (_, value) in given.items())
    arrays = textwrap.fill(arrays, 98, initial_indent="    given = {",
                           subsequent_indent=" " * 13, break_on_hyphens=False)
    types = ", ".join(f"{kind}[] {name}" for name, (kind, _) in given.items())
    names = ", ".join(name if name in given else "" for name in inputs).rstrip(", ")
    told = ["scale = {float(scale)}", *(["softcap = {float(softcap)}"] if asked.softcap else []),
            *(f"{name} = {value}" for name, value in more.items())]
    text = f"<ir_version: 10, opset_import: [{opset}]> g ({types}) => (float[] o) " \
           f"{{{{ {node}<{', '.join(told)}>({names}) }}}}"
    begun = "    model = onnx.parser.parse_model("
    lines = textwrap.wrap(text, 87, initial_indent=" " * (len(begun) - 8), break_on_hyphens=False)
    pieces = "\n        ".join(f"f'{line.strip()} '" for line in lines)
    return f"{arrays}}}\n{begun}{pieces})\n    {ends}{run}\n"


def _whole(asked, name):
    """A table of all queries and keys."""
    sizes = f"{asked.queries},{asked.keys}]"
    tables = re.findall(r"(?:bias=|dense )(\[[\d,]+\])", asked.problem)
    if all(each.endswith(sizes) for each in tables):
        return name
    return f"np.broadcast_to({name}, (*{name}.shape[:2], q.shape[2], k.shape[2]))"


def _attention(library, run):
    """Attention of opset 23; of 24, which has lengths, where they are told."""
    def kernel(asked):
        tables = ["bias"] if "bias" in asked.names else []
        if "mask" in asked.names and not (asked.mask.startswith("causal") and asked.corner):
            tables.append("mask")
        bias, mask = _whole(asked, "bias"), _whole(asked, "mask")
        table = {"bias": bias, "mask": mask, "": "",
                 "bias mask": f"np.where({mask}, bias, np.float32('-inf'))"}
        kind = "bool" if tables == ["mask"] else "float"
        lengths = asked.lengths or (f"[{asked.keys}] * len(q)" if asked.corner == "bottom_right"
                                    else "")
        inputs = {"q": ("float", "q"), "k": ("float", "k"), "v": ("float", "v"),
                  "table": (kind, table[" ".join(tables)]), "past_k": ("", ""), "past_v": ("", ""),
                  "lengths": ("int64", f"np.array({lengths})" if lengths else "")}
        return asked.define(f"Attention of ONNX, by {library}") + \
            f"    import onnx.parser, {library}\n" + \
            _model(asked, "o = Attention", '"": 24' if lengths else '"": 23', inputs,
                   {"is_causal": 1} if asked.corner else {}, run)

    return kernel


_RUNTIME = 'onnxruntime.InferenceSession(model.SerializeToString()).run(["o"], given)[0]'
_REFERENCE = 'onnx.reference.ReferenceEvaluator(model).run(["o"], given)[0]'
_PACKED = "    packed = lambda x: x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)\n"
_UNPACKED = "    return o.reshape(len(q), q.shape[2], q.shape[1], -1).swapaxes(1, 2)\n"


def _contributed(asked, operator, outputs, inputs, more):
    bias = _whole(asked, "bias") if "bias" in asked.names else ""
    return asked.define(f"{operator} of ONNX Runtime") + \
        "    import onnx.parser, onnxruntime\n" + _PACKED + \
        _model(asked, f"{outputs} = com.microsoft.{operator}", '"": 21, "com.microsoft": 1',
               {**inputs, "bias": ("float", bias)}, more, _RUNTIME, "o = ") + _UNPACKED


def _multi_head(asked):
    if asked.mask not in ("full", "causal top_left"):
        return None
    inputs = {"q": ("float", "packed(q)"), "k": ("float", "packed(k)"), "v": ("float", "packed(v)"),
              "b": ("", ""), "padding": ("", "")}
    return _contributed(asked, "MultiHeadAttention", "o", inputs, {
        "num_heads": asked.heads, "unidirectional": int(asked.mask != "full")})


def _grouped(asked):
    """The last queries' keys are new, the others the past."""
    window = re.fullmatch(r"window -(\d+)\.\.0 bottom_right", asked.mask)
    if not window and asked.mask != "causal bottom_right":
        return None
    past = asked.keys - asked.queries
    inputs = {"q": ("float", "packed(q)"), "k": ("float", f"packed(k[:, :, {past}:])"),
              "v": ("float", f"packed(v[:, :, {past}:])"),  # then of the past
              "pk": ("float", f"k[:, :, :{past}]" if past else ""),
              "pv": ("float", f"v[:, :, :{past}]" if past else ""),
              "n": ("int32", f'np.full(len(q), {asked.keys - 1}, "i4")'),  # the last key
              "m": ("int32", f'np.array([{asked.keys}], "i4")'), "cos": ("", ""),
              "sin": ("", ""), "ids": ("", "")}
    return _contributed(asked, "GroupQueryAttention", "o, nk, nv", inputs, {
        "num_heads": asked.heads, "kv_num_heads": asked.key_heads,
        **({"local_window_size": int(window[1]) + 1} if window else {})})


def _mlx(asked):
    told = {"": "None", "mask": "mx.array(mask)", "bias": "bias",
            "mask bias": "mx.where(mx.array(mask), bias, -mx.inf)"}
    arrays = ", ".join(["q, k, v", *(["bias"] if "bias" in asked.names else [])])
    mask = told[" ".join(name for name in asked.names if name != "d_o")]
    gradients = ["dQ", "dK", "dV", "dBias"]
    result = "attend(*arrays)" if asked.tensor not in gradients else \
        f"mx.vjp(attend, arrays, [mx.array(d_o)])[1][{gradients.index(asked.tensor)}]"
    return asked.define(f"mlx.core.fast: {asked.tensor}") + f'''\
    import mlx.core as mx
    def attend({arrays}):
        told = {mask}
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=told)
    arrays = [mx.array(x) for x in ({arrays})]
    return np.array({result})
'''


KERNELS = {
    "mlx_attention": _mlx,
    "onnxruntime_mha": _multi_head,
    "onnxruntime_gqa_prompt": _grouped,
    "onnxruntime_gqa_cache": _grouped,
    "onnxruntime_attention": _attention("onnxruntime", _RUNTIME),
    "onnxruntime_attention_24": _attention("onnxruntime", _RUNTIME),
    "onnx_reference": _attention("onnx.reference", _REFERENCE),
}


def filled(script, kernel, tensor):
    """The script with that kernel in it; None where there is none that computes what is asked, or
    it is too long."""
    written = KERNELS[kernel](Asked(script, tensor)) if kernel in KERNELS else None
    if written is None:
        return None
    script = PLACEHOLDER.sub(lambda _: written, script)
    return script if script.count("\n") <= LINES else None
