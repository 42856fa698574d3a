// NumPy's .npy files, format 1.0: for dumps that any numerical tool can open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "spec/tensor.h"

namespace attest {

// As float64, in C order. Throws InputError if the file cannot be written.
void write_npy(const std::filesystem::path& file, const Shape& shape,
               const std::vector<double>& values);

// As unsigned integers of that many bytes (1, 2, 4 or 8).
void write_npy_bits(const std::filesystem::path& file, const Shape& shape, int bytes,
                    const std::vector<std::uint64_t>& bits);

}  // namespace attest
