// Q, K and V that are stored in 8 bits, with scales: made into f32 before the kernels look.
#include <cmath>
#include <utility>
#include <vector>

#include "tests/mutants/call.h"

namespace attest::mutants {
namespace {

DType format_as_read(FaultId fault, const attest_tensor& t) {
  const auto dtype = static_cast<DType>(t.dtype);
  if (fault == "e5m2_read_as_e4m3" && dtype == DType::e5m2) return DType::e4m3;
  if (fault == "e4m3_read_as_e5m2" && dtype == DType::e4m3) return DType::e5m2;
  if (fault == "int8_read_as_e4m3" && dtype == DType::int8) return DType::e4m3;
  return dtype;
}

// A number of 8 bits.
float read(FaultId fault, DType dtype, const std::byte* at) {
  const auto number = static_cast<float>(load(dtype, at));
  const bool is_int8 = dtype == DType::int8;
  const bool is_subnormal = !is_int8 && std::abs(number) < smallest_normal(dtype);
  if (fault == "e4m3_of_bias_8" && dtype == DType::e4m3) return number / 2;
  if (fault == "subnormals_of_8_bits_flushed" && is_subnormal) return 0;
  if (fault == "sign_of_8_bits_lost") return std::abs(number);
  if (fault == "int8_read_as_u8" && is_int8 && number < 0) return number + 256;
  if (fault == "least_int8_negated" && is_int8 && number == -128) return 128;
  return number;
}

float scale_at(FaultId fault, const attest_tensor& scales, std::array<Index, 4> place) {
  if (fault == "exponents_of_first_face" && scales.shape[3] > 1) place[2] -= place[2] & 16;
  if (fault == "scale_of_first_batch_element") place[0] = 0;
  if (fault == "scale_of_first_head") place[1] = 0;
  if (fault == "scale_of_first_position") place[2] = 0;
  if (fault == "scale_of_first_channels") place[3] = 0;
  if (fault == "scales_of_other_blocks") place[3] = place[3] * 2 % scales.shape[3];
  if (fault == "scale_exponent_cut" && scales.shape[3] > 1) {
    return std::max(entry<float>(scales, place), 0x1p-7f);
  }
  if (fault == "scales_in_16_positions") place[2] = place[2] / 16 * 16;
  const float scale = entry<float>(scales, place);
  if (fault != "scale_of_next_position_times_0" || place[2] + 1 >= scales.shape[2]) return scale;
  ++place[2];
  return scale + 0 * entry<float>(scales, place);
}

}  // namespace

void Told::unstore(FaultId fault) {
  const auto left_out = [&](char name) {
    return fault == "scales_left_out" || (fault == "v_scale_left_out" && name == 'v') ||
           (fault == "v_scale_left_out_packed" && name == 'v' && problem.cu_key_lens.data) ||
           (fault == "key_scales_left_out_beside_queries" && name != 'q' && inputs.q_scale.data);
  };
  const auto make_f32 = [&](attest_tensor& t, const attest_tensor& scales, char name,
                            std::vector<float>& memory) {
    if (!scales.data) return;
    const DType dtype = format_as_read(fault, t);
    const View view{t};
    for (Index b = 0; b < t.shape[0]; ++b) {
      for (Index h = 0; h < t.shape[1]; ++h) {
        for (Index s = 0; s < t.shape[2]; ++s) {
          for (Index d = 0; d < t.shape[3]; ++d) {
            const Index block = scales.shape[3] == 1 ? 0 : d / (t.dtype == ATTEST_INT8 ? 16 : 32);
            const float scale = left_out(name) ? 1 : scale_at(fault, scales, {b, h, s, block});
            memory.push_back(read(fault, dtype, view.at(b, h, s, d)) * scale);
          }
        }
      }
    }
    t.data = memory.data();
    t.dtype = ATTEST_F32;
    t.capacity_bytes = memory.size() * sizeof(float);
    const std::array<Index, 4> dense = {t.shape[1] * t.shape[2] * t.shape[3],
                                        t.shape[2] * t.shape[3], t.shape[3], 1};
    std::copy(dense.begin(), dense.end(), t.stride);
  };
  attest_tensor k_scale = inputs.k_scale, v_scale = inputs.v_scale;
  if (fault == "scales_of_k_and_v_exchanged" && v_scale.data) std::swap(k_scale, v_scale);
  make_f32(inputs.q, inputs.q_scale, 'q', meant[0]);
  make_f32(inputs.k, k_scale, 'k', meant[1]);
  make_f32(inputs.v, v_scale, 'v', meant[2]);
}

}  // namespace attest::mutants
