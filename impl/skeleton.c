/* The smallest plug-in: attention as SPEC.md begins, in plain loops; f32, forward, full or causal.
 *     cc -std=c11 -O2 -shared -fPIC -I. impl/skeleton.c -o skeleton.so -lm
 *     attest run --testee ./skeleton.so --tier smoke */
#include <math.h>
#include <stdio.h>

#include "spec/attest_plugin.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"      /* the contract says what they are given */
static const char* describe(const attest_kernel* self) { /* SPEC.md, chapter Description */
  return "{\"name\": \"plain\", \"version\": \"1\", \"vendor\": \"mine\", \"dtypes\": [\"f32\"],"
         " \"profiles\": [\"forward-core\"], \"features\": [\"lse\", \"causal\", \"gqa\","
         " \"value-dim\", \"zero-sizes\", \"strides\", \"any-scale\"]}";
}
static int32_t supports(const attest_kernel* self, const attest_problem* p, char* why, uint64_t n) {
  const attest_mask* m = p->mask_count > 0 ? attest_mask_node(p, p->mask_count - 1) : NULL;
  int yes = p->dtype == ATTEST_F32 && !p->backward && p->query_len <= 16384 && p->key_len <= 16384;
  yes &= !p->query_lens.data && !p->key_lens.data && !p->cu_query_lens.data && p->page_size == 0;
  yes &= p->softcap == 0 && !p->has_bias && !p->has_alibi && !p->has_sink && !p->dropout;
  if (m && m->kind) yes &= m->kind == ATTEST_MASK_BAND && m->left == ATTEST_UNBOUNDED && !m->right;
  if (!yes) snprintf(why, (size_t)n, "%s has f32, forward, full or causal alone", self->name);
  return yes; /* to whatever is declared, and to nothing else (CALL-1) */
}
static uint64_t workspace(const attest_kernel* k, const attest_problem* p, int32_t b, int32_t n) {
  return (uint64_t)p->key_len * sizeof(float); /* the scores of one row */
}
static float* at(const attest_tensor* t, int64_t b, int64_t h, int64_t s, int64_t c) {
  const int64_t* by = t->stride;
  return (float*)t->data + b * by[0] + h * by[1] + s * by[2] + c * by[3]; /* LAYOUT-1 */
}
static attest_status run(const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                         const attest_outputs* out, const attest_context* context) {
  const attest_mask* m = p->mask_count > 0 ? attest_mask_node(p, p->mask_count - 1) : NULL;
  for (int64_t row = 0; row < p->batch * p->query_heads * p->query_len; ++row) {
    const int64_t i = row % p->query_len, h = row / p->query_len % p->query_heads; /* HEAD-1 */
    const int64_t b = row / p->query_len / p->query_heads, g = h * p->key_heads / p->query_heads;
    int64_t end = p->key_len; /* j in 0..end are visible: MASK-1 to MASK-3 */
    if (m && m->kind) end = i + 1 + m->offset + (m->anchored_bottom_right ? end - p->query_len : 0);
    if (end > p->key_len) end = p->key_len;
    float top = -INFINITY, sum = 0, o, *s = context->workspace;
    for (int64_t j = 0; j < end; ++j) {
      s[j] = 0; /* SCORE-1 */
      for (int c = 0; c < p->head_dim; ++c)
        s[j] += *at(&in->q, b, h, i, c) * *at(&in->k, b, g, j, c);
      top = fmaxf(top, s[j] *= (float)p->scale);
    }
    for (int64_t j = 0; j < end; ++j) sum += s[j] = expf(s[j] - top);   /* SOFTMAX-2 */
    *at(&out->lse, b, h, i, 0) = end > 0 ? top + logf(sum) : -INFINITY; /* LSE-1, EMPTY-2 */
    for (int64_t c = 0, j; c < p->value_dim; ++c) {
      for (o = 0, j = 0; j < end; ++j) o += s[j] * *at(&in->v, b, g, j, c); /* SOFTMAX-1 */
      *at(&out->o, b, h, i, c) = end > 0 ? o / sum : 0;                     /* EMPTY-1 */
    }
  }
  return ATTEST_OK;
}
/* clang-format off */
static const attest_kernel me = {.struct_size = sizeof me, .name = "plain", .describe = describe,
    .supports = supports, .workspace = workspace, .forward = run}, *const all[] = {&me};
static const attest_plugin plugin = {sizeof plugin, ATTEST_ABI_VERSION, 1, all, NULL, 0, 0};
ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) { return &plugin; }
