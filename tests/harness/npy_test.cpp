#include "harness/vectors/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "spec/json_reader.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file of format 1.0 with that header and those bytes.
std::string file_of(std::string header, const std::string& data, char version = 1) {
  header += '\n';
  std::string file = "\x93NUMPY";
  file += {version, 0, static_cast<char>(header.size()), static_cast<char>(header.size() >> 8)};
  if (version > 1) file += std::string(2, '\0');
  return file + header + data;
}

std::string complaint(const std::string& file) {
  try {
    parse_npy(file);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(NpyTest, FileHasTheFormatsHeaderAndThenTheNumbers) {
  const std::string text = npy_of({1, 2, 1, 3}, std::vector<double>{0, 1, 2, 3, 4, 5.5});
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t header =
      static_cast<unsigned char>(text[8]) + 256u * static_cast<unsigned char>(text[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  const std::string description = text.substr(10, header);
  EXPECT_EQ(description.back(), '\n');
  EXPECT_EQ(description.find("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 1, 3), }"),
            0u);
  ASSERT_EQ(text.size(), 10 + header + 6 * sizeof(double));
  double last;
  std::memcpy(&last, text.data() + text.size() - sizeof(double), sizeof(double));
  EXPECT_EQ(last, 5.5);
}

TEST(NpyTest, WholeNumbersKeepTheirSignAndFlagsTheirByte) {
  std::string text = npy_of({1, 1, 1, 2}, std::vector<std::int64_t>{1, -2});
  EXPECT_NE(text.find("'<i8'"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 8), "\xfe\xff\xff\xff\xff\xff\xff\xff");
  text = npy_of({1, 1, 1, 2}, std::vector<std::uint8_t>{0, 1});
  EXPECT_NE(text.find("'|u1'"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 2), std::string("\0\1", 2));
}

TEST(NpyTest, ReadsWhatItWritesInEveryFormat) {
  for (const DType dtype : kDTypes) {
    const std::vector<double> values = {0, -1.5, 2, 0.25, -0.0, 1024};
    const NpyArray array = parse_npy(npy_of({1, 2, 1, 3}, values, dtype));
    EXPECT_EQ(array.kind, dtype == DType::bf16 ? 'u' : 'f');
    EXPECT_EQ(array.width, static_cast<std::size_t>(format_of(dtype).bytes));
    EXPECT_THAT(array.shape, ElementsAre(1, 2, 1, 3));
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(decode(dtype, array.bits[i]), values[i]);
    }
  }
}

// As numpy.save writes them: the transpose of [[1, 2, 3], [4, 5, 6]]; big-endian; ml_dtypes' bf16.
TEST(NpyTest, ReadsEitherOrderAndByteOrder) {
  const std::string rows("\1\2\3\4\5\6", 6);
  EXPECT_THAT(
      parse_npy(file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (3, 2), }", rows)).bits,
      ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(
      parse_npy(file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }", rows)).bits,
      ElementsAre(1, 2, 3, 4, 5, 6));
  const NpyArray big = parse_npy(
      file_of("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", {'\x3f', '\xc0', 0, 0}));
  EXPECT_EQ(decode(DType::f32, big.bits.at(0)), 1.5);
  const NpyArray bf16 = parse_npy(file_of(
      "{\"shape\": (), \"fortran_order\": False, \"descr\": \"<V2\"}", {'\xc0', '\x3f'}, 3));
  EXPECT_EQ(bf16.kind, 'V');
  EXPECT_EQ(decode(DType::bf16, bf16.bits.at(0)), 1.5);
}

TEST(NpyTest, SaysWhatIsWrongWithAFile) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  const std::string whole = file_of(header, std::string(8, '\0'));
  EXPECT_EQ(complaint(whole), "");
  EXPECT_EQ(complaint(""), "is no .npy file");
  EXPECT_EQ(complaint("PK\3\4" + whole), "is no .npy file");
  EXPECT_EQ(complaint(whole.substr(0, 40)), "is cut off within its header");
  EXPECT_EQ(complaint(whole.substr(0, whole.size() - 1)),
            "is cut off: it has 7 bytes of elements, of shape [2] and 4 bytes each");
  EXPECT_THAT(complaint(whole + "x"), HasSubstr("is longer than it says: it has 9 bytes"));
  EXPECT_EQ(complaint(file_of(header, "", 9)), "is a .npy file of version 9");
  const auto with = [](const std::string& text) { return complaint(file_of(text, "")); };
  EXPECT_THAT(with("{'descr': '|O', 'fortran_order': False, 'shape': (), }"),
              HasSubstr("type |O, which are no numbers"));
  EXPECT_THAT(with("{'descr': '<c8', 'fortran_order': False, 'shape': (), }"), HasSubstr("<c8"));
  EXPECT_THAT(with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }"),
              HasSubstr("records"));
  for (const char* malformed :
       {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}"}) {
    EXPECT_THAT(with(malformed), HasSubstr("header is malformed")) << malformed;
  }
  // More elements than there is memory, or numbers for their count.
  EXPECT_THAT(with("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
              HasSubstr("is cut off"));
  EXPECT_THAT(with("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807,)}"),
              HasSubstr("is cut off"));
}

// Whatever stands there, it is read or complained of; the sanitizers look on.
RC_GTEST_PROP(NpyTest, ADamagedFileIsReadOrToldOf, ()) {
  std::string file = npy_of({1, 2, 3, 2}, std::vector<double>(12, 1.0), DType::f32);
  const auto changes = *rc::gen::container<std::vector<std::pair<std::size_t, char>>>(
      rc::gen::pair(rc::gen::inRange<std::size_t>(0, 140), rc::gen::arbitrary<char>()));
  for (const auto& [place, byte] : changes) file[place] = byte;
  file.resize(*rc::gen::inRange<std::size_t>(0, file.size() + 1));
  try {
    const NpyArray array = parse_npy(file);
    std::size_t count = 1;
    for (const Index size : array.shape) count *= static_cast<std::size_t>(size);
    RC_ASSERT(array.bits.size() == count);
  } catch (const InputError& error) {
    RC_ASSERT(std::strlen(error.what()) > 0);
  }
}

}  // namespace
}  // namespace attest
