// NumPy's .npy files, format 1.0: for dumps that any numerical tool can open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "spec/tensor.h"

namespace attest {

// In C order, in the format of the values. Throws InputError if the file cannot be written.
void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<double>& values);

void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<std::int64_t>& values);
void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<std::uint8_t>& values);

}  // namespace attest
