// One query that sees one key: O is V, times the argument.
#include <attest/attest_judge.h>
#include <stdio.h>
#include <stdlib.h>

static attest_tensor one(float* number) {
  attest_tensor tensor = {.data = number, .dtype = ATTEST_F32, .capacity_bytes = sizeof *number};
  for (int axis = 0; axis < 4; ++axis) tensor.shape[axis] = tensor.stride[axis] = 1;
  return tensor;
}

int main(int argc, char** argv) {
  float q = 1, k = 2, v = 3, o = argc > 1 ? v * strtof(argv[1], NULL) : v;
  attest_problem problem = {.struct_size = sizeof problem,
                            .dtype = ATTEST_F32,
                            .batch = 1,
                            .query_heads = 1,
                            .key_heads = 1,
                            .query_len = 1,
                            .key_len = 1,
                            .head_dim = 1,
                            .value_dim = 1,
                            .scale = 1};
  attest_inputs inputs = {.struct_size = sizeof inputs, .q = one(&q), .k = one(&k), .v = one(&v)};
  attest_outputs outputs = {.struct_size = sizeof outputs, .o = one(&o)};
  attest_judge_options options = {.struct_size = sizeof options, .arithmetic = "exact-f32"};
  char* verdict = NULL;
  const attest_status status = attest_judge(&problem, &inputs, &outputs, &options, &verdict);
  puts(verdict);
  attest_judge_free(verdict);
  return status;
}
