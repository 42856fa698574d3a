#include "cases/stored_inputs.h"

#include <algorithm>
#include <cmath>

#include "cases/random_source.h"

namespace attest {
namespace {

// A tensor that may be stored so, with its scales.
struct Part {
  const std::optional<Stored>& stored;
  Values &values, &scales;
  TensorName scales_name;
  const Layout& layout;
};
std::array<Part, 3> parts_of(const Problem& p, Inputs& in) {
  return {Part{p.stored.q, in.q, in.q_scale, TensorName::q_scale, p.layouts.q},
          Part{p.stored.k, in.k, in.k_scale, TensorName::k_scale, p.layouts.k},
          Part{p.stored.v, in.v, in.v_scale, TensorName::v_scale, p.layouts.v}};
}

}  // namespace

std::vector<bool> scales_in_use(const Problem& p, const Shape& of, const Shape& scales,
                                bool of_keys) {
  std::vector<bool> used(static_cast<std::size_t>(element_count(scales)));
  for (Index b = 0; b < p.batch; ++b) {
    const Index rows = of_keys ? p.lengths(b).key : p.lengths(b).query;
    for (Index row = 0; row < rows; ++row) {
      const Place place = of_keys ? p.key_place(b, row) : p.query_place(b, row);
      for (Index h = 0; h < of[kHead]; ++h) {
        const Index first = broadcast_index(scales, place.batch, h, place.position, 0);
        std::fill_n(used.begin() + first, scales[kChannel], true);
      }
    }
  }
  return used;
}

void make_scales(const Case& test_case, Inputs& inputs) {
  for (const Part& part : parts_of(test_case.problem, inputs)) {
    if (!part.stored) continue;
    part.scales = zeros(part.stored->scale_shape(part.values.shape));
    for_each_with_scale(part.values, part.scales, [](double value, double& largest) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    });
    const auto key = key_of(test_case, part.scales_name);
    for (std::size_t n = 0; n < part.scales.data.size(); ++n) {
      double& scale = part.scales.data[n];
      // Numbers that an expanded axis shares have one scale.
      const auto [b, h, s, d] =
          canonical(part.layout, coordinates(part.scales.shape, static_cast<Index>(n)));
      const double room =
          1 + ElementRandom(key, dense_index(part.scales.shape, b, h, s, d), 0).uniform();
      const DType dtype = part.stored->dtype;
      const double most =
          test_case.extras.least_numbers ? smallest_normal(dtype) : largest_finite(dtype);
      const double of_room = dtype == DType::int8 ? 0.75 : 1;
      double fitting = scale == 0 ? room : scale / most * room * of_room;
      // As formats of blocks have it: the largest number has the largest exponent. Some have up to
      // three more, lest blocks of like numbers have one scale.
      if (part.stored->by_channels) {
        fitting = scale == 0 ? 1 : power_of_two(exponent_of(scale) - exponent_of(most));
        fitting *= power_of_two(static_cast<int>(4 * (room - 1)));
      }
      scale = round_to(DType::f32, std::clamp(fitting, kLeastScale, kMostScale));
    }
  }
}

void round_to_scales(const Problem& problem, Inputs& inputs) {
  for (const Part& part : parts_of(problem, inputs)) {
    if (!part.stored) continue;
    const DType dtype = part.stored->dtype;
    const bool has_one_more = dtype == DType::int8 && !part.stored->by_channels;
    const double most = largest_finite(dtype), least = has_one_more ? -128 : -most;
    for_each_with_scale(part.values, part.scales, [&](double& value, double scale) {
      if (std::isnan(scale)) {
        value = scale;
        return;
      }
      if (std::isfinite(value)) value = std::clamp(value / scale, least, most);
      value = round_to(dtype, value) * scale;
    });
  }
}

}  // namespace attest
