# GroupQueryAttention of ONNX Runtime: local_window_size, a number of 64 bits, is cut to 32.
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

q, k = np.ones((1, 3, 8), np.float32), np.ones((1, 3, 8), np.float32)
v = np.array([1, 2, 3], np.float32).reshape(1, 3, 1) * np.ones(8, np.float32)
given = {"q": q, "k": k, "v": v, "lengths": np.array([2], np.int32), "total": np.array([3], np.int32)}
node = helper.make_node(
    "GroupQueryAttention", ["q", "k", "v", "", "", "lengths", "total"], ["o", "pk", "pv"],
    domain="com.microsoft", num_heads=1, kv_num_heads=1, local_window_size=2**32 + 1)
infos = [helper.make_tensor_value_info(
    name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in given.items()]
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
model = helper.make_model(helper.make_graph([node], "attention", infos, ends), ir_version=10,
                          opset_imports=[helper.make_opsetid("", 21),
                                         helper.make_opsetid("com.microsoft", 1)])
o = onnxruntime.InferenceSession(model.SerializeToString()).run(["o"], given)[0]
print(f"O[0, 2, 0] = {o[0, 2, 0]}, exact 2: the last query sees all three keys")
assert abs(o[0, 2, 0] - 2) <= 1e-6
