// SPDX-License-Identifier: Apache-2.0
// Sets of code points, and the byte expressions of their UTF-8 forms. Surrogates are never members.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

class CodePointSet {
 public:
  using Range = std::pair<uint32_t, uint32_t>;  // both ends included

  CodePointSet() = default;
  static CodePointSet All() { return CodePointSet().Add(0, 0x10FFFF); }

  CodePointSet& Add(uint32_t first, uint32_t last);
  CodePointSet& Add(uint32_t code_point) { return Add(code_point, code_point); }
  CodePointSet& Add(const CodePointSet& other);
  CodePointSet Complement() const;
  // Sorted, disjoint, without surrogates.
  std::vector<Range> Ranges() const;

 private:
  std::vector<Range> ranges_;
};

// \p{name}: general categories, scripts (Script=Greek), and binary properties, as ICU knows them.
Result<CodePointSet> UnicodeProperty(std::string_view name);

// One character of the set, in UTF-8.
ExprId Utf8Class(ExprPool* pool, const CodePointSet& set);

}  // namespace deepinfer::grammar
