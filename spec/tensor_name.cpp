#include "spec/tensor_name.h"

namespace attest {
namespace {

struct Spelling {
  TensorName tensor;
  std::string_view wire, paper;
};

// In the order of the enumerators.
constexpr std::array kSpellings = {
    Spelling{TensorName::q, "q", "Q"},
    Spelling{TensorName::k, "k", "K"},
    Spelling{TensorName::v, "v", "V"},
    Spelling{TensorName::bias, "bias", "bias"},
    Spelling{TensorName::slopes, "slopes", "slopes"},
    Spelling{TensorName::sink, "sink", "sink"},
    Spelling{TensorName::keep, "keep", "keep"},
    Spelling{TensorName::d_o, "d_o", "dO"},
    Spelling{TensorName::d_lse, "d_lse", "dLSE"},
    Spelling{TensorName::o, "o", "O"},
    Spelling{TensorName::lse, "lse", "LSE"},
    Spelling{TensorName::dq, "dq", "dQ"},
    Spelling{TensorName::dk, "dk", "dK"},
    Spelling{TensorName::dv, "dv", "dV"},
    Spelling{TensorName::dbias, "dbias", "dBias"},
    Spelling{TensorName::dsink, "dsink", "dSink"},
    Spelling{TensorName::maximum, "maximum", "maximum"},
    Spelling{TensorName::sum, "sum", "sum"},
    Spelling{TensorName::q_scale, "q_scale", "scales of Q"},
    Spelling{TensorName::k_scale, "k_scale", "scales of K"},
    Spelling{TensorName::v_scale, "v_scale", "scales of V"},
};

constexpr bool in_order() {
  for (std::size_t n = 0; n < kSpellings.size(); ++n) {
    if (kSpellings[n].tensor != static_cast<TensorName>(n)) return false;
  }
  return true;
}
static_assert(in_order());

const Spelling& spelling_of(TensorName tensor) {
  return kSpellings[static_cast<std::size_t>(tensor)];
}

}  // namespace

std::string wire_name(TensorName tensor) { return std::string(spelling_of(tensor).wire); }

std::string_view name(TensorName tensor) { return spelling_of(tensor).paper; }

std::optional<TensorName> tensor_named(std::string_view text) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.paper == text) return spelling.tensor;
  }
  return std::nullopt;
}

}  // namespace attest
