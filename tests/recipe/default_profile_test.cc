// SPDX-License-Identifier: Apache-2.0
// Property: the default profile differs from the request vectors exactly as the table in docs/recipe.md says: in those
// vectors, in those fields. Method: all vectors in the default profile against the table's rows.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/recipe/vector_check.h"

namespace deepinfer::recipe {
namespace {

using Differences = std::map<std::string, std::set<std::string>>;  // vector -> fields

std::string Trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return std::string(text);
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = 0; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(separator, begin), text.size());
    parts.push_back(Trim(std::string_view(text).substr(begin, end - begin)));
  }
  return parts;
}

Differences ReadTable() {
  std::ifstream file(DI_SOURCE_DIR "/docs/recipe.md");
  Differences table;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find("differing requests: begin") != std::string::npos) inside = true;
    if (line.find("differing requests: end") != std::string::npos) inside = false;
    const std::vector<std::string> cells = Split(line, '|');
    if (!inside || cells.size() < 5 || cells[1] == "vectors" || cells[1].starts_with("---")) continue;
    for (const std::string& vector : Split(cells[1], ',')) {
      for (const std::string& field : Split(cells[2], ',')) table[vector].insert(field);
    }
  }
  return table;
}

TEST(DefaultProfile, DiffersExactlyAsTheTableSays) {
  const auto lines = ReadLines(DI_SOURCE_DIR "/tests/golden/recipe/requests.jsonl.xz");
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  Differences found;
  for (const std::string& difference : CheckAll(
           *lines, [](const Json& record) { return CheckRequestVector(record, Profile::kDefault, {}); })) {
    const std::vector<std::string> parts = Split(difference.substr(0, difference.find(": expected")), ':');
    ASSERT_GE(parts.size(), 2U) << difference;
    found[parts[0]].insert(parts[1]);
  }
  const Differences table = ReadTable();
  EXPECT_FALSE(table.empty());
  for (const auto& [vector, fields] : found) {
    const auto row = table.find(vector);
    EXPECT_TRUE(row != table.end() && row->second == fields)
        << vector << " differs in " << testing::PrintToString(fields) << ", which the table does not say";
  }
  for (const auto& [vector, fields] : table) {
    EXPECT_TRUE(found.contains(vector)) << "the table lists " << vector << ", which does not differ";
  }
}

}  // namespace
}  // namespace deepinfer::recipe
