"""Kernels of libraries for which attest repro --as has no language: what a script in NumPy has in
place of its kernel. None needs more than the library."""
import re

PLACEHOLDER = re.compile(r"def kernel\(.*\n    raise NotImplementedError.*\n")

# A graph of one node on the arrays named; an empty name is an input left out.
_ONE_NODE = '''\
    names = [name if given[name] is not None else "" for name in given]
    given = {name: np.ascontiguousarray(x) for name, x in given.items() if x is not None}
    node = helper.make_node(OPERATOR, names, OUTPUTS, domain=DOMAIN, **told)
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for name, x in given.items()]
    ends = [helper.make_tensor_value_info(name, 1, None) for name in OUTPUTS]
    model = helper.make_model(helper.make_graph([node], "g", infos, ends), ir_version=10,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)])
    o = RUN
'''
_RUNTIME = 'onnxruntime.InferenceSession(model.SerializeToString()).run(OUTPUTS[:1], given)[0]'
_PACKED = "x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)"


def _node(operator, outputs, opset, run, domain=""):
    text = _ONE_NODE
    for name, value in (("RUN", run), ("OPERATOR", f'"{operator}"'), ("OUTPUTS", str(outputs)),
                        ("DOMAIN", f'"{domain}"'), ("OPSET", str(opset))):
        text = text.replace(name, value)
    return text


def _contributed(operator, given, told, outputs):
    return f'''\
def kernel(q, k, v, *others, scale, softcap=0.0):  # {operator} of ONNX Runtime
    import onnxruntime
    from onnx import helper
    mask = next((x for x in others if x.dtype == bool), None)
    bias = next((np.broadcast_to(x, (*x.shape[:2], q.shape[2], k.shape[2])) for x in others
                 if x.dtype != bool), None)
    packed, past = lambda x: {_PACKED}, k.shape[2] - q.shape[2]
    given = {given}
    told = {told}
''' + _node(operator, outputs, 21, _RUNTIME, "com.microsoft") + '''\
    return o.reshape(len(q), q.shape[2], q.shape[1], -1).swapaxes(1, 2)
'''


def _attention(library, opset, run):
    return f'''\
def kernel(q, k, v, *others, scale, softcap=0.0):  # Attention of opset {opset}, by {library}
    import {library}
    from onnx import helper
    mask = next((x for x in others if x.dtype == bool), None)
    bias = next((x for x in others if x.dtype != bool), None)
    causal = mask is not None and np.array_equal(mask[0, 0], np.tri(*mask.shape[2:], dtype=bool))
    given = {{"q": q, "k": k, "v": v, "mask": mask if bias is None and not causal else bias}}
    told = {{"scale": float(scale), "softcap": float(softcap), "is_causal": int(causal)}}
''' + _node("Attention", ["o"], opset, run) + "    return o\n"


_GROUPED = _contributed("GroupQueryAttention", '''\
{"q": packed(q), "k": packed(k[:, :, past:]), "v": packed(v[:, :, past:]),
             "past_k": k[:, :, :past] if past else None, "past_v": v[:, :, :past] if past else None,
             "lengths": np.full(len(q), k.shape[2] - 1, "i4"), "total": np.array([k.shape[2]], "i4"),
             "cos": None, "sin": None, "ids": None, "bias": bias}''', '''\
{"num_heads": q.shape[1], "kv_num_heads": k.shape[1], "scale": float(scale),
            "softcap": float(softcap)}''', ["o", "present_k", "present_v"])

KERNELS = {
    "mlx_attention": '''\
def kernel(q, k, v, *others, scale, softcap=0.0):  # mlx.core.fast: TENSOR
    import mlx.core as mx
    d_o = others[0] if "TENSOR" not in ("O", "LSE") else None
    mask = next((mx.array(x) for x in others if x.dtype == bool), None)
    biases = [mx.array(x) for x in others if x.dtype != bool and x is not d_o]
    def attend(q, k, v, *bias):
        told = bias[0] if bias else mask
        if bias and mask is not None:
            told = mx.where(mask, bias[0], -mx.inf)
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=told)
    arrays = [mx.array(x) for x in (q, k, v)] + biases
    if d_o is None:
        return np.array(attend(*arrays))
    gradients = mx.vjp(attend, arrays, [mx.array(d_o)])[1]
    return np.array(gradients[["dQ", "dK", "dV", "dBias"].index("TENSOR")])
''',
    "onnxruntime_mha": _contributed("MultiHeadAttention", '''\
{"q": packed(q), "k": packed(k), "v": packed(v), "b": None, "p": None, "bias": bias}''', '''\
{"num_heads": q.shape[1], "scale": float(scale), "unidirectional": int(mask is not None)}''', ["o"]),
    "onnxruntime_gqa_prompt": _GROUPED,
    "onnxruntime_gqa_cache": _GROUPED,
    "onnxruntime_attention": _attention("onnxruntime", 23, _RUNTIME),
    "onnxruntime_attention_24": _attention("onnxruntime", 23, _RUNTIME),
    "onnx_reference": _attention("onnx.reference", 23,
                                 "onnx.reference.ReferenceEvaluator(model).run(None, given)[0]"),
}


def filled(script, kernel, tensor):
    """The script with that kernel in it; None where there is none for it."""
    if kernel not in KERNELS:
        return None
    return PLACEHOLDER.sub(lambda _: KERNELS[kernel].replace("TENSOR", tensor), script)
