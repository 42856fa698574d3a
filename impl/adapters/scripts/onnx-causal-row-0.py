# Attention by ONNX's reference: with a mask of one row, is_causal hides from all queries what it
# hides from the first.
import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

q = k = np.ones((1, 1, 2, 8), np.float32)
v = np.array([1, 2], np.float32).reshape(1, 1, 2, 1) * np.ones(8, np.float32)
given = {"q": q, "k": k, "v": v, "mask": np.ones((1, 1, 1, 2), bool)}  # nothing is masked by it
node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["o"], is_causal=1)
infos = [helper.make_tensor_value_info(
    name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in given.items()]
graph = helper.make_graph([node], "attention", infos, [
    helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])
model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 23)])
o = ReferenceEvaluator(model).run(None, given)[0]
print(f"O[0, 0, 1, 0] = {o[0, 0, 1, 0]}, exact 1.5: the second query sees both keys")
assert abs(o[0, 0, 1, 0] - 1.5) <= 1e-6
