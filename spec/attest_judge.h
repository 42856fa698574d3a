/* The oracle: outputs that somebody's kernel has computed already, judged in the process that has
 * them. No plug-in, no worker, no declaration:
 *
 *   attest_judge_options options = {sizeof(options), "gpu-16bit", 0, 0, 0};
 *   char* verdict;
 *   attest_status status = attest_judge(&problem, &inputs, &outputs, &options, &verdict);
 *   puts(verdict);
 *   attest_judge_free(verdict);
 *
 * Problem, inputs and outputs are the structs of attest_plugin.h, filled as a plug-in would find
 * them; what of the outputs is absent is not judged. Every element is held to its exact value and
 * bound (NUM-1). All memory is read only, in any layout whose strides are not negative.
 */
#ifndef ATTEST_JUDGE_H_
#define ATTEST_JUDGE_H_

#include "attest_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attest_judge_options {
  size_t struct_size;
  /* What arithmetic the kernel has, from which the bounds follow. One of five names (NUMERICS.md,
   * section 9): "exact-f32", "gpu-16bit", "gpu-tf32", "npu-16bit", "anything". Or JSON: a whole
   * description, its value of "arithmetic", or that of one format (SPEC.md, chapter
   * "Description"). */
  const char* arithmetic;
  int32_t threads; /* how many may compute; 0: as many as there are processors */
  /* Whether rows beyond a query length may hold anything, as kernels leave them that do not write
   * padding (MASK-15). Else they are judged by MASK-6. */
  int32_t ignores_padding;
  int32_t skips_diagnosis; /* whether a failure is not asked which mistake would explain it */
} attest_judge_options;

/* Judges, and points `verdict` to a JSON text, 0-terminated, for attest_judge_free.
 *
 * ATTEST_OK: the verdict, as records have it (SPEC.md, chapter "Records"): `outcome`, `message`,
 * `blamed`, `clauses`, and of each tensor in `tensors` its worst element [batch, head, position,
 * channel], actual, exact, bound, max_ratio and the count of unspecified elements. Besides:
 *   passed        whether outcome is PASS or WARN; INCONCLUSIVE is no pass
 *   title         of the clause blamed, in a few words; "" if nothing is
 *   did_you_mean  which common mistake gives exactly these outputs, or else which keys of an
 *                 arithmetic would admit them; "" if none is known, or if finding it takes more
 *                 than 5 s
 *   sampled       how much was compared, where sizes are too large for all; "" where all was
 *   unspecified   how many elements of all tensors may be anything
 *   problem, arithmetic    what was judged, and what of the arithmetic goes beyond the default, in
 *                          words
 *
 * A bias of half of the least number of its format, or less, hides its key as -inf does where the
 * row sees another; of a row that sees nothing else, anything may stand there. What zeros would
 * pass for too, in O or a gradient of a batch element, is INCONCLUSIVE.
 *
 * ATTEST_ERROR: {"error": {"where": "inputs.k", "what": "..."}}; nothing was judged. Whatever the
 * arguments hold, short of memory that is not there, comes back as that.
 *
 * `inputs->o`, `lse`, `maximum` and `sum` are not looked at: gradients are held to those of the
 * exact forward pass, and outputs->o and lse are judged before them if they are there. A keep-mask
 * that the kernel drew (outputs->keep) is taken as given. The 8-bit formats are not judged. */
ATTEST_EXPORT attest_status attest_judge(const attest_problem* problem, const attest_inputs* inputs,
                                         const attest_outputs* outputs,
                                         const attest_judge_options* options, char** verdict);

/* Releases a text of attest_judge; NULL is allowed. */
ATTEST_EXPORT void attest_judge_free(char* verdict);

#ifdef __cplusplus
}
#endif

#endif /* ATTEST_JUDGE_H_ */
