"""The operator Attention of ONNX (opset 25; of 23 and 24 without windows), as a problem says it.

Source: the operator's text (Operators.md, Attention), and onnx/reference/ops/op_attention.py.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper

TYPES = {"f64": TensorProto.DOUBLE, "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16,
         "bf16": TensorProto.BFLOAT16}
OPSET = onnx.defs.get_schema("Attention").since_version  # 23; 24: key lengths; 25: windows


def features(opset):
    return ["causal", "dense-mask", "mask-and", "softcap", "bias", "gqa", "value-dim",
            *(["lengths"] if opset >= 24 else []), *(["window"] if opset >= 25 else [])]


def limits(opset):
    """A diagonal lies at the top left, moved by the length of the past, which is not negative;
    with nonpad_kv_seqlen at the bottom right."""
    told = {"masks": ["full", "causal", "dense-mask"], "mask_offset": {"min": 0}}
    if opset == 23:
        return {**told, "masks": ["full", "causal top_left", "dense-mask"]}
    bands, below = ["causal top_left"], ["causal bottom_right"]
    if opset >= 25:
        told["masks"].append("window")
        bands, below = [*bands, "window top_left"], [*below, "window bottom_right"]
    return {**told, "lengths": ["key"],
            "never": [{"masks": below, "mask_offset": {"min": 1}},
                      {"masks": bands, "lengths": ["key"]}]}


def parts(mask):
    return [each for part in mask.parts for each in parts(part)] if mask.kind == "all_of" else [
        mask]


def whole(table, p):
    """Of all queries and keys."""
    return np.broadcast_to(table, (*table.shape[:2], p.query_len, p.key_len))


def as_given(table, p):
    """"attn_mask must be broadcastable", but for the keys: a shorter last axis is padded."""
    return np.broadcast_to(table, (*table.shape[:3], p.key_len))


class Call:
    """Inputs by the operator's names, and its attributes; an attn_mask is `shaped` first."""

    def __init__(self, p, q, k, v, shaped=as_given):
        self.attributes = {"scale": float(p.scale)}
        self.inputs = {"Q": q, "K": k, "V": v}
        if p.softcap:
            self.attributes["softcap"] = float(p.softcap)
        lengths = p.key_lengths
        bands = [part for part in parts(p.mask) if part.kind == "band"]
        if {part.anchor for part in bands} == {"bottom_right"} and lengths is None:
            lengths = np.full(p.batch, p.key_len, np.int64)
        for part in parts(p.mask):
            if part.kind == "dense":
                self._mask(shaped(part.table, p))
        if len({(part.anchor, part.offset) for part in bands}) > 1 or any(
                part.offset > p.key_len for part in bands):
            self._mask(shaped(p.visible(), p))  # there is one diagonal, and a past within the keys
        else:
            for part in bands:
                self._band(part)
            if bands and bands[0].offset:
                self._past(bands[0].offset)
        if p.bias is not None:
            self._add(shaped(p.bias, p))
        if lengths is not None:
            self.inputs["nonpad_kv_seqlen"] = np.asarray(lengths, np.int64)

    def _mask(self, table):
        given = self.inputs.get("attn_mask")
        self.inputs["attn_mask"] = table if given is None else given & table

    def _add(self, bias):
        given = self.inputs.get("attn_mask")
        hidden = np.asarray(-np.inf, bias.dtype)
        self.inputs["attn_mask"] = bias if given is None else np.where(given, bias, hidden)

    def _band(self, part):
        if part.left is None and part.right == 0:
            self.attributes["is_causal"] = 1
        else:
            for side, end in (("left", part.left), ("right", part.right)):
                ends = [each for each in (end, self.attributes.get(f"{side}_window_size"))
                        if each not in (None, -1)]
                self.attributes[f"{side}_window_size"] = min(ends, default=-1)

    def _past(self, length):
        """The first keys are the past, the rest are new."""
        for name, past in (("K", "past_key"), ("V", "past_value")):
            cache = self.inputs[name]
            self.inputs[past], self.inputs[name] = cache[:, :, :length], cache[:, :, length:]

    def model(self, dtype, opset):
        """A graph of the one node; sizes are not told to it."""
        names = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
        given = [name if name in self.inputs else "" for name in names]
        while not given[-1]:
            given.pop()
        outputs = ["Y"] + (["present_key", "present_value"] if "past_key" in self.inputs else [])
        node = helper.make_node("Attention", given, outputs, **self.attributes)
        kinds = {"nonpad_kv_seqlen": TensorProto.INT64}
        if self.inputs.get("attn_mask", np.zeros(0)).dtype == bool:
            kinds["attn_mask"] = TensorProto.BOOL
        infos = [helper.make_tensor_value_info(
            name, kinds.get(name, TYPES[dtype]), [None] * self.inputs[name].ndim)
            for name in names if name in self.inputs]
        results = [helper.make_tensor_value_info(name, TYPES[dtype], [None] * 4)
                   for name in outputs]
        graph = helper.make_graph([node], "attention", infos, results)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                 ir_version=10)

    @property
    def key(self):
        """What the model depends on."""
        return (*sorted(self.attributes.items()),
                *((name, value.dtype.name, value.ndim) for name, value in self.inputs.items()))
