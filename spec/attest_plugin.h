/* The plug-in contract: how any kernel presents itself to Attest (SPEC.md, chapter "Contract").
 *
 * A plug-in is a shared library with one exported function, attest_plugin_get. It returns a table
 * of kernels; a kernel is a handful of functions. Everything here is C11: no C++ type, no exception
 * and no ownership crosses this border. All memory belongs to the caller and is valid only during
 * the call; strings that a plug-in returns live as long as the plug-in.
 *
 * Growth. Each struct begins with its own size in bytes, as its maker knew it. A reader uses only
 * the fields that lie within that size, so fields can be added at the end without a new version.
 * ATTEST_ABI_VERSION changes only when an existing field changes its meaning.
 *
 * Tensors have four axes: batch, head, position, channel. Addresses follow from strides alone,
 * which are counted in elements; the stride of an axis of size 1 means nothing and must not be
 * used. A tensor whose data is NULL is absent, unless one of its sizes is 0.
 */
#ifndef ATTEST_PLUGIN_H_
#define ATTEST_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTEST_ABI_VERSION 1u

#if defined(_WIN32)
#define ATTEST_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define ATTEST_EXPORT __attribute__((visibility("default")))
#else
#define ATTEST_EXPORT
#endif

/* ---- Numbers and tensors ----------------------------------------------------------------------
 */

typedef int32_t attest_dtype;
enum {
  ATTEST_F64 = 1,
  ATTEST_F32 = 2,
  ATTEST_F16 = 3,
  ATTEST_BF16 = 4,
  ATTEST_FP8_E4M3 = 5, /* finite only, largest 448 */
  ATTEST_FP8_E5M2 = 6,
  /* 7 was bfp8, which is int8 with scales now (FORMAT-6). */
  ATTEST_INT8 = 8, /* two's complement, with scales */
  ATTEST_U8 = 16,  /* booleans: 0 or 1 */
  ATTEST_I32 = 17,
  ATTEST_I64 = 18,
  ATTEST_BITS = 19 /* one bit an element, the lowest bit of a byte first */
};

typedef struct attest_tensor {
  void* data; /* the element at position (0, 0, 0, 0) */
  attest_dtype dtype;
  int32_t reserved;        /* 0 */
  int64_t shape[4];        /* batch, head, position, channel, or as each use below says */
  int64_t stride[4];       /* in elements; 0 for an expanded axis */
  uint64_t capacity_bytes; /* what may be read (and, of outputs, written) from data on */
} attest_tensor;

/* ---- The problem ------------------------------------------------------------------------------
 */

#define ATTEST_UNBOUNDED INT64_MAX

typedef int32_t attest_mask_kind;
enum {
  ATTEST_MASK_FULL = 0,
  ATTEST_MASK_BAND = 1,   /* causal, window */
  ATTEST_MASK_DENSE = 2,  /* table: u8 [B or 1, Hq or 1, Sq or 1, Sk or 1]; 1 attends */
  ATTEST_MASK_PREFIX = 3, /* key < table[b]: i64 [B or 1, 1, 1, 1] */
  ATTEST_MASK_SEGMENTS =
      4, /* table[b, query] == table2[b, key], both >= 0: i32 [B or 1, 1, S, 1] */
  ATTEST_MASK_BLOCK_SPARSE = 5, /* table[b, h, query / block_query, key / block_key]: u8 */
  ATTEST_MASK_DILATED = 6,      /* (key - query - shift) is a multiple of dilation */
  ATTEST_MASK_ALL_OF = 7,       /* the intersection of first and second */
  ATTEST_MASK_ANY_OF = 8        /* the union of first and second */
};

/* A node of a mask. Nodes lie in one array, children before their parents; the last is the root.
   What combines more than two masks is a chain of nodes, so a tree may be as deep as its array is
   long: one pass over the array evaluates it at any depth. A host that is newer than this header
   may have larger nodes: the next one lies struct_size bytes further on, as attest_mask_node steps,
   and not sizeof(attest_mask). */
typedef struct attest_mask {
  size_t struct_size;
  attest_mask_kind kind;
  int32_t anchored_bottom_right; /* band, dilated: whether klen_b - qlen_b is added to the shift */
  int64_t offset;                /* band, dilated: shift = offset (+ klen_b - qlen_b) */
  /* band: -left <= key - (query + shift) <= right; of a window in the dialect that is declared */
  int64_t left, right;
  int64_t dilation;
  int64_t block_query, block_key;
  int64_t first, second; /* all_of, any_of: indices of the two children */
  attest_tensor table, table2;
} attest_mask;

typedef int32_t attest_dropout_mode;
enum {
  ATTEST_DROPOUT_NONE = 0,
  ATTEST_DROPOUT_GIVEN = 1,    /* the keep-mask is an input */
  ATTEST_DROPOUT_GENERATED = 2 /* the kernel draws it and returns the one it used */
};

typedef struct attest_problem {
  size_t struct_size;
  /* Of O and the gradients, and of Q, K, V unless these are stored in fewer bits. LSE is f32, or
   * f64 for f64. */
  attest_dtype dtype;
  int32_t backward; /* whether a backward call follows the forward call */
  int64_t batch, query_heads, key_heads, query_len, key_len, head_dim, value_dim;
  double scale;            /* s = cap(scale q.k) + bias */
  double softcap;          /* c of cap(x) = c tanh(x/c); 0: none */
  const attest_mask* mask; /* mask_count nodes; the last is the root; none: full */
  int64_t mask_count;
  /* Per-batch lengths, i64 [B,1,1,1]; absent: all queries and keys are real. */
  attest_tensor query_lens, key_lens;
  /* Packed THD: batch element b owns the positions cu[b] ... cu[b+1]-1 of tensors whose batch axis
   * has size 1; i64 [B+1,1,1,1]; absent: not packed. query_len and key_len are then the longest. */
  attest_tensor cu_query_lens, cu_key_lens;
  /* Paged keys: the batch axis of K and V counts pages of page_size positions; page_table is
   * i32 [B, pages, 1, 1], unused entries negative. 0: not paged. */
  int64_t page_size;
  attest_tensor page_table;
  int32_t has_bias, has_alibi, has_sink, has_dlse;
  attest_dropout_mode dropout;
  int32_t reserved;
  double dropout_probability;
  uint64_t dropout_seed, dropout_offset;
  /* What Q, K and V are stored in: dtype, or of these one of 8 bits, and then with scales. An older
   * host has none of these fields. */
  attest_dtype q_dtype, k_dtype, v_dtype;
  int32_t reserved2;
} attest_problem;

/* Node `index` of the mask, counted from 0; mask_count - 1 is the root. */
static inline const attest_mask* attest_mask_node(const attest_problem* problem, int64_t index) {
  const char* nodes = (const char*)problem->mask;
  return (const attest_mask*)(nodes + (size_t)index * problem->mask->struct_size);
}

/* ---- One call ---------------------------------------------------------------------------------
 */

typedef struct attest_inputs {
  size_t struct_size;
  attest_tensor q, k, v;
  attest_tensor bias;         /* [B or 1, Hq or 1, Sq or 1, Sk or 1], of the problem's dtype */
  attest_tensor alibi_slopes; /* f32 [B or 1, Hq, 1, 1]; the bias is -slope |i + shift - j| */
  attest_tensor sink;         /* f32 [1, Hq, 1, 1] */
  attest_tensor keep;         /* bits [B, Hq, Sq, Sk]: 1 keeps; strides in bits */
  /* Of what is stored in 8 bits: f32 [B or 1, H or 1, S or 1, 1], by which each number is meant to
   * be multiplied; or, of blocks of 16 channels (int8, bfp8) or 32 (fp8, mxfp8), [B, H, S, blocks],
   * powers of two. */
  attest_tensor q_scale, k_scale, v_scale;
  /* Backward only. o and lse are what this kernel's own forward call returned. */
  attest_tensor o, lse;
  attest_tensor d_o, d_lse;
  /* Backward only, in place of lse, of a kernel that declares that it returns these: what its own
   * forward call returned. */
  attest_tensor maximum, sum;
} attest_inputs;

typedef struct attest_outputs {
  size_t struct_size;
  attest_tensor o, lse; /* lse: [B, Hq, Sq, 1], in the base that is declared */
  attest_tensor keep;   /* dropout generated: the mask that was used */
  attest_tensor dq, dk, dv, dbias, dsink;
  /* In place of lse, of the same shape and format, of a kernel that declares "lse" as
   * "maximum_and_sum": LSE = maximum + log sum. */
  attest_tensor maximum, sum;
} attest_outputs;

/* One block of the score matrix that a worker computes. */
typedef struct attest_block {
  size_t struct_size;
  int64_t worker, batch, head;
  int64_t query_begin, query_end, key_begin, key_end;
  int32_t masked;   /* whether the mask was applied to its elements */
  int32_t backward; /* 0: of a forward call; n >= 1: of the n-th pass of a backward call */
} attest_block;

/* How a call is to be made, of kernels that declare the feature of that name: where it stands, and
 * what it must withstand (DEV-1 to DEV-3). */
typedef int32_t attest_call_mode;
enum {
  ATTEST_CALL_ORDINARY = 0,
  ATTEST_CALL_STREAM = 1,      /* in a stream other than the default one */
  ATTEST_CALL_TWO_STREAMS = 2, /* beside calls in another stream */
  ATTEST_CALL_GRAPH = 3        /* captured as a graph, and replayed on other inputs */
};

/* The pages of one tensor, with the slack, canaries and poison around it: what a mirror of it in
 * the memory of a device has to copy, both ways, so that all that is judged on the host is judged
 * there. */
typedef struct attest_stretch {
  uint64_t begin, end; /* in bytes; end is the first that is no more */
} attest_stretch;

typedef struct attest_region {
  size_t struct_size;
  const char* name; /* of the tensor, as it crosses: "q" */
  void* data;       /* the first byte of its pages */
  uint64_t bytes;
  uint64_t tensor_offset, tensor_bytes; /* where in the pages the tensor lies */
  int32_t output;                       /* 1: to be written back, 0: an input */
  int32_t reserved;
  /* Of a tensor whose rows lie so far apart that nearly all of it is holes, what of its pages is
   * there, in order; NULL: all. The holes need not cross, and stay holes on the host. */
  const attest_stretch* there;
  uint64_t there_count;
} attest_region;

typedef struct attest_context {
  size_t struct_size;
  int32_t threads; /* how many the kernel may use; at least 1 */
  int32_t reserved;
  void* workspace; /* of the size asked for, aligned to 512 bytes */
  uint64_t workspace_bytes;
  char* message; /* where a failing call may say why, 0-terminated */
  uint64_t message_bytes;
  /* Where a kernel reports its blocks, from any thread; NULL: nobody asks. */
  void (*trace)(void* trace_context, const attest_block* block);
  void* trace_context;
  attest_call_mode mode;
  int32_t reserved2;
  /* Of all tensors of the call, each once; attest_context_region steps through them. */
  const attest_region* regions;
  uint64_t region_count;
  /* Where a kernel on a device leaves how many seconds its work took there, between two events of
   * its stream; NULL: nobody asks. */
  double* device_seconds;
} attest_context;

/* The pages of tensor `index`, counted from 0. A newer host may have larger entries. */
static inline const attest_region* attest_context_region(const attest_context* context,
                                                         uint64_t index) {
  const char* regions = (const char*)context->regions;
  return (const attest_region*)(regions + (size_t)index * context->regions->struct_size);
}

/* All but the first two are of kernels that mirror regions, and say in `message` what they found.
 */
typedef int32_t attest_status;
enum {
  ATTEST_OK = 0,
  ATTEST_ERROR = 1,
  ATTEST_GUARD = 2,         /* memory beside a tensor was written (SAFE-1) */
  ATTEST_INPUT_MUTATED = 3, /* an input was changed (SAFE-2) */
  ATTEST_DEVICE_LOST = 4,   /* an error after which the device is of no use to this process */
  ATTEST_NO_MEMORY = 5      /* the device has not enough: which says nothing of the kernel */
};

typedef struct attest_kernel attest_kernel;
struct attest_kernel {
  size_t struct_size;
  const char* name; /* unique in the plug-in: "fa2", "fa2/avx2" */
  void* self;       /* for the kernel's own use */

  /* What the kernel is and what it declares: JSON, as SPEC.md says in chapter "Description". */
  const char* (*describe)(const attest_kernel* kernel);

  /* Whether the kernel can run the problem: 1 or 0, from its arguments alone. A refusal says why in
   * `reason`, 0-terminated. Refusing what was declared is a failure (CALL-1). */
  int32_t (*supports)(const attest_kernel* kernel, const attest_problem* problem, char* reason,
                      uint64_t reason_bytes);

  /* Bytes of workspace that the call needs, for that many threads. */
  uint64_t (*workspace)(const attest_kernel* kernel, const attest_problem* problem,
                        int32_t backward, int32_t threads);

  /* Writes every element of outputs->o, and of outputs->lse or what stands in its place. */
  attest_status (*forward)(const attest_kernel* kernel, const attest_problem* problem,
                           const attest_inputs* inputs, const attest_outputs* outputs,
                           const attest_context* context);

  /* Writes every element of the gradients that are present in outputs. NULL: no backward pass. */
  attest_status (*backward)(const attest_kernel* kernel, const attest_problem* problem,
                            const attest_inputs* inputs, const attest_outputs* outputs,
                            const attest_context* context);
};

/* A kernel that the plug-in would have on another machine. */
typedef struct attest_absent_kernel {
  size_t struct_size;
  const char* name;
  const char* why; /* what is missing here: "the processor has no AMX" */
} attest_absent_kernel;

typedef struct attest_plugin {
  size_t struct_size;
  uint32_t abi_version; /* ATTEST_ABI_VERSION */
  uint32_t kernel_count;
  const attest_kernel* const* kernels;
  /* Optional: told to whoever names one of them. */
  const attest_absent_kernel* const* absent_kernels;
  uint32_t absent_kernel_count;
  uint32_t reserved;
} attest_plugin;

/* The only symbol that Attest looks up. */
ATTEST_EXPORT const attest_plugin* attest_plugin_get(void);
typedef const attest_plugin* (*attest_plugin_get_function)(void);
#define ATTEST_PLUGIN_SYMBOL "attest_plugin_get"

#ifdef __cplusplus
}
#endif

#endif /* ATTEST_PLUGIN_H_ */
