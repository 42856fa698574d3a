// Strict reading of JSON objects: every key must be known, every value of its type.
//
//   ObjectReader reader(json, "/cases/3");
//   const auto name = reader.get<std::string>("name");
//   const auto seeds = reader.get_or<Index>("seeds", 1);
//   reader.finish();   // throws for a key that nobody asked for
//
// Errors are InputErrors. They carry a JSON pointer, from which a loader of files finds the line.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace attest {

// A mistake in a file, a flag or a description: what is wrong, and where.
class InputError : public std::runtime_error {
 public:
  InputError(std::string pointer, const std::string& what)
      : std::runtime_error(what), pointer_(std::move(pointer)) {}
  // The JSON pointer of the culprit; empty if unknown.
  const std::string& pointer() const { return pointer_; }

 private:
  std::string pointer_;
};

// Throws InputError, with the nearest, unless the name is one of `known`; `what` it is a name of.
void check_name(const std::string& given, const std::vector<std::string>& known,
                std::string_view what, const std::string& pointer);

// The texts of a list of names, checked: not empty, each one of `known`.
std::vector<std::string> read_names(const nlohmann::json& list, const std::string& pointer,
                                    std::string_view what, const std::vector<std::string>& known);

class ObjectReader {
 public:
  // Throws InputError if `value` is no object. `value` must outlive the reader.
  ObjectReader(const nlohmann::json& value, std::string pointer);

  // The value at `key`, or null if it is absent.
  const nlohmann::json* find(const std::string& key);

  // Throws InputError that names all of the keys that are absent.
  void require(const std::vector<std::string>& keys);

  // The value at `key`, which must be there.
  const nlohmann::json& at(const std::string& key);

  template <class T>
  T get(const std::string& key) {
    return convert<T>(at(key), key);
  }

  template <class T>
  T get_or(const std::string& key, T fallback) {
    const nlohmann::json* value = find(key);
    return value ? convert<T>(*value, key) : fallback;
  }

  // The JSON pointer of `key`.
  std::string pointer(const std::string& key) const { return pointer_ + "/" + key; }

  // Throws InputError if the object has a key that was never asked for.
  void finish() const;

 private:
  template <class T>
  T convert(const nlohmann::json& value, const std::string& key) const {
    bool fits = true;
    if constexpr (std::is_same_v<T, bool>) {
      fits = value.is_boolean();
    } else if constexpr (std::is_integral_v<T>) {
      // nlohmann would turn 1.5 into 1, true into 1 and -1 into a large count: all of them
      // mistakes.
      fits = value.is_number_unsigned()  ? std::in_range<T>(value.get<std::uint64_t>())
             : value.is_number_integer() ? std::in_range<T>(value.get<std::int64_t>())
                                         : false;
    } else if constexpr (std::is_floating_point_v<T>) {
      fits = value.is_number();
    } else if constexpr (std::is_same_v<T, std::string>) {
      fits = value.is_string();
    }
    if (!fits) wrong_type(value, key);
    try {
      return value.get<T>();
    } catch (const nlohmann::json::exception&) {
      wrong_type(value, key);
    }
  }
  [[noreturn]] void wrong_type(const nlohmann::json& value, const std::string& key) const;

  const nlohmann::json& value_;
  std::string pointer_;
  std::set<std::string> known_;
};

// The same with 3 in place of 3.0 and 3e0: to JSON Schema they are one integer.
nlohmann::json in_whole_numbers(nlohmann::json value);

// A text for reports, of a line of 200 characters at most. Throws InputError for any other.
std::string line_of(ObjectReader& reader, const std::string& key);

}  // namespace attest
