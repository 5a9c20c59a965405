// SPDX-License-Identifier: Apache-2.0
// Checks a file of request vectors that is not among the golden ones: recipe_check_vectors FILE.jsonl[.xz]
// (tools/recipe_oracle.py makes such files). Prints each difference; exit status 1 where there is one.
#include <cstdio>

#include "tests/recipe/vector_check.h"

int main(int argc, char** argv) {
  using namespace deepinfer::recipe;
  if (argc != 2) {
    std::fputs("usage: recipe_check_vectors FILE.jsonl[.xz]\n", stderr);
    return 2;
  }
  const auto lines = ReadLines(argv[1]);
  if (!lines.ok()) {
    std::fprintf(stderr, "%s\n", lines.status().message().c_str());
    return 2;
  }
  const auto differences = CheckAll(*lines, [](const deepinfer::Json& record) {
    return CheckRequestVector(record, Profile::kCompatible, {});
  });
  for (const std::string& difference : differences) std::printf("%s\n", difference.c_str());
  std::printf("%zu records, %zu differences\n", lines->size(), differences.size());
  return differences.empty() ? 0 : 1;
}
