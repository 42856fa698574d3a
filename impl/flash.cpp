#include "impl/flash.h"

#include <algorithm>

#include "impl/bias_gradient.h"
#include "impl/flash/backward.h"
#include "impl/flash/backward_evenly.h"
#include "impl/flash/bias_gradient.h"
#include "impl/flash/forward_evenly.h"
#include "impl/parallel.h"
#include "impl/sink.h"

namespace attest::impl {

// Balanced, what is merged, and in which order the backward pass adds, depends on the number of
// workers, and that on how much there is to do.
template <Form form>
ArithmeticDeclaration flash_arithmetic(const std::string& dtype) {
  constexpr bool kContiguous = form.dealing == Dealing::contiguous;
  ArithmeticDeclaration declared = unrounded_arithmetic(dtype);
  declared["p_normalised"] = "last";
  declared["tanh_ulp"] = 3;  // functions.inl
  declared["key_block"] = kContiguous ? kKeyBlock : kDealtKeys;
  if (!kContiguous) declared["kv_splits"] = kMostParts;
  declared["thread_invariant"] = declared["batch_invariant"] = kContiguous;
  declared["form_invariant"] = kContiguous;
  return declared;
}

// Blocks are reported as they are computed, those that a mask cuts in pieces.
//
// Balanced, the busiest of T workers has no more than 1.05 times the mean, if the mask is full or
// causal, there is no bias, S = Sq = Sk >= 2048, and T <= 3 B Hq: shares have as many scores, to
// half a block of 96 by 64 forward, and of 96 by 256 in each head backward. A block that the
// diagonal cuts is computed in slices, which have a little more than what is visible.
template <Form form>
ScheduleDeclaration flash_schedule() {
  return {.masks_partial_only = true,
          .imbalance = form.dealing == Dealing::balanced ? std::optional(1.05) : std::nullopt};
}

// The workspace, as ForwardTiles and BackwardTiles lay it out for each worker: the larger of the
// two in each term, for the widest computing type (f64) and panels (four vectors of 64 bytes).
template <Form form>
MemoryDeclaration flash_memory() {
  constexpr std::int64_t kWide = 8, kPanel = 256, kLine = 64;
  const auto scores = [](std::int64_t keys) {
    return kQueryBlock * (keys * kWide + kPanel + 2 * kLine);
  };
  // Balanced, two parts of rows for each worker besides.
  constexpr std::int64_t kParts = form.dealing == Dealing::balanced ? 2 : 0;
  const std::int64_t forward = scores(kLongKeyBlock) +
                               kQueryBlock * (kPanel + 2 * kWide + kLongKeyBlock) + 9 * kLine +
                               kParts * (kQueryBlock * (kPanel + 2 * kWide) + 4 * kLine);
  const std::int64_t backward = 3 * scores(kKeyBlock) + kQueryBlock * kKeyBlock * (kWide + 1) +
                                (2 * kQueryBlock + 3 * kKeyBlock) * kPanel + 18 * kLine;
  const std::int64_t forward_rows = kLongKeyBlock + (2 + kParts) * kQueryBlock;
  const std::int64_t backward_rows = 5 * kKeyBlock + 5 * kQueryBlock;
  return {.growth = "linear",
          .workspace = {
              {"per_thread", std::max(forward, backward)},
              {"per_thread_channel", std::max(forward_rows, backward_rows) * kWide + 2 * kPanel},
              {"per_thread_query", kPanel + 2 * kWide},
              {"per_thread_query_channel", kWide},
              {"per_thread_key", 2 * kPanel},
              {"per_thread_key_channel", 2 * kWide}}};
}

std::uint64_t flash_workspace(const Call& call, bool backward, Form form) {
  return with_element_type(call.problem.dtype, [&](auto element) {
    using R = Real<decltype(element)>;
    return backward ? backward_tiles<R>(call, form, Arena()).bytes
                    : forward_tiles<R>(call, Arena()).bytes;
  });
}

std::uint64_t flash_shared_workspace(const Call& call, bool backward, Form form) {
  if (backward || form.dealing == Dealing::contiguous) return 0;
  return with_element_type(call.problem.dtype, [&](auto element) {
    return bytes_of_parts<Real<decltype(element)>>(call);
  });
}

namespace {

// Calls work(worker, unit) for all units, dealt to the workers.
template <class R, class Work>
void for_each_unit(const Call& call, Workers& workers, Form form, std::int64_t units,
                   const Work& work) {
  const std::uint64_t bytes = flash_workspace(call, true, form);
  workers.share_out(units, [&](int number, std::int64_t begin, std::int64_t end) {
    BackwardWorker<R> worker(
        call, number, backward_tiles<R>(call, form, Arena(workspace_of(call, number, bytes))));
    for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
  });
}

template <class T>
void further_gradients_as(const Call& call, Workers& workers, Form form) {
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, kQueryBlock, kKeyBlock);
    for_each_unit<Real<T>>(call, workers, form, parts.count(),
                           [&](auto& w, std::int64_t unit) { bias_gradient<T>(w, parts[unit]); });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < call.problem.query_heads; ++h) sink_gradient<T>(call, h);
  }
}

template <class T>
void backward_as(const Call& call, Form form) {
  const attest_problem& p = call.problem;
  Workers workers(call.workers);
  const std::int64_t heads = p.batch * p.key_heads;
  // Whole heads one worker each, as long as there is one for every worker. Those that are left over
  // all workers compute one after the other, if that is sooner than one each: as many work at a
  // head as it has key blocks.
  const std::int64_t left_over = heads % call.workers;
  const std::int64_t at_a_head =
      std::min<std::int64_t>(call.workers, blocks_of(p.key_len, kKeyBlock));
  const std::int64_t together = form.dealing == Dealing::balanced ? heads
                                : left_over < at_a_head           ? left_over
                                                                  : 0;
  for_each_unit<Real<T>>(call, workers, form, heads - together, [&](auto& w, std::int64_t unit) {
    backward_head<T>(w, unit / p.key_heads, unit % p.key_heads);
  });
  for (std::int64_t unit = heads - together; unit < heads; ++unit) {
    const std::int64_t b = unit / p.key_heads, head = unit % p.key_heads;
    if (form.dealing == Dealing::balanced) {
      backward_head_evenly<T>(call, workers, b, head);
    } else {
      backward_head_together<T>(call, workers, b, head);
    }
  }
  further_gradients_as<T>(call, workers, form);
}

}  // namespace

void flash_forward(const Call& call, Form form) {
  with_element_type(call.problem.dtype, [&](auto element) {
    using T = decltype(element);
    if (form.dealing == Dealing::balanced) return forward_evenly<T>(call);
    forward_as<T>(call, form.visits);
  });
}

void flash_backward(const Call& call, Form form) {
  with_element_type(call.problem.dtype, [&](auto e) { backward_as<decltype(e)>(call, form); });
}

void flash_further_gradients(const Call& call, Form form) {
  Workers workers(call.outputs.dbias.data ? call.workers : 1);
  with_element_type(call.problem.dtype,
                    [&](auto e) { further_gradients_as<decltype(e)>(call, workers, form); });
}

template ArithmeticDeclaration flash_arithmetic<kUpwards>(const std::string&);
template ScheduleDeclaration flash_schedule<kUpwards>();
template MemoryDeclaration flash_memory<kUpwards>();
template ArithmeticDeclaration flash_arithmetic<kBalanced>(const std::string&);
template ScheduleDeclaration flash_schedule<kBalanced>();
template MemoryDeclaration flash_memory<kBalanced>();
template ArithmeticDeclaration flash_arithmetic<kDownwards>(const std::string&);
template ScheduleDeclaration flash_schedule<kDownwards>();
template MemoryDeclaration flash_memory<kDownwards>();

}  // namespace attest::impl
