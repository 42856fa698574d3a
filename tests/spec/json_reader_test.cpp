#include "spec/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "spec/index.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the reader says when `read` is tried on `value`: "pointer: message", or "" for no error.
template <class Read>
std::string reader_error(const json& value, Read read) {
  try {
    ObjectReader reader(value, "/top");
    read(reader);
    reader.finish();
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}

TEST(JsonReaderTest, ReadsWhatIsThere) {
  const json value = {{"n", 3}, {"x", 2}, {"name", "a"}, {"on", true}};
  EXPECT_EQ(reader_error(value,
                         [](ObjectReader& reader) {
                           EXPECT_EQ(reader.get<Index>("n"), 3);
                           EXPECT_EQ(reader.get<double>("x"), 2.0) << "an integer is a number too";
                           EXPECT_EQ(reader.get<std::string>("name"), "a");
                           EXPECT_TRUE(reader.get<bool>("on"));
                           EXPECT_EQ(reader.get_or<Index>("absent", 7), 7);
                         }),
            "");
}

TEST(JsonReaderTest, RefusesUnknownKeysAndNamesTheNearest) {
  const std::string error = reader_error({{"head_dims", 3}}, [](ObjectReader& reader) {
    reader.find("head_dim");
    reader.find("batch");
  });
  EXPECT_THAT(error,
              HasSubstr("/top/head_dims: unknown key \"head_dims\"; did you mean head_dim?"));
}

TEST(JsonReaderTest, RefusesMissingKeys) {
  EXPECT_THAT(reader_error(json::object(), [](ObjectReader& reader) { reader.get<Index>("n"); }),
              HasSubstr("/top: the key \"n\" is missing"));
  const auto require = [](ObjectReader& reader) { reader.require({"name", "n", "dtypes"}); };
  EXPECT_EQ(reader_error({{"name", 1}, {"n", 1}, {"dtypes", 1}}, require), "");
  EXPECT_THAT(reader_error({{"n", 1}}, require),
              HasSubstr("/top: the keys \"name\", \"dtypes\" are missing"));
  EXPECT_THAT(reader_error({{"n", 1}, {"dtype", 1}}, require),
              HasSubstr("/top/dtype: unknown key \"dtype\"; did you mean dtypes?"));
}

TEST(JsonReaderTest, RefusesWhatIsNoObject) {
  EXPECT_THAT(reader_error(json::array({1}), [](ObjectReader&) {}),
              HasSubstr("expected an object"));
}

TEST(JsonReaderTest, NeverConvertsSilently) {
  const auto refused = [](const json& value, auto read) {
    const std::string error = reader_error({{"n", value}}, read);
    EXPECT_THAT(error, HasSubstr("/top/n: the value of \"n\" is of the wrong type")) << value;
  };
  const auto index = [](ObjectReader& reader) { reader.get<Index>("n"); };
  for (const json& value : {json(1.5), json(true), json("1"), json(nullptr), json::array({1}),
                            json(std::uint64_t(1) << 63)}) {
    refused(value, index);
  }
  refused(-1, [](ObjectReader& reader) { reader.get<std::uint64_t>("n"); });
  refused(Index(1) << 32, [](ObjectReader& reader) { reader.get<int>("n"); });
  refused(1, [](ObjectReader& reader) { reader.get<bool>("n"); });
  refused("1", [](ObjectReader& reader) { reader.get<double>("n"); });
  refused(1, [](ObjectReader& reader) { reader.get<std::string>("n"); });
  refused("1", [](ObjectReader& reader) { reader.get_or<Index>("n", 0); });
}

TEST(JsonReaderTest, ReadsTheEndsOfTheIntegerRanges) {
  const json value = {{"most", UINT64_MAX}, {"least", INT64_MIN}};
  EXPECT_EQ(reader_error(value,
                         [](ObjectReader& reader) {
                           EXPECT_EQ(reader.get<std::uint64_t>("most"), UINT64_MAX);
                           EXPECT_EQ(reader.get<Index>("least"), INT64_MIN);
                         }),
            "");
}

}  // namespace
}  // namespace attest
