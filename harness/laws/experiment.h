// What a law is tried on: the problem of a case, what the testee returned for it, and a way to try
// further problems. Results are compared as intervals that hold the exact values (known.h); the
// reference lends its bounds, never its values, so that the testee is judged against itself.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "harness/judge/exemptions.h"
#include "harness/judge/trial.h"
#include "harness/laws/known.h"
#include "reference/coarse.h"
#include "reference/reach.h"
#include "reference/working.h"

namespace attest::laws {

// Where an element is stored: batch, head, position, channel.
using At = std::array<Index, 4>;

// A problem that is made from another one.
struct Variant {
  Problem problem;
  Inputs inputs;
};

// One returned tensor, with the bound of each element.
class Result {
 public:
  Result(const Returned& tensor, const Expected& expected, Rounding rounding,
         const Exemptions& exemptions)
      : tensor_(tensor), expected_(expected), rounding_(rounding), exemptions_(exemptions) {}

  TensorName name() const { return tensor_.name; }
  const Shape& shape() const { return tensor_.shape; }
  // Nothing is known where nothing is specified, or the testee is not judged.
  Known at(const At& place) const;
  // What rounds to it: no error but that of the format.
  Known cell(const At& place) const;
  double value(const At& place) const { return decode(tensor_.dtype, bits(place)); }
  std::uint64_t bits(const At& place) const {
    return tensor_.bits[static_cast<std::size_t>(
        dense_index(tensor_.shape, place[0], place[1], place[2], place[3]))];
  }
  bool is_judged(const At& place) const;

 private:
  const Returned& tensor_;
  const Expected& expected_;
  Rounding rounding_;
  const Exemptions& exemptions_;
};

// The bounds of one problem, computed when they are first asked for.
struct Bounds {
  std::function<const ForwardExpected&()> forward;
  std::function<const BackwardExpected&()> backward;
  // Of the sums of dK and dV over keys; empty: what the bounds of their elements add up to.
  std::function<const KeySums&()> sums = {};
};

// Those of the reference; and those of a problem that is too long for it (reference/coarse.h). What
// is referred to must outlive them.
Bounds reference_bounds(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic);
Bounds coarse_bounds(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic);

// One problem with what came of it.
class Sample {
 public:
  // All that is referred to must outlive the sample.
  Sample(const Problem& problem, const Inputs& inputs, const Trial& trial,
         const Description& testee, const Arithmetic& arithmetic, Bounds bounds);

  const Problem& problem() const { return problem_; }
  const Inputs& inputs() const { return inputs_; }
  const Trial& trial() const { return trial_; }

  // Whether it is too long for the reference, and for any walk over its score matrix.
  bool is_long() const { return static_cast<bool>(bounds_.sums); }

  bool has(TensorName tensor) const;
  Result operator[](TensorName tensor) const;
  // Of query i of a batch element and head.
  Known o(const Position& row, Index c) const;
  Known lse(const Position& row) const;
  // A channel of dK or dV, over all keys of a batch element and key head.
  Known sum_over_keys(TensorName tensor, Index b, Index h, Index c) const;

  // Whether the row sees the key: the mask, the lengths, and no bias of -inf.
  bool sees(const Position& at) const;
  bool sees_any(Position row) const;

 private:
  const Problem& problem_;
  const Inputs& inputs_;
  const Trial& trial_;
  Arithmetic arithmetic_;
  Exemptions exemptions_;
  Bounds bounds_;
};

// Which query of another problem a query is, or which key; none if it has no counterpart.
using Counterpart = std::function<std::optional<Place>(Index b, Index position)>;
inline std::optional<Place> same_place(Index b, Index position) { return Place{b, position}; }

class Experiment {
 public:
  Experiment(const Calling& calling, const Arithmetic& arithmetic, const Sample& first)
      : calling_(calling), arithmetic_(arithmetic), first_(first) {}

  const Sample& first() const { return first_; }
  const Description& testee() const { return calling_.testee; }
  bool deterministic() const { return arithmetic_.deterministic; }
  // In the format of the inputs.
  bool stores_scores() const { return arithmetic_.scores.roundoff > 0; }

  // What the testee makes of another problem; null if it refuses it, or came to no end. `between`,
  // which it took before: what is called between the forward and the backward call.
  const Sample* attempt(Variant variant, const Variant* between = nullptr);

  // ---- Comparisons: each may break the law. `how` says in which way the right side came about.

  void expect_equal(TensorName tensor, const At& place, const Known& left, const Known& right,
                    const std::string& how);
  // The same of a gradient's sum along a direction; recorded.
  void expect_slope(TensorName tensor, const Known& analytic, const Known& difference);
  // The bits of both are the same (+0 is -0).
  void expect_same_bits(const Result& left, const At& place, const Result& right,
                        const At& other_place, const std::string& how);
  // The number itself, which has no error.
  void expect_exactly(const Result& result, const At& place, double value, const std::string& how);

  // A number, where it has a bound; an infinity only if no size up to `most` rules it out.
  void expect_finite(const Result& result, const At& place, double most);

  // The rows of `variant`: O, LSE and dQ, as far as both samples have them; its keys: dK and dV. Of
  // a deterministic kernel `bits` demands the same ones.
  void expect_same_rows(const Sample& base, const Sample& variant, const Counterpart& of_base,
                        const std::string& how, bool bits = false);
  void expect_same_keys(const Sample& base, const Sample& variant, const Counterpart& of_base,
                        const std::string& how, bool bits = false);
  // All elements of a tensor that both have in one shape.
  void expect_same(const Sample& base, const Sample& variant, TensorName tensor,
                   const std::string& how, bool bits = false);

  // ---- What came of it.

  struct Tally {
    std::optional<Finding> stopped = {};     // a trial that came to no end, or a wrong refusal
    std::string refused = {};                // why a variant could not be tried
    std::string broken = {};                 // the worst comparison that failed, in words
    Index compared = 0;                      // that could have failed
    std::vector<SlopeEvidence> slopes = {};  // for the record, kept or broken
  };
  const Tally& tally() const { return tally_; }

 private:
  struct Attempt;

  const Calling& calling_;
  const Arithmetic& arithmetic_;
  const Sample& first_;
  std::vector<std::shared_ptr<Attempt>> attempts_;
  Tally tally_;
  double worst_ = 0;
};

}  // namespace attest::laws
