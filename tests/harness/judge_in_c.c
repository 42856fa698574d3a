/* attest_judge() in C11, with nothing of ours but the installed headers and libattest: a right
 * output passes, a wrong one fails, and what is malformed is told. */
#include <stdio.h>
#include <string.h>

#include "spec/attest_judge.h"

enum { kKeys = 3 };

static attest_tensor tensor(float* data, int64_t positions, int64_t channels) {
  attest_tensor t = {0};
  t.data = data;
  t.dtype = ATTEST_F32;
  t.shape[0] = t.shape[1] = 1;
  t.shape[2] = positions;
  t.shape[3] = channels;
  t.stride[2] = channels;
  t.stride[3] = 1;
  t.capacity_bytes = sizeof(float) * (uint64_t)(positions * channels);
  return t;
}

/* Whether the verdict on `o` has the status and holds the text. */
static int expect(float o, int64_t heads, attest_status wanted, const char* text) {
  float q = 0, k[kKeys] = {1, 2, 3}, v[kKeys] = {1, 2, 6};
  attest_problem problem = {0};
  problem.struct_size = sizeof problem;
  problem.dtype = ATTEST_F32;
  problem.batch = problem.query_heads = problem.query_len = 1;
  problem.key_heads = heads;
  problem.key_len = kKeys;
  problem.head_dim = problem.value_dim = 1;
  problem.scale = 1;
  attest_inputs inputs = {0};
  inputs.struct_size = sizeof inputs;
  inputs.q = tensor(&q, 1, 1);
  inputs.k = tensor(k, kKeys, 1);
  inputs.v = tensor(v, kKeys, 1);
  attest_outputs outputs = {0};
  outputs.struct_size = sizeof outputs;
  outputs.o = tensor(&o, 1, 1);
  const attest_judge_options options = {sizeof options, "exact-f32", 0, 0, 0};
  char* verdict = NULL;
  const attest_status status = attest_judge(&problem, &inputs, &outputs, &options, &verdict);
  const int as_wanted = status == wanted && verdict && strstr(verdict, text);
  if (!as_wanted) printf("%g: %s\n", (double)o, verdict ? verdict : "nothing");
  attest_judge_free(verdict);
  return as_wanted;
}

int main(void) {
  return expect(3, 1, ATTEST_OK, "\"outcome\":\"PASS\"") &&
                 expect(3.001f, 1, ATTEST_OK, "O[0,0,0,0] = 3.00") &&
                 expect(3, 2, ATTEST_ERROR, "2 key heads do not divide 1 query heads")
             ? 0
             : 1;
}
