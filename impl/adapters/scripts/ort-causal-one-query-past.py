# Attention of ONNX by ONNX Runtime: is_causal is ignored at one query with a past and several new
# keys. The query stands behind the past of one key, so it sees that and the first new one.
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

q, k = np.ones((1, 1, 1, 8), np.float32), np.ones((1, 1, 3, 8), np.float32)
v = np.array([2, 3, 9], np.float32).reshape(1, 1, 3, 1) * np.ones(8, np.float32)
given = {"q": q, "k": k, "v": v, "past_k": k[:, :, :1], "past_v": 0 * k[:, :, :1] + 1}
node = helper.make_node("Attention", ["q", "k", "v", "", "past_k", "past_v"],
                        ["o", "present_k", "present_v"], is_causal=1)
infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape)
         for name, x in given.items()]
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
model = helper.make_model(helper.make_graph([node], "attention", infos, ends), ir_version=10,
                          opset_imports=[helper.make_opsetid("", 24)])
o = onnxruntime.InferenceSession(model.SerializeToString()).run(["o"], given)[0]
print(f"O[0, 0, 0, 0] = {o[0, 0, 0, 0]}, exact 1.5: of the past key and the first new one")
assert abs(o[0, 0, 0, 0] - 1.5) <= 1e-6
