// The bench on which a testee is tried: problems with numbers made by hand, asked whatever its
// declaration says of them.
//
// What it takes at all was found before: a plain problem of each format, on which all questions of
// arithmetic are asked. It has some real keys, and beside them far ones, which fill it up to a size
// that is taken and whose weights are exactly 0.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/trial.h"
#include "harness/process/executor.h"
#include "harness/process/testee.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// The score of a far key.
inline constexpr double kFar = -16384;

// How a call went that told nothing, and was no refusal.
struct Breakdown {
  enum class Kind { crashed, hung, unwritten, other };
  Kind kind = Kind::other;
  std::string words = {};  // "it crashed at f32 b1 ...: forward: killed by signal 11"
  std::string problem = {};
};

// What a testee made of a problem.
struct Reaction {
  // Why there is nothing to look at, in its words or ours; empty if there is.
  std::string refused = {};
  std::optional<Breakdown> broke = {};  // it did not refuse: it took it, and broke down
  std::string printed = {};             // by a testee that refused, with an introduction
  Trial trial = {};

  bool taken() const { return refused.empty(); }
  const Returned* find(TensorName tensor) const;
  // Element of a returned tensor; NaN if it did not return that, or never wrote it.
  double at(TensorName tensor, Index b, Index h, Index s, Index c) const;
  bool is_written(TensorName tensor, Index b, Index h, Index s, Index c) const;
};

// The smallest problem that it takes of those that were tried.
struct Plain {
  Index head_dim = 0, value_dim = 0;
  Index query_heads = 1, key_heads = 1;
  Index query_step = 1, key_step = 1;  // lengths are multiples
  enum class Lengths { any, keys_at_least_queries, square } lengths = Lengths::any;
  Mask mask = Mask::full();
  std::string order = "bhsd";
  // How Q, K and V are stored in 8 bits, in the words of case files, by who takes nothing else:
  // numbers by hand are rounded to that, so that nothing is asked of its arithmetic.
  std::string stored = {};

  bool is_square() const { return lengths == Lengths::square || mask.kind != Mask::Kind::full; }
  // Both lengths, at least as large as these. Of a square both corners of a causal mask are one.
  attest::Lengths fitted(Index queries, Index keys) const;
};

// A problem of the plain kind, whose numbers are all 0 until an experiment sets some.
struct Stage {
  Problem problem;
  Inputs inputs;
  Index first;  // the first row that sees all real keys: experiments have the rows from there on

  double& q(Index row, Index c) { return inputs.q.at(0, 0, first + row, c); }
  double& k(Index key, Index c) { return inputs.k.at(0, 0, key, c); }
  double& v(Index key, Index c) { return inputs.v.at(0, 0, key, c); }
  double& d_o(Index row, Index c) { return inputs.d_o.at(0, 0, first + row, c); }
};

class Bench {
 public:
  Bench(const Testee& testee, Executor& executor, int threads,
        std::function<bool()> interrupted = {});

  // Finds the plain problem of each of these formats, or of all. Returns, of those of which there
  // is none, why the first that was tried was not taken, a line for each.
  std::string set_up(const std::vector<DType>& formats);

  // Both passes if the problem has them. Throws Interrupted once that is asked for.
  Reaction ask(const Problem& problem, const Inputs& inputs, int threads = 0);
  std::vector<DType> formats() const;
  // In which questions of no format are asked: f32 if it takes that.
  DType telling_format() const;
  const Plain& plain(DType dtype) const { return plain_.at(dtype); }
  // `rows` rows of experiments that see `real` keys, among `keys` at least.
  Stage stage(DType dtype, Index rows, Index real, Index keys = 64, bool backward = false) const;
  Reaction ask(const Stage& stage, int threads = 0) {
    return ask(stage.problem, stage.inputs, threads);
  }

  // What a row of experiments, a key returned.
  static double of_row(const Reaction& reaction, TensorName tensor, const Stage& stage, Index row,
                       Index c = 0) {
    return reaction.at(tensor, 0, 0, stage.first + row, c);
  }

  const Testee& testee() const { return testee_; }
  // As calls are made: all features, no limits, the dialect that was found.
  Description& terms() { return terms_; }
  const Description& terms() const { return terms_; }
  int threads() const { return threads_; }
  // Whether calls are measured, and ask for blocks.
  bool measures = false, traces = false;
  bool has_backward = false;
  bool returns_lse() const { return no_lse.empty(); }
  std::string no_lse = "LSE was not looked at";  // why LSE tells nothing; empty if it does
  // All calls that broke down, in their order.
  const std::vector<Breakdown>& breakdowns() const { return breakdowns_; }

 private:
  // Whether it takes the problem, without calling it; what a call came to that did not.
  void ask_support(const Problem& problem, std::string& captured, Reaction& reaction);
  void break_down(const Problem& problem, const Finding& finding, const std::string& captured,
                  Reaction& reaction);
  // Why the first that was tried was not taken goes to `why`; whether what is found is written
  // throughout, to `writes`.
  std::optional<Plain> find_plain(DType dtype, const std::string& stored, std::string& why,
                                  bool& writes);

  const Testee& testee_;
  Executor& executor_;
  int threads_;
  std::function<bool()> interrupted_;
  Description terms_;
  std::map<DType, Plain> plain_;
  std::vector<Breakdown> breakdowns_;
  int hung_ = 0;
};

// Numbers of the shapes of a problem, all 0; slopes, sinks and a keep-mask that keeps all among
// them.
Inputs zero_inputs(const Problem& problem);

}  // namespace attest
