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
  std::vector<Index> query_groups() const {
    return wanted_groups(problem.query_len, excerpt ? &excerpt->query_groups : nullptr);
  }
};

// The key heads of all batch elements, batch outermost.
template <class Real>
std::vector<KeyHead<Real>> pack_key_heads(const Context<Real>& context, int threads) {
  const Problem& problem = context.problem;
  std::vector<KeyHead<Real>> heads(at(problem.batch * problem.key_heads));
  for_each_task(Index(heads.size()), threads, [&](Index task, int) {
    heads[at(task)] = pack_key_head(problem, context.inputs, context.model,
                                    task / problem.key_heads, task % problem.key_heads);
  });
  return heads;
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
  const Model<Real> model(problem, request.arithmetic, request.roundings);
  const Context<Real> context = {problem, request.inputs, model};
  const auto key_heads = pack_key_heads(context, threads);
  std::vector<Block<Real>> blocks(at(threads));
  const std::vector<Index> groups = request.query_groups();
  for_each_task(heads * Index(groups.size()), threads, [&](Index task, int worker) {
    Block<Real>& block = blocks[at(worker)];
    const Index head = task / Index(groups.size());
    block.b = head / problem.query_heads;
    block.h = head % problem.query_heads;
    block.begin = groups[at(task) % groups.size()] * kRows;
    block.count = std::min(kRows, problem.lengths(block.b).query - block.begin);
    if (block.count <= 0) return;
    const Index key_head = block.h / problem.group_size();
    forward_block(context, key_heads[at(block.b * problem.key_heads + key_head)], block);
    put_forward(problem, model, block, result);
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

// In the order of its steps: add_parts, sums_may_overflow, put_sums.
template <class Real>
class BackwardPass {
 public:
  // `forward` is where that pass is put down, if it is wanted.
  BackwardPass(const Request& request, BackwardExpected& result, ForwardExpected* forward)
      : problem_(request.problem),
        threads_(worthwhile_threads(problem_, request.threads)),
        model_(problem_, request.arithmetic, request.roundings),
        context_({problem_, request.inputs, model_}),
        key_heads_(pack_key_heads(context_, threads_)),
        query_groups_(request.query_groups()),
        keys_(wanted_keys(problem_, request.excerpt)),
        by_head_(model_.declared.rounds_head_gradients && problem_.group_size() > 1),
        parts_(problem_, by_head_),
        of_scores_(problem_),
        result_(result),
        forward_(forward) {}

  void add_parts(bool with_sizes) {
    const Index tasks = Index(key_heads_.size()) * parts_.count;
    sums_.clear();
    sums_.resize(at(tasks));
    of_scores_ = ScoreGradients<Real>(problem_);
    std::vector<Block<Real>> blocks(at(threads_));
    for_each_task(tasks, threads_, [&](Index task, int worker) {
      const Index head = task / parts_.count;
      auto sum = std::make_unique<KeyGradients<Real>>(
          problem_, problem_.lengths(head / problem_.key_heads).key, with_sizes);
      add_part(head, task % parts_.count, blocks[at(worker)], *sum);
      sums_[at(task)] = std::move(sum);
    });
  }

  // Whether a sum over rows may overflow on its way.
  bool sums_may_overflow() const {
    const Real overflow = std::min(model_.sum_overflow, model_.stored.overflow);
    for (std::size_t first = 0; first < sums_.size(); first += at(parts_.count)) {
      Real most = 0;
      for (std::size_t part = 0; part < at(parts_.count); ++part) most += sums_[first + part]->most;
      if (most >= overflow) return true;
    }
    return false;
  }

  void put_sums() {
    for_each_task(Index(key_heads_.size()), threads_, [&](Index head, int) {
      const Index b = head / problem_.key_heads, h = head % problem_.key_heads;
      KeyGradients<Real>& sum = *sums_[at(head * parts_.count)];
      for (Index part = 1; part < parts_.count; ++part) {
        sum.add(*sums_[at(head * parts_.count + part)]);
      }
      finish(problem_, model_, b, sum);
      for (const Range& wanted : keys_) put_keys(problem_, model_, b, h, wanted, sum, result_);
    });
    if (problem_.bias_shape) of_scores_.put_bias(problem_, model_, result_.dbias);
    if (problem_.sink) of_scores_.put_sink(problem_, model_, result_.dsink);
  }

 private:
  // One part of the rows that read a key head; puts down their dQ.
  void add_part(Index head, Index part, Block<Real>& block, KeyGradients<Real>& sum) {
    const KeyHead<Real>& key_head = key_heads_[at(head)];
    block.b = head / problem_.key_heads;
    const Index queries = problem_.lengths(block.b).query;
    const Range numbers = parts_.blocks(part);
    for (Index n = numbers.begin; n < numbers.end; ++n) {
      const Index group = n % parts_.blocks_of_head;
      block.h = head % problem_.key_heads * problem_.group_size() + n / parts_.blocks_of_head;
      block.begin = group * kRows;
      block.count = std::min(kRows, queries - block.begin);
      if (block.count <= 0) continue;
      const bool with_dq = std::binary_search(query_groups_.begin(), query_groups_.end(), group);
      forward_block(context_, key_head, block);
      if (forward_ && with_dq) put_forward(problem_, model_, block, *forward_);
      backward_block(context_, key_head, with_dq, keys_, block, sum);
      of_scores_.add(problem_, block);
      if (with_dq) put_dq(problem_, model_, block, result_.dq);
    }
    if (by_head_) round_head(problem_, model_, block.b, sum);
  }

  const Problem& problem_;
  int threads_;
  Model<Real> model_;
  Context<Real> context_;
  std::vector<KeyHead<Real>> key_heads_;
  std::vector<Index> query_groups_;
  std::vector<Range> keys_;
  bool by_head_;  // heads are rounded one by one, and each is a part
  Parts parts_;
  std::vector<std::unique_ptr<KeyGradients<Real>>> sums_;  // of each part of each key head
  ScoreGradients<Real> of_scores_;
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
  BackwardPass<Real> pass(request, result, forward);
  pass.add_parts(false);
  if (pass.sums_may_overflow()) pass.add_parts(true);  // seldom: once more, with the sums' sizes
  pass.put_sums();
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
