#include "impl/vendor/splash/grid.h"

#include <cstring>

#include "impl/vendor/device/error.h"

namespace attest::vendor::splash {

ScalarTable::ScalarTable(TensorCore& core, const std::string& name, const BlockTable& table)
    : rows_(table.rows),
      columns_(table.columns),
      itemsize_(table.itemsize),
      bytes_(core.smem.take<std::uint8_t>(name, static_cast<std::size_t>(table.bytes()))) {
  std::uint8_t* to = bytes_.data();
  for (const std::int32_t entry : table.entries) {
    std::memcpy(to, &entry, static_cast<std::size_t>(itemsize_));  // the low bytes come first
    to += itemsize_;
  }
}

std::int64_t ScalarTable::at(std::int64_t head, std::int64_t row, std::int64_t column) const {
  const std::int64_t place = ((head * rows_ + row) * columns_ + column) * itemsize_;
  std::int32_t entry = 0;
  for (std::int64_t byte = 0; byte < itemsize_; ++byte) {
    entry |= bytes_[static_cast<std::size_t>(place + byte)] << (8 * byte);
  }
  return entry;
}

NextNonzero::NextNonzero(TensorCore& core, const MaskInfo& info)
    : heads_(info.data_next.heads),
      data_next_(core, "data_next", info.data_next),
      block_mask_(core, "block_mask", info.block_mask) {
  if (info.mask_next) mask_next_.emplace_back(core, "mask_next", *info.mask_next);
}

GridStep NextNonzero::operator()(std::int64_t head, std::int64_t row, std::int64_t column) const {
  const std::int64_t h = heads_ == 1 ? 0 : head;
  const std::int64_t seen = block_mask_.at(h, row, column);
  return {.block = data_next_.at(h, row, column),
          .partial_block = mask_next_.empty() ? 0 : mask_next_[0].at(h, row, column),
          .should_run = seen > 0,
          .should_not_mask = mask_next_.empty() || seen != 1};
}

void AscendingBlocks::run(std::int64_t block, std::int64_t blocks) {
  if (block >= blocks) {
    throw device::DeviceError("grid", "block " + std::to_string(block) + " of " +
                                          std::to_string(blocks) + " is asked for");
  }
  if (block <= last_) {
    throw device::DeviceError(
        "grid", "block " + std::to_string(block) + " comes after block " + std::to_string(last_));
  }
  last_ = block;
}

}  // namespace attest::vendor::splash
