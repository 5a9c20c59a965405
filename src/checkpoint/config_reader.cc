// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config_reader.h"

#include <cmath>

namespace deepinfer::checkpoint {
namespace {

// A value as it may appear in an error message: short, whatever the file holds.
std::string Show(const Json& value) {
  constexpr size_t kShownMax = 60;
  if (value.IsArray() || value.IsObject()) return "an " + std::string(value.KindName());
  std::string text = WriteJson(value, {.ascii_only = true});
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

}  // namespace

void ConfigReader::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

const Json* ConfigReader::Find(Key key) {
  Ignore(key);
  const Json* first = nullptr;
  for (const auto& [name, value] : object_.Members()) {
    if (name != key.name && (key.alias.empty() || name != key.alias)) continue;
    if (first != nullptr) {
      Fail(Error(Code::kInvalidArgument, "{}{}: given twice{}", where_, key.name,
                 key.alias.empty() ? "" : fmt::format(" (\"{}\" is the same setting)", key.alias)));
      return nullptr;
    }
    first = &value;
  }
  return first;
}

void ConfigReader::Ignore(Key key) {
  seen_.emplace(key.name);
  if (!key.alias.empty()) seen_.emplace(key.alias);
}

const Json* ConfigReader::Required(Key key) {
  const Json* value = Find(key);
  if (value == nullptr) Fail(Error(Code::kInvalidArgument, "{}{}: missing", where_, key.name));
  return value;
}

int64_t ConfigReader::CheckInt(const Json& value, Key key, int64_t min, int64_t max) {
  const std::optional<int64_t> number = value.ToInt64();
  if (!number || *number < min || *number > max) {
    Fail(Error(Code::kInvalidArgument, "{}{}: expected an integer in {}..{}, found {}", where_, key.name, min, max,
               Show(value)));
    return min;
  }
  return *number;
}

double ConfigReader::CheckReal(const Json& value, Key key, double min, double max) {
  const std::optional<double> number = value.ToDouble();
  if (!number || !std::isfinite(*number) || *number < min || *number > max) {
    Fail(Error(Code::kInvalidArgument, "{}{}: expected a number in {}..{}, found {}", where_, key.name, min, max,
               Show(value)));
    return min;
  }
  return *number;
}

int64_t ConfigReader::Int(Key key, int64_t min, int64_t max) {
  const Json* value = Required(key);
  return value == nullptr ? min : CheckInt(*value, key, min, max);
}

int64_t ConfigReader::IntOr(Key key, int64_t fallback, int64_t min, int64_t max) {
  const Json* value = Find(key);
  return value == nullptr ? fallback : CheckInt(*value, key, min, max);
}

std::optional<int64_t> ConfigReader::OptionalInt(Key key, int64_t min, int64_t max) {
  const Json* value = Find(key);
  if (value == nullptr || value->IsNull()) return std::nullopt;
  return CheckInt(*value, key, min, max);
}

double ConfigReader::Real(Key key, double min, double max) {
  const Json* value = Required(key);
  return value == nullptr ? min : CheckReal(*value, key, min, max);
}

double ConfigReader::RealOr(Key key, double fallback, double min, double max) {
  const Json* value = Find(key);
  return value == nullptr ? fallback : CheckReal(*value, key, min, max);
}

std::optional<double> ConfigReader::OptionalReal(Key key, double min, double max) {
  const Json* value = Find(key);
  if (value == nullptr || value->IsNull()) return std::nullopt;
  return CheckReal(*value, key, min, max);
}

bool ConfigReader::BoolOr(Key key, bool fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->IsBool()) return value->AsBool();
  Fail(Error(Code::kInvalidArgument, "{}{}: expected true or false, found {}", where_, key.name, Show(*value)));
  return fallback;
}

std::vector<int64_t> ConfigReader::Ints(Key key, int64_t min, int64_t max, size_t count_max) {
  std::vector<int64_t> numbers;
  const Json* value = Required(key);
  if (value == nullptr) return numbers;
  if (!value->IsArray()) {
    Fail(Error(Code::kInvalidArgument, "{}{}: expected an array, found {}", where_, key.name, Show(*value)));
    return numbers;
  }
  if (value->Items().size() > count_max) {
    Fail(Error(Code::kInvalidArgument, "{}{}: expected at most {} entries, found {}", where_, key.name, count_max,
               value->Items().size()));
    return numbers;
  }
  for (const Json& item : value->Items()) {
    const std::optional<int64_t> number = item.ToInt64();
    if (!number || *number < min || *number > max) {
      Fail(Error(Code::kInvalidArgument, "{}{}: entry {}: expected an integer in {}..{}, found {}", where_, key.name,
                 numbers.size(), min, max, Show(item)));
      return numbers;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<int64_t> ConfigReader::AscendingInts(Key key, int64_t min, int64_t max, size_t count_max) {
  std::vector<int64_t> numbers = Ints(key, min, max, count_max);
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i] <= numbers[i - 1]) {
      Fail(Error(Code::kInvalidArgument, "{}{}: expected ascending entries, found {} after {}", where_, key.name,
                 numbers[i], numbers[i - 1]));
      break;
    }
  }
  return numbers;
}

void ConfigReader::ExpectString(Key key, std::string_view only) {
  const Json* value = Find(key);
  if (value == nullptr || (value->IsString() && value->AsString() == only)) return;
  Fail(Error(Code::kUnimplemented, "{}{}: only \"{}\" is supported, found {}", where_, key.name, only, Show(*value)));
}

void ConfigReader::ExpectInt(Key key, int64_t only) {
  const Json* value = Find(key);
  if (value == nullptr || value->ToInt64() == only) return;
  Fail(Error(Code::kUnimplemented, "{}{}: only {} is supported, found {}", where_, key.name, only, Show(*value)));
}

void ConfigReader::ExpectBool(Key key, bool only) {
  const Json* value = Find(key);
  if (value == nullptr || (value->IsBool() && value->AsBool() == only)) return;
  Fail(Error(Code::kUnimplemented, "{}{}: only {} is supported, found {}", where_, key.name, only, Show(*value)));
}

std::vector<std::string> ConfigReader::UnknownKeys() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.Members()) {
    if (!seen_.contains(name)) unknown.push_back(where_ + name);
  }
  return unknown;
}

}  // namespace deepinfer::checkpoint
