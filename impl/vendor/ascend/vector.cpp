#include "impl/vendor/ascend/vector.h"

#include <algorithm>
#include <cmath>

namespace attest::vendor::ascend {

namespace {

float flushed(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? 0.0F : x; }

template <class Each>
void for_rows(UbTile x, const Each& each) {
  for (int64_t m = 0; m < x.rows; ++m) {
    float* row = x.row(m);
    for (int64_t n = 0; n < x.columns; ++n) each(row[n], m, n);
  }
}

}  // namespace

void VectorCore::load(Gm from, int64_t rows, int64_t bytes, int64_t stride, std::byte* to,
                      int64_t to_stride) {
  core_.vector_mte2.unit().wait_until(core_.vector.now);
  load_rows(core_.vector_mte2, numbers_ ? from : Gm{nullptr, from.address}, rows, bytes, stride, to,
            to_stride);
  core_.vector.wait_until(core_.vector_mte2.unit().now);
}

void VectorCore::store(const std::byte* from, int64_t from_stride, Gm to, int64_t rows,
                       int64_t bytes, int64_t stride) {
  core_.mte3.unit().wait_until(core_.vector.now);
  store_rows(core_.mte3, from, from_stride, numbers_ ? to : Gm{nullptr, to.address}, rows, bytes,
             stride);
}

void VectorCore::muls(UbTile x, float factor) {
  op(x.rows * x.columns);
  if (numbers_) for_rows(x, [&](float& v, int64_t, int64_t) { v *= factor; });
}
void VectorCore::mul(UbTile x, UbTile y) {
  op(x.rows * x.columns);
  if (numbers_) for_rows(x, [&](float& v, int64_t m, int64_t n) { v *= y.row(m)[n]; });
}
void VectorCore::add(UbTile x, UbTile y) {
  op(x.rows * x.columns);
  if (numbers_) for_rows(x, [&](float& v, int64_t m, int64_t n) { v += y.row(m)[n]; });
}
void VectorCore::sub_of_row(UbTile x, const float* of_row) {
  op(x.rows * x.columns);
  if (numbers_) for_rows(x, [&](float& v, int64_t m, int64_t) { v -= of_row[m]; });
}
void VectorCore::mul_of_row(UbTile x, const float* of_row) {
  op(x.rows * x.columns);
  if (numbers_) for_rows(x, [&](float& v, int64_t m, int64_t) { v *= of_row[m]; });
}
void VectorCore::div_of_row(UbTile x, const float* of_row) {
  op(x.rows * x.columns);
  if (numbers_) for_rows(x, [&](float& v, int64_t m, int64_t) { v = flushed(v / of_row[m]); });
}
void VectorCore::exp(UbTile x) {
  op(x.rows * x.columns);
  if (numbers_) for_rows(x, [](float& v, int64_t, int64_t) { v = flushed(std::exp(v)); });
}
void VectorCore::select(UbTile x, const std::uint8_t* hidden, int64_t stride) {
  op(x.rows * x.columns);
  if (!numbers_) return;
  for_rows(x, [&](float& v, int64_t m, int64_t n) {
    if (hidden[m * stride + n]) v = kHidden;
  });
}
void VectorCore::dropout(UbTile x, const Bits& keep, float keep_prob) {
  op(x.rows * x.columns);  // Muls
  op(x.rows * x.columns);  // Select
  if (!numbers_) return;
  const float factor = 1 / keep_prob;
  for_rows(x, [&](float& v, int64_t m, int64_t n) {
    const int64_t bit = keep.first + m * keep.stride + n;
    const bool kept = std::to_integer<unsigned>(keep.data[bit / 8]) >> (bit % 8) & 1U;
    v = kept ? v * factor : 0;
  });
}
void VectorCore::max_of_row(UbTile x, float* of_row) {
  op(x.rows * x.columns);
  if (numbers_)
    for_rows(x, [&](float& v, int64_t m, int64_t) { of_row[m] = std::max(of_row[m], v); });
}
void VectorCore::sum_of_row(UbTile x, float* of_row) {
  op(x.rows * x.columns);
  if (!numbers_) return;
  std::fill(of_row, of_row + x.rows, 0.0F);
  for_rows(x, [&](float& v, int64_t m, int64_t) { of_row[m] += v; });
}
void VectorCore::cast(UbTile x, DataType type, std::byte* to) {
  if (type != DataType::kFloat) op(x.rows * x.columns);
  if (!numbers_) return;
  for (int64_t m = 0; m < x.rows; ++m)
    narrow(x.row(m), x.columns, type, to + m * x.columns * bytes_of(type));
}
void VectorCore::cast_from(const std::byte* from, DataType type, UbTile x) {
  if (type != DataType::kFloat) op(x.rows * x.columns);
  if (!numbers_) return;
  for (int64_t m = 0; m < x.rows; ++m)
    widen(from + m * x.columns * bytes_of(type), type, x.columns, x.row(m));
}

}  // namespace attest::vendor::ascend
