#include "spec/dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Dialect read(const char* text) { return parse_dialect(json::parse(text)); }

std::string error(const char* text) {
  try {
    read(text);
  } catch (const InputError& e) {
    return e.pointer() + ": " + e.what();
  }
  return "no error";
}

TEST(DialectTest, OfNothingIsTheStandard) {
  const Dialect d = read("{}");
  EXPECT_EQ(d.lse, LseForm{});
  EXPECT_EQ(d.window, WindowEnds{});
  EXPECT_FALSE(d.empty_o.differs || d.lse_of_empty_differs());
  EXPECT_EQ(d.statistics(), std::vector{TensorName::lse});
  EXPECT_EQ(read(R"({"lse": {"base": "e", "as": "lse"}})").lse, LseForm{});
}

TEST(DialectTest, ReadsWhatEmptyRowsHoldAsNumbersOrWords) {
  const Dialect d = read(R"({"empty_rows": {"o": "the mean of V", "lse": "+inf"}})");
  EXPECT_TRUE(d.empty_o.differs);
  EXPECT_FALSE(d.empty_o.value);
  EXPECT_EQ(d.empty_lse.value, kInfinity);
  EXPECT_EQ(read(R"({"empty_rows": {"lse": -1e30}})").empty_lse.value, -1e30);
  EXPECT_TRUE(read(R"({"empty_rows": {"lse": 0}})").lse_of_empty_differs());
  // What the standard has is no dialect.
  EXPECT_FALSE(read(R"({"empty_rows": {"lse": "-inf"}})").lse_of_empty_differs());
  EXPECT_FALSE(read(R"({"empty_rows": {"o": 0}})").empty_o.differs);
}

TEST(DialectTest, ReadsAMaximumAndASumOfEmptyRows) {
  const std::string apart = R"({"lse": {"as": "maximum_and_sum"}, "empty_rows": )";
  const auto differs = [&](const char* rows) {
    return read((apart + rows + "}").c_str()).lse_of_empty_differs();
  };
  EXPECT_FALSE(differs(R"({"maximum": -1e30, "sum": 0})"));
  EXPECT_FALSE(differs(R"({"maximum": "-inf", "sum": 1})"));
  EXPECT_TRUE(differs(R"({"maximum": 0, "sum": 1})"));
  EXPECT_TRUE(differs(R"({"maximum": "whatever was there", "sum": 0})"));
  const auto complaint = [&](const char* rows) { return error((apart + rows + "}").c_str()); };
  EXPECT_THAT(complaint(R"({"maximum": "inf", "sum": 0})"), HasSubstr("add up to no LSE"));
  EXPECT_THAT(complaint(R"({"lse": 0})"), HasSubstr("/empty_rows/lse: LSE is returned as a max"));
  EXPECT_THAT(complaint(R"({"maximum": 0})"), HasSubstr("sum"));
}

TEST(DialectTest, SaysWhatItDoesNotUnderstandAndWhere) {
  EXPECT_THAT(error(R"({"empty_rows": {"lse": "0"}})"),
              HasSubstr("/empty_rows/lse: \"0\" in quot"));
  EXPECT_THAT(error(R"({"empty_rows": {"lse": ""}})"), HasSubstr("/empty_rows/lse: say in words"));
  EXPECT_THAT(error(R"({"empty_rows": {"lse": true}})"), HasSubstr("/empty_rows/lse: "));
  EXPECT_THAT(error(R"({"empty_rows": {"LSE": 0}})"), HasSubstr("unknown key"));
  EXPECT_THAT(error(R"({"empty_rows": {"maximum": 0}})"), HasSubstr("\"maximum_and_sum\""));
  EXPECT_THAT(error(R"({"lse": {"base": 10}})"),
              HasSubstr("/lse/base: the base of LSE is \"e\" or 2"));
  EXPECT_THAT(error(R"({"lse": {"as": "maximum"}})"), HasSubstr("/lse/as: "));
  EXPECT_THAT(error(R"({"lse": 2})"), HasSubstr("/lse: "));
  EXPECT_THAT(error(R"({"window": {"left": "open"}})"), HasSubstr("/window/left: "));
  EXPECT_THAT(error(R"({"window": {"unbounded": 1.5}})"), HasSubstr("/window/unbounded: "));
  EXPECT_THAT(error(R"({"window": {"said_by": "width", "left": "inclusive"}})"),
              HasSubstr("/window/said_by: "));
}

// ---- Windows ------------------------------------------------------------------------------------

Mask window(Index left, Index right) { return Mask::window(left, right, Anchor::top_left); }

std::string numbers(Index left, Index right, const WindowEnds& ends) {
  const auto said = numbers_of(window(left, right), ends);
  if (!said) return "none";
  const auto text = [](Index n) { return n == kUnbounded ? "*" : std::to_string(n); };
  return text(said->left) + " " + text(said->right);
}

TEST(DialectTest, CountsTheEndsOfWindows) {
  EXPECT_EQ(numbers(3, 0, {}), "3 0");
  EXPECT_EQ(numbers(3, 0, {.left_exclusive = true}), "4 0");
  EXPECT_EQ(numbers(3, 2, {.left_exclusive = true, .right_exclusive = true}), "4 3");
  EXPECT_EQ(numbers(kUnbounded, 2, {.right_exclusive = true}), "* 3");
  EXPECT_EQ(numbers(kUnbounded, 2, {.unbounded = -1}), "-1 2");
  // 0 to the left is the diagonal, and without limit.
  EXPECT_EQ(numbers(0, 2, {.unbounded = 0}), "none");
  EXPECT_EQ(numbers(0, 2, {.left_exclusive = true, .unbounded = 0}), "1 2");
}

TEST(DialectTest, SaysWindowsByTheirWidth) {
  const WindowEnds ends = {.centred = true, .unbounded = 0};
  EXPECT_EQ(numbers(0, 0, ends), "1 1");
  EXPECT_EQ(numbers(2, 2, ends), "5 5");
  EXPECT_EQ(numbers(2, 1, ends), "4 4");
  EXPECT_EQ(numbers(2, 0, ends), "none");
  EXPECT_EQ(numbers(1, 2, ends), "none");
  EXPECT_EQ(numbers(kUnbounded, 2, ends), "none");
  EXPECT_EQ(numbers(kUnbounded, kUnbounded, ends), "0 0");
}

TEST(DialectTest, LeavesCausalMasksAndAllOthersAlone) {
  const WindowEnds ends = {.right_exclusive = true, .centred = false, .unbounded = 0};
  EXPECT_EQ(numbers(kUnbounded, 0, ends), "* 0");
  EXPECT_EQ(unsayable(Mask::prefix({3}), ends), "");
}

TEST(DialectTest, NamesTheWindowThatCannotBeSaid) {
  const WindowEnds ends = {.centred = true};
  const Mask mask = Mask::all_of({Mask::causal(Anchor::top_left), window(2, 0)});
  EXPECT_THAT(unsayable(mask, ends), HasSubstr("window -2..0 top_left cannot be said in windows "
                                               "said by their width"));
  EXPECT_EQ(unsayable(mask, {.left_exclusive = true}), "");
}

// ---- LSE ----------------------------------------------------------------------------------------

TEST(DialectTest, ConvertsToBaseE) {
  const LseForm base_2 = {.base_2 = true}, apart = {.apart = true};
  EXPECT_EQ(natural_lse(base_2, 1, 0), std::numbers::ln2);
  EXPECT_EQ(natural_lse(base_2, -kInfinity, 0), -kInfinity);
  EXPECT_DOUBLE_EQ(natural_lse(apart, 3, 2), 3 + std::numbers::ln2);
  EXPECT_EQ(natural_lse(apart, -1e30, 0), -kInfinity);
  EXPECT_TRUE(std::isnan(natural_lse(apart, kInfinity, 0)));
  EXPECT_DOUBLE_EQ(natural_lse({.base_2 = true, .apart = true}, 3, 2), 4 * std::numbers::ln2);
}

}  // namespace
}  // namespace attest
