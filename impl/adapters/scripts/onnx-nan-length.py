# Attention by ONNX's reference: NaN beyond nonpad_kv_seqlen reaches O, through 0 times NaN.
import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

q = k = np.ones((1, 1, 3, 8), np.float32)
v = np.array([1, 2, np.nan], np.float32).reshape(1, 1, 3, 1) * np.ones(8, np.float32)
given = {"q": q, "k": k, "v": v, "lengths": np.array([2], np.int64)}
node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "lengths"], ["o"])
infos = [helper.make_tensor_value_info(
    name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in given.items()]
graph = helper.make_graph([node], "attention", infos, [
    helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])
model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 24)])
o = ReferenceEvaluator(model).run(None, given)[0]
print(f"O[0, 0, 0, 0] = {o[0, 0, 0, 0]}, exact 1.5: the mean of the two keys within the length")
assert abs(o[0, 0, 0, 0] - 1.5) <= 1e-6
