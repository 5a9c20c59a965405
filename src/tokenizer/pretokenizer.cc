// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pretokenizer.h"

#include "tokenizer/deepseek_splitter.h"
#include "tokenizer/regex_splitter.h"

namespace deepinfer {

Result<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const std::vector<std::string>& patterns) {
  if (IsDeepSeekPattern(patterns)) return MakeDeepSeekSplitter();
  return MakeRegexSplitter(patterns);
}

}  // namespace deepinfer
