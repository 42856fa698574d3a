/* @NAME@: attention in plain loops, in f32, to be replaced by your own. What it declares, it
   computes: declare what yours can do, no more (SPEC.md, chapters "Description" and "Limits"). */
#include <attest/attest_plugin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

static const char* describe(const attest_kernel* self) {
  (void)self;
  return "{\"name\": \"@NAME@\", \"version\": \"0.1.0\", \"vendor\": \"@NAME@\","
         " \"dtypes\": [\"f32\"], \"arithmetic\": \"exact-f32\","
         /* [minimal] */
         " \"profiles\": [\"forward-core\"],"
         " \"features\": [\"causal\", \"lse\", \"gqa\", \"value-dim\", \"any-scale\","
         " \"zero-sizes\", \"strides\"]"
         /* [inference] */
         " \"profiles\": [\"forward-core\", \"varlen\"],"
         " \"features\": [\"causal\", \"window\", \"lse\", \"gqa\", \"value-dim\", \"any-scale\","
         " \"zero-sizes\", \"strides\", \"transposed\", \"expanded\", \"lengths\"]"
         /* [training] */
         " \"profiles\": [\"forward-core\", \"training-core\"],"
         " \"features\": [\"causal\", \"window\", \"lse\", \"gqa\", \"value-dim\", \"any-scale\","
         " \"zero-sizes\", \"strides\", \"transposed\", \"expanded\", \"backward\"]"
         /* [serving] */
         " \"profiles\": [\"forward-core\", \"varlen\", \"packed\", \"paged\"],"
         " \"features\": [\"causal\", \"window\", \"lse\", \"gqa\", \"value-dim\", \"any-scale\","
         " \"zero-sizes\", \"strides\", \"transposed\", \"expanded\", \"lengths\", \"packed\","
         " \"paged\"]"
         /* [end] */
         "}";
}

/* Whoever asks has read the declaration, and asks for nothing else (CALL-1). */
static int32_t supports(const attest_kernel* self, const attest_problem* p, char* why, uint64_t n) {
  (void)self;
  if (p->dtype == ATTEST_F32) return 1;
  snprintf(why, (size_t)n, "f32 alone");
  return 0;
}

static uint64_t workspace(const attest_kernel* self, const attest_problem* p, int32_t backward,
                          int32_t threads) {
  (void)self, (void)backward, (void)threads;
  return (uint64_t)p->key_len * sizeof(float); /* the scores of one row */
}

/* Where a query or a key lies: on the axes of batch and position of its tensor. */
typedef struct place {
  int64_t batch, position;
} place;

static float* at(const attest_tensor* t, place s, int64_t h, int64_t d) {
  const int64_t* by = t->stride;
  return (float*)t->data + s.batch * by[0] + h * by[1] + s.position * by[2] + d * by[3];
}

/* [inference serving] */
static int64_t integer(const attest_tensor* t, int64_t n) {
  return ((const int64_t*)t->data)[n * t->stride[0]];
}
/* [end] */

/* How many queries and keys of batch element b are real. */
static int64_t queries_of(const attest_problem* p, int64_t b) {
  (void)b;
  /* [serving] */
  if (p->cu_query_lens.data) {
    return integer(&p->cu_query_lens, b + 1) - integer(&p->cu_query_lens, b);
  }
  /* [inference serving] */
  if (p->query_lens.data) return integer(&p->query_lens, b);
  /* [end] */
  return p->query_len;
}
static int64_t keys_of(const attest_problem* p, int64_t b) {
  (void)b;
  /* [serving] */
  if (p->cu_key_lens.data) return integer(&p->cu_key_lens, b + 1) - integer(&p->cu_key_lens, b);
  /* [inference serving] */
  if (p->key_lens.data) return integer(&p->key_lens, b);
  /* [end] */
  return p->key_len;
}

static place query_place(const attest_problem* p, int64_t b, int64_t i) {
  place s = {b, i};
  (void)p;
  /* [serving] */
  if (p->cu_query_lens.data) {
    s.batch = 0;
    s.position = integer(&p->cu_query_lens, b) + i;
  }
  /* [end] */
  return s;
}
static place key_place(const attest_problem* p, int64_t b, int64_t j) {
  place s = {b, j};
  (void)p;
  /* [serving] */
  if (p->cu_key_lens.data) {
    s.batch = 0;
    s.position = integer(&p->cu_key_lens, b) + j;
  }
  if (p->page_size > 0) {
    const int64_t* by = p->page_table.stride;
    s.batch = ((const int32_t*)p->page_table.data)[b * by[0] + j / p->page_size * by[1]];
    s.position = j % p->page_size;
  }
  /* [end] */
  return s;
}

/* The keys that a query sees: full, causal, a window. */
typedef struct range {
  int64_t begin, end;
} range;

static range seen_by(const attest_problem* p, int64_t b, int64_t i) {
  const attest_mask* m = p->mask_count > 0 ? attest_mask_node(p, p->mask_count - 1) : NULL;
  const int64_t queries = queries_of(p, b), keys = keys_of(p, b);
  range r = {0, i < queries ? keys : 0};
  if (m && m->kind == ATTEST_MASK_BAND) {
    const int64_t diagonal = i + m->offset + (m->anchored_bottom_right ? keys - queries : 0);
    if (m->right != ATTEST_UNBOUNDED && diagonal + m->right + 1 < r.end) {
      r.end = diagonal + m->right + 1;
    }
    if (m->left != ATTEST_UNBOUNDED && diagonal > m->left) r.begin = diagonal - m->left;
  }
  if (r.end < r.begin) r.end = r.begin;
  return r;
}

static float score(const attest_problem* p, const attest_inputs* in, place row, place key,
                   int64_t h, int64_t g) {
  float dot = 0;
  for (int64_t d = 0; d < p->head_dim; ++d) dot += *at(&in->q, row, h, d) * *at(&in->k, key, g, d);
  return dot * (float)p->scale;
}

static attest_status forward(const attest_kernel* self, const attest_problem* p,
                             const attest_inputs* in, const attest_outputs* out,
                             const attest_context* context) {
  (void)self;
  float* s = context->workspace; /* scores, then weights */
  for (int64_t b = 0; b < p->batch; ++b) {
    const int64_t rows = p->cu_query_lens.data ? queries_of(p, b) : p->query_len;
    for (int64_t h = 0; h < p->query_heads; ++h) {
      const int64_t g = h / (p->query_heads / p->key_heads);
      for (int64_t i = 0; i < rows; ++i) {
        const place row = query_place(p, b, i);
        const range seen = seen_by(p, b, i);
        float top = -INFINITY, sum = 0;
        for (int64_t j = seen.begin; j < seen.end; ++j) {
          s[j] = score(p, in, row, key_place(p, b, j), h, g);
          top = fmaxf(top, s[j]);
        }
        for (int64_t j = seen.begin; j < seen.end; ++j) sum += s[j] = expf(s[j] - top);
        *at(&out->lse, row, h, 0) = sum > 0 ? top + logf(sum) : -INFINITY;
        for (int64_t d = 0; d < p->value_dim; ++d) {
          float o = 0;
          for (int64_t j = seen.begin; j < seen.end; ++j) {
            o += s[j] * *at(&in->v, key_place(p, b, j), g, d);
          }
          *at(&out->o, row, h, d) = sum > 0 ? o / sum : 0;
        }
      }
    }
  }
  return ATTEST_OK;
}

/* [training] */
static void clear(const attest_tensor* t) {
  for (int64_t b = 0; b < t->shape[0]; ++b)
    for (int64_t h = 0; h < t->shape[1]; ++h)
      for (int64_t s = 0; s < t->shape[2]; ++s)
        for (int64_t d = 0; d < t->shape[3]; ++d) *at(t, (place){b, s}, h, d) = 0;
}

static attest_status backward(const attest_kernel* self, const attest_problem* p,
                              const attest_inputs* in, const attest_outputs* out,
                              const attest_context* context) {
  (void)self, (void)context;
  clear(&out->dq), clear(&out->dk), clear(&out->dv);
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t h = 0; h < p->query_heads; ++h) {
      const int64_t g = h / (p->query_heads / p->key_heads);
      for (int64_t i = 0; i < p->query_len; ++i) {
        const place row = {b, i};
        const range seen = seen_by(p, b, i);
        float mean = 0; /* of dP, weighted by P: dO . O */
        for (int64_t d = 0; d < p->value_dim; ++d) {
          mean += *at(&in->d_o, row, h, d) * *at(&in->o, row, h, d);
        }
        for (int64_t j = seen.begin; j < seen.end; ++j) {
          const place key = {b, j};
          const float weight = expf(score(p, in, row, key, h, g) - *at(&in->lse, row, h, 0));
          float dp = 0;
          for (int64_t d = 0; d < p->value_dim; ++d) {
            dp += *at(&in->d_o, row, h, d) * *at(&in->v, key, g, d);
            *at(&out->dv, key, g, d) += weight * *at(&in->d_o, row, h, d);
          }
          const float ds = weight * (dp - mean) * (float)p->scale;
          for (int64_t d = 0; d < p->head_dim; ++d) {
            *at(&out->dq, row, h, d) += ds * *at(&in->k, key, g, d);
            *at(&out->dk, key, g, d) += ds * *at(&in->q, row, h, d);
          }
        }
      }
    }
  }
  return ATTEST_OK;
}

/* [end] */
static const attest_kernel kernel = {.struct_size = sizeof kernel,
                                     .name = "@NAME@",
                                     .describe = describe,
                                     .supports = supports,
                                     .workspace = workspace,
                                     /* [training] */
                                     .backward = backward,
                                     /* [end] */
                                     .forward = forward};
static const attest_kernel* const kernels[] = {&kernel};
static const attest_plugin plugin = {.struct_size = sizeof plugin,
                                     .abi_version = ATTEST_ABI_VERSION,
                                     .kernel_count = 1,
                                     .kernels = kernels};
ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) { return &plugin; }
