#include "spec/clause.h"

#include <algorithm>
#include <array>

namespace attest {
namespace {

using enum Level;

constexpr std::array kClauses = {
    Clause{"SHAPE-1", required, "shapes of Q, K, V, O and LSE; Dv need not be D"},
    Clause{"SHAPE-2", required, "sizes of zero are legal"},
    Clause{"LAYOUT-1", required, "elements lie where the strides say"},
    Clause{"LAYOUT-2", required, "the orders BHSD and BSHD (BSH)"},
    Clause{"LAYOUT-3", required, "expanded (stride 0) and transposed inputs"},
    Clause{"LAYOUT-4", required, "the order SBH"},
    Clause{"LAYOUT-5", required, "packed THD with cu_seqlens"},
    Clause{"HEAD-1", required, "contiguous groups of query heads share a key head"},
    Clause{"HEAD-2", required, "dK and dV sum over the group"},
    Clause{"SCORE-1", required, "the scale is explicit and multiplies q.k"},
    Clause{"SCORE-2", required, "softcap: c tanh(x/c), before bias and mask"},
    Clause{"SCORE-3", required, "dense bias, broadcast, after the softcap"},
    Clause{"SCORE-4", required, "ALiBi"},
    Clause{"SCORE-5", required, "a scale of 0 or below"},
    Clause{"SOFTMAX-1", required, "O = softmax(s) V over the visible keys"},
    Clause{"SOFTMAX-2", required, "no overflow or loss while the scores are below 2^24"},
    Clause{"SOFTMAX-3", recommended, "no overflow beyond 2^24 either, while the scores are finite"},
    Clause{"MASK-1", required, "full: every query sees every key"},
    Clause{"MASK-2", required, "causal, top left"},
    Clause{"MASK-3", required, "causal, bottom right, and with any offset"},
    Clause{"MASK-4", required, "window: inclusive on both sides"},
    Clause{"MASK-5", required, "per-batch key lengths"},
    Clause{"MASK-6", required, "per-batch query lengths"},
    Clause{"MASK-7", required, "dense boolean; true attends; size 1 broadcasts"},
    Clause{"MASK-8", required, "masks intersect with each other and with the lengths"},
    Clause{"MASK-9", required, "union of masks"},
    Clause{"MASK-10", required, "prefix"},
    Clause{"MASK-11", required, "segments (documents)"},
    Clause{"MASK-12", required, "block-sparse"},
    Clause{"MASK-13", required, "dilated"},
    Clause{"MASK-14", required, "a bias of -inf masks its key; +inf and NaN are ill-formed"},
    Clause{"MASK-15", optional, "rows beyond a query length may be declared unwritten"},
    Clause{"HIDE-1", required, "finite values of a masked key change nothing"},
    Clause{"HIDE-2", required, "NaN and Inf beyond a length or in slack memory change nothing"},
    Clause{"HIDE-3", recommended, "NaN and Inf of a key that the mask hides change nothing"},
    Clause{"EMPTY-1", required, "a row that sees no key has O = 0"},
    Clause{"EMPTY-2", required, "a row that sees no key has LSE = -inf"},
    Clause{"EMPTY-3", required, "a row that sees no key gives no gradient"},
    Clause{"EMPTY-4", required, "a row without keys but with a sink"},
    Clause{"EMPTY-5", optional, "a declared dialect of the row that sees no key"},
    Clause{"LSE-1", required, "natural log of the sum of exp of the final scores"},
    Clause{"LSE-2", required, "LSE is f32, and f64 for f64"},
    Clause{"SINK-1", required, "a logit that joins the denominator only"},
    Clause{"SINK-2", required, "dSink"},
    Clause{"DROP-1", required, "dropout: P normalised, then P keep/(1-p)"},
    Clause{"DROP-2", required, "the same keep-mask in the backward pass"},
    Clause{"DROP-3", optional, "generated mode: mask returned, keep rate declared"},
    Clause{"GRAD-1", required, "dQ"},
    Clause{"GRAD-2", required, "dK"},
    Clause{"GRAD-3", required, "dV"},
    Clause{"GRAD-4", required, "dBias, summed over its broadcast axes"},
    Clause{"GRAD-5", required, "the gradient through LSE (dLSE)"},
    Clause{"GRAD-6", required, "the derivative of the softcap"},
    Clause{"PAGE-1", required, "keys behind a page table"},
    Clause{"PAGE-2", required, "nothing beyond a length or in an unused page is read"},
    Clause{"FORMAT-1", optional, "f64"},
    Clause{"FORMAT-2", required, "f32"},
    Clause{"FORMAT-3", required, "f16"},
    Clause{"FORMAT-4", required, "bf16"},
    Clause{"FORMAT-5", required, "e4m3 and e5m2 with scales"},
    Clause{"FORMAT-6", required, "bfp8: 16 channels share an exponent"},
    Clause{"FORMAT-7", required, "int8 with scales"},
    Clause{"FORMAT-8", required, "mxfp8: 32 channels share an exponent"},
    Clause{"FINITE-1", required, "a non-finite Q stays within its row"},
    Clause{"FINITE-2", recommended, "non-finite K, V, dO stay within the rows that see them"},
    Clause{"FINITE-3", recommended, "a non-finite Q spares gradients of keys its row does not see"},
    Clause{"FINITE-4", recommended, "a NaN that a row sees shows in its O"},
    Clause{"NUM-1", required, "every element lies within its bound"},
    Clause{"NUM-2", required, "the arithmetic declared is within the caps and is the one used"},
    Clause{"NUM-3", required, "errors that are random add up as random errors do"},
    Clause{"DET-1", required, "the same call twice gives the same bits, where declared"},
    Clause{"DET-2", optional, "a row's bits do not depend on its batch neighbours"},
    Clause{"DET-3", required, "right for any number of threads; the same bits, where declared"},
    Clause{"DET-4", optional, "the same bits packed, padded, and with more padding"},
    Clause{"DET-5", optional, "the same bits in pages and in a row"},
    Clause{"DET-6", optional, "the same bits in one call and in chunks"},
    Clause{"DET-7", optional, "the same bits prefilled and decoded"},
    Clause{"LAW-1", required, "keys have no order"},
    Clause{"LAW-2", required, "what all scores of a row have in common cancels"},
    Clause{"LAW-3", required, "O is linear in V"},
    Clause{"LAW-4", required, "O is a weighted mean of the visible V"},
    Clause{"LAW-5", required, "a power of four may move from the scale to Q"},
    Clause{"LAW-6", required, "keys may be split and merged by LSE"},
    Clause{"LAW-7", required, "a row does not depend on the others"},
    Clause{"LAW-8", required, "a window wider than everything is none"},
    Clause{"LAW-9", required, "a group of heads is a key head that is repeated"},
    Clause{"LAW-10", required, "one problem in two forms"},
    Clause{"LAW-11", required, "a sink is a key without a value"},
    Clause{"LAW-12", required, "ALiBi is a bias"},
    Clause{"LAW-13", required, "a softcap far above the scores is none"},
    Clause{"LAW-14", required, "gradients are linear in the loss"},
    Clause{"LAW-15", required, "gradients add up"},
    Clause{"LAW-16", required, "gradients are slopes"},
    Clause{"SCHED-1", required, "each needed block once, none that is wholly masked"},
    Clause{"SCHED-2", required, "the mask is applied to partial blocks only, where declared"},
    Clause{"SCHED-3", required, "load imbalance as declared"},
    Clause{"MEM-1", required, "workspace as declared"},
    Clause{"MEM-2", required, "growth of memory with the lengths, as declared"},
    Clause{"DEV-1", required, "in a stream other than the default one, where declared"},
    Clause{"DEV-2", required, "two streams at once, where declared"},
    Clause{"DEV-3", required, "a captured graph, replayed on other inputs, where declared"},
    Clause{"DEV-4", required, "other shapes and strides between calls, where declared"},
    Clause{"SAFE-1", required, "nothing is read or written outside the tensors"},
    Clause{"SAFE-2", required, "inputs are left as they were"},
    Clause{"SAFE-3", required, "every element of every output is written"},
    Clause{"SAFE-4", required, "every call returns, within its time"},
    Clause{"CALL-1", required, "a declared feature binds: nothing that is asked is refused"},
    Clause{"CALL-2", required, "a call computes on no more threads than it may, where declared"},
};

}  // namespace

std::span<const Clause> clauses() { return kClauses; }

const Clause* find_clause(std::string_view id) {
  for (const Clause& clause : kClauses) {
    if (clause.id == id) return &clause;
  }
  return nullptr;
}

bool is_recommended(std::string_view id) {
  const Clause* clause = find_clause(id);
  return clause && clause->level == Level::recommended;
}

bool is_of_gradients(std::string_view id) {
  return id.starts_with("GRAD-") || id == "SINK-2" || id == "DROP-2" || id == "HEAD-2";
}

namespace {

// Families, and single clauses. Whether elements were written, and lie where strides say, a dense
// file does not tell; other draws and other seeds take other calls.
constexpr std::array<std::string_view, 13> kOfCalls = {
    "CALL-",    "DET-",     "DEV-",     "LAW-",     "MEM-",   "SAFE-", "SCHED-",
    "LAYOUT-1", "LAYOUT-2", "LAYOUT-3", "LAYOUT-4", "DROP-3", "NUM-3"};

}  // namespace

bool takes_calls(std::string_view id) {
  return std::any_of(kOfCalls.begin(), kOfCalls.end(), [&](std::string_view each) {
    return each.ends_with('-') ? id.starts_with(each) : id == each;
  });
}

std::string clauses_of_calls() {
  std::string text;
  for (const std::string_view each : kOfCalls) {
    if (!text.empty()) text += ", ";
    text += each.ends_with('-') ? each.substr(0, each.size() - 1) : each;
  }
  return text;
}

std::string_view name(Level level) {
  switch (level) {
    case Level::required:
      return "required";
    case Level::recommended:
      return "recommended";
    case Level::optional:
      return "optional";
  }
  return "?";
}

}  // namespace attest
