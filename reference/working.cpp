// Reads bottom up: expect_forward and expect_backward, then the passes over all blocks of query
// rows. What happens to one block, and to the sums over blocks, is in working/:
//
//   products          the sums that take the time
//   pack              the inputs as these read them
//   block             what is known of a block of rows
//   scores            what its rows see, and the scores
//   forward_bound     O, LSE, B_O, B_L
//   backward_bound    dQ, B_dQ, and what dK and dV are made of
//   key_gradients     dK, dV, B_dK, B_dV
//   score_gradients   dBias, dSink and their bounds
//   put               numbers, put down where the tensors hold them
//   dealing           threads, parts and excerpts
//
// each of which includes only those above it. The formulas for single elements are in bound.h; all
// symbols are those of NUMERICS.md.
//
// Keys that a row does not see have no part in it: their weights are 0, and numbers that are not
// finite are replaced by 0 when K and V are packed. A row that does see such a number is "lost":
// its values are NaN, its bounds infinite.
//
// Rows and keys count within a batch element; where its tensors hold them is asked of the problem
// when they are packed and when results are put down.
#include "reference/working.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "reference/working/backward_bound.h"
#include "reference/working/dealing.h"
#include "reference/working/forward_bound.h"
#include "reference/working/put.h"
#include "reference/working/score_gradients.h"

namespace attest {
namespace bound::working {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What both passes are asked.
struct Request {
  const Problem& problem;
  const Inputs& inputs;
  const Arithmetic& arithmetic;
  int threads;
  const Excerpt* excerpt;
  Roundings roundings;

  double unless_put() const { return excerpt ? kNaN : 0; }
};

// Calls visit(heads, first) for all key heads, packed, as many at a time as there is room for:
// `heads` are those from number `first` on, batch outermost. Those that nothing is wanted of are
// empty.
template <class Real, class Visit>
void for_key_heads(const Context<Real>& context, const Wanted& wanted, int threads,
                   const Visit& visit) {
  const Problem& problem = context.problem;
  const Index all = problem.batch * problem.key_heads;
  const Index at_a_time = key_heads_at_a_time(problem, threads);
  for (Index first = 0; first < all; first += at_a_time) {
    std::vector<KeyHead<Real>> heads(at(std::min(at_a_time, all - first)));
    for_each_task(Index(heads.size()), threads, [&](Index task, int) {
      const Index head = first + task;
      const bool walked = problem.backward && wanted.walked[at(head)];
      if (!walked && !wanted.any_row(problem, head)) return;
      heads[at(task)] = pack_key_head(problem, context.inputs, context.model,
                                      head / problem.key_heads, head % problem.key_heads);
    });
    visit(heads, first);
  }
}

// ---- Forward ----------------------------------------------------------------------------------

void prepare(ForwardExpected& result, const Request& request, bool beyond) {
  const Problem& problem = request.problem;
  fill(result.o, problem, problem.o_shape(), request.unless_put(), beyond);
  fill(result.lse, problem, problem.lse_shape(), request.excerpt ? kNaN : -kInfinity, beyond);
}

template <class Real>
ForwardExpected forward(const Request& request) {
  const Problem& problem = request.problem;
  ForwardExpected result;
  prepare(result, request, may_go_beyond(problem, request.inputs));
  const Index heads = problem.batch * problem.query_heads;
  if (heads == 0 || problem.query_len == 0) return result;

  const int threads = worthwhile_threads(problem, request.threads);
  const Arithmetic arithmetic = with_stored(request.arithmetic, problem, request.inputs);
  const Model<Real> model(problem, arithmetic, request.roundings);
  const Context<Real> context = {problem, request.inputs, model};
  const Wanted wanted(problem, request.excerpt);
  std::vector<Block<Real>> blocks(at(threads));
  for_key_heads(context, wanted, threads, [&](const auto& key_heads, Index first) {
    struct Task {
      Index key_head, head, group;
    };
    std::vector<Task> tasks;
    for (Index n = 0; n < Index(key_heads.size()) * problem.group_size(); ++n) {
      const Index head = first * problem.group_size() + n;
      for (const Index group : wanted.rows[at(head)]) {
        tasks.push_back({n / problem.group_size(), head, group});
      }
    }
    for_each_task(Index(tasks.size()), threads, [&](Index number, int worker) {
      const Task& task = tasks[at(number)];
      Block<Real>& block = blocks[at(worker)];
      block.b = task.head / problem.query_heads;
      block.h = task.head % problem.query_heads;
      block.begin = task.group * kRows;
      block.count = std::min(kRows, problem.lengths(block.b).query - block.begin);
      if (block.count <= 0) return;
      forward_block(context, key_heads[at(task.key_head)], block);
      put_forward(problem, model, block, result);
    });
  });
  return result;
}

// ---- Backward ---------------------------------------------------------------------------------

void prepare(BackwardExpected& result, const Request& request, bool beyond) {
  const Problem& problem = request.problem;
  fill(result.dq, problem, problem.q_shape(), request.unless_put(), beyond);
  fill(result.dk, problem, problem.k_shape(), request.unless_put(), beyond);
  fill(result.dv, problem, problem.v_shape(), request.unless_put(), beyond);
  if (problem.bias_shape) fill(result.dbias, problem, *problem.bias_shape, 0, beyond);
  if (problem.sink) fill(result.dsink, problem, problem.sink_shape(), 0, beyond);
}

// A few key heads at a time: their parts, those parts once more whose sums may overflow, seldom,
// and what they come to.
template <class Real>
class BackwardPass {
 public:
  // `forward` is where that pass is put down, if it is wanted.
  BackwardPass(const Request& request, BackwardExpected& result, ForwardExpected* forward)
      : problem_(request.problem),
        threads_(worthwhile_threads(problem_, request.threads)),
        model_(problem_, request.arithmetic, request.roundings),
        context_({problem_, request.inputs, model_}),
        wanted_(problem_, request.excerpt),
        by_head_(model_.declared.rounds_head_gradients && problem_.group_size() > 1),
        parts_(problem_, by_head_),
        of_scores_(problem_),
        blocks_(at(threads_)),
        result_(result),
        forward_(forward) {}

  void run() {
    for_key_heads(context_, wanted_, threads_, [&](const auto& key_heads, Index first) {
      sums_.clear();
      sums_.resize(key_heads.size() * at(parts_.count));
      add_parts(key_heads, first, false);
      add_parts(key_heads, first, true);
      put_sums(Index(key_heads.size()), first);
    });
    if (problem_.bias_shape) of_scores_.put_bias(problem_, model_, result_.dbias);
    if (problem_.sink) of_scores_.put_sink(problem_, model_, wanted_, result_.dsink);
  }

 private:
  using Sums = typename KeyGradients<Real>::Sums;

  // All of them; or again, those whose sums may overflow, with the sums' sizes.
  void add_parts(const std::vector<KeyHead<Real>>& key_heads, Index first, bool again) {
    std::vector<bool> whose(key_heads.size(), true);
    for (std::size_t n = 0; again && n < whose.size(); ++n) {
      const Index head = first + Index(n);
      whose[n] = !wanted_.keys[at(head)].empty() && may_overflow(n);
      for (Index h = 0; whose[n] && h < problem_.group_size(); ++h) {
        of_scores_.forget(head * problem_.group_size() + h);
      }
    }
    for_each_task(Index(sums_.size()), threads_, [&](Index task, int worker) {
      const std::size_t n = at(task / parts_.count);
      const Index head = first + Index(n);
      const bool any = wanted_.walked[at(head)] || wanted_.any_row(problem_, head);
      if (!whose[n] || !any) return;
      const Sums which = wanted_.keys[at(head)].empty() ? Sums::none
                         : again                        ? Sums::sizes_too
                                                        : Sums::values;
      auto sum = std::make_unique<KeyGradients<Real>>(
          problem_, problem_.lengths(head / problem_.key_heads).key, which);
      add_part(key_heads[n], head, task % parts_.count, blocks_[at(worker)], *sum);
      sums_[at(task)] = std::move(sum);
    });
  }

  // Whether a sum over rows of the n-th key head may overflow on its way.
  bool may_overflow(std::size_t n) const {
    Real most = 0;
    for (std::size_t part = 0; part < at(parts_.count); ++part) {
      most += sums_[n * at(parts_.count) + part]->most;
    }
    return most >= std::min(model_.sum_overflow, model_.stored.overflow);
  }

  void put_sums(Index heads, Index first) {
    for_each_task(heads, threads_, [&](Index n, int) {
      const Index head = first + n, b = head / problem_.key_heads, h = head % problem_.key_heads;
      if (wanted_.keys[at(head)].empty()) return;
      KeyGradients<Real>& sum = *sums_[at(n * parts_.count)];
      for (Index part = 1; part < parts_.count; ++part) {
        sum.add(*sums_[at(n * parts_.count + part)]);
      }
      finish(problem_, model_, b, sum);
      for (const Range& wanted : wanted_.keys[at(head)]) {
        put_keys(problem_, model_, b, h, wanted, sum, result_);
      }
    });
  }

  // One part of the rows that read a key head: all of them, or those whose dQ is wanted, which are
  // put down.
  void add_part(const KeyHead<Real>& key_head, Index head, Index part, Block<Real>& block,
                KeyGradients<Real>& sum) {
    block.b = head / problem_.key_heads;
    const Index queries = problem_.lengths(block.b).query;
    const Range numbers = parts_.blocks(part);
    for (Index n = numbers.begin; n < numbers.end; ++n) {
      const Index group = n % parts_.blocks_of_head;
      block.h = head % problem_.key_heads * problem_.group_size() + n / parts_.blocks_of_head;
      block.begin = group * kRows;
      block.count = std::min(kRows, queries - block.begin);
      if (block.count <= 0) continue;
      const auto& rows = wanted_.rows[at(block.b * problem_.query_heads + block.h)];
      const bool with_dq = std::binary_search(rows.begin(), rows.end(), group);
      if (!with_dq && !wanted_.walked[at(head)]) continue;
      forward_block(context_, key_head, block);
      if (forward_ && with_dq) put_forward(problem_, model_, block, *forward_);
      backward_block(context_, key_head, with_dq, wanted_.keys[at(head)], block, sum);
      of_scores_.add(problem_, block);
      if (with_dq) put_dq(problem_, model_, block, result_.dq);
    }
    if (by_head_) round_head(problem_, model_, block.b, sum);
  }

  const Problem& problem_;
  int threads_;
  Model<Real> model_;
  Context<Real> context_;
  Wanted wanted_;
  bool by_head_;  // heads are rounded one by one, and each is a part
  Parts parts_;
  std::vector<std::unique_ptr<KeyGradients<Real>>> sums_;  // of each part of a few key heads
  ScoreGradients<Real> of_scores_;
  std::vector<Block<Real>> blocks_;  // of each worker
  BackwardExpected& result_;
  ForwardExpected* forward_;
};

// And, where it is wanted, the forward pass, which the gradients are made of.
template <class Real>
BackwardExpected backward(const Request& request, ForwardExpected* forward) {
  const Problem& problem = request.problem;
  BackwardExpected result;
  const bool beyond = may_go_beyond(problem, request.inputs);
  if (forward) prepare(*forward, request, beyond);
  prepare(result, request, beyond);
  if (problem.batch * problem.key_heads == 0 || problem.query_heads == 0 ||
      problem.query_len == 0) {
    return result;
  }
  BackwardPass<Real>(request, result, forward).run();
  return result;
}

}  // namespace
}  // namespace bound::working

using namespace bound::working;

ForwardExpected expect_forward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic, int threads, const Excerpt* excerpt,
                               Roundings roundings) {
  const auto compute = problem.dtype == DType::f64 ? forward<long double> : forward<double>;
  return compute({problem, inputs, arithmetic, threads, excerpt, roundings});
}

BackwardExpected expect_backward(const Problem& problem, const Inputs& inputs,
                                 const Arithmetic& arithmetic, int threads, const Excerpt* excerpt,
                                 Roundings roundings) {
  const auto compute = problem.dtype == DType::f64 ? backward<long double> : backward<double>;
  return compute({problem, inputs, arithmetic, threads, excerpt, roundings}, nullptr);
}

PassesExpected expect_passes(const Problem& problem, const Inputs& inputs,
                             const Arithmetic& arithmetic, int threads, const Excerpt* excerpt) {
  const auto compute = problem.dtype == DType::f64 ? backward<long double> : backward<double>;
  PassesExpected passes;
  passes.backward =
      compute({problem, inputs, arithmetic, threads, excerpt, Roundings::all}, &passes.forward);
  return passes;
}

}  // namespace attest
