# Attention by ONNX's reference: with a past, is_causal hides the past's keys as if they were new.
# The query stands behind the past of two keys, so it sees those and the new one.
import numpy as np
import onnx.parser
from onnx.reference import ReferenceEvaluator

q = np.ones((1, 1, 1, 8), np.float32)
past_v = np.array([2, 3], np.float32).reshape(1, 1, 2, 1) * np.ones(8, np.float32)
given = {"q": q, "k": q, "v": 4 * q, "past_k": np.ones((1, 1, 2, 8), np.float32), "past_v": past_v}
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 23]> g (float[] q, float[] k, float[] v, float[] past_k, '
    'float[] past_v) => (float[] o) '
    '{ o, new_k, new_v = Attention<is_causal = 1>(q, k, v, , past_k, past_v) }')
o = ReferenceEvaluator(model).run(None, given)[0]
print(f"O[0, 0, 0, 0] = {o[0, 0, 0, 0]}, exact 3: of both past keys and the new one")
assert abs(o[0, 0, 0, 0] - 3) <= 1e-6
