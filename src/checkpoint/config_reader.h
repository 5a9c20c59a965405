// SPDX-License-Identifier: Apache-2.0
// Reads checked values out of one object of a config file, and remembers which keys were asked for.
// The first error sticks: after it every call returns a default, so a parser reads all fields and then asks status().
// Not thread-safe; the Json must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace deepinfer::checkpoint {

// A key with its second spelling (empty: none).
struct Key {
  std::string_view name;
  std::string_view alias = {};
};

class ConfigReader {
 public:
  // `where` is put before keys in errors ("text_config.").
  ConfigReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const Status& status() const { return status_; }
  void Fail(Status status);

  // The value under either spelling; nullptr where absent. Both at once are an error.
  const Json* Find(Key key);

  // A number spelled as an integer within [min, max].
  int64_t Int(Key key, int64_t min, int64_t max);
  int64_t IntOr(Key key, int64_t fallback, int64_t min, int64_t max);
  std::optional<int64_t> OptionalInt(Key key, int64_t min, int64_t max);  // absent or null: nothing
  // A finite number within [min, max].
  double Real(Key key, double min, double max);
  double RealOr(Key key, double fallback, double min, double max);
  std::optional<double> OptionalReal(Key key, double min, double max);
  bool BoolOr(Key key, bool fallback);
  // An array of integers, each within [min, max].
  std::vector<int64_t> Ints(Key key, int64_t min, int64_t max, size_t count_max);
  // The same, required to ascend strictly.
  std::vector<int64_t> AscendingInts(Key key, int64_t min, int64_t max, size_t count_max);
  // Fails with kUnimplemented unless the key is absent or spelled exactly so.
  void ExpectString(Key key, std::string_view only);
  void ExpectInt(Key key, int64_t only);
  void ExpectBool(Key key, bool only);

  // Marks a key as read.
  void Ignore(Key key);
  // Keys of the object that nobody asked for.
  std::vector<std::string> UnknownKeys() const;
  // "text_config.hidden_size"
  std::string Name(Key key) const { return where_ + std::string(key.name); }

 private:
  const Json* Required(Key key);
  int64_t CheckInt(const Json& value, Key key, int64_t min, int64_t max);
  double CheckReal(const Json& value, Key key, double min, double max);

  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> seen_;
  Status status_;
};

}  // namespace deepinfer::checkpoint
