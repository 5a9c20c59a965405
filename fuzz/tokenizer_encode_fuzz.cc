// SPDX-License-Identifier: Apache-2.0
// Any bytes as text for the bundled tokenizer: decoding gives the text back (U+FFFD for what is no UTF-8), plain
// encoding gives no added token, the splitter cuts as the patterns do, and safe cuts do not change ids.
#include "core/utf8.h"
#include "tokenizer/deepseek_splitter.h"
#include "tokenizer/regex_splitter.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace deepinfer {
namespace {

struct Fixture {
  Fixture() : tokenizer(*Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json")) {
    regex = *MakeRegexSplitter({
        R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"});
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<PreTokenizer> regex;
  std::unique_ptr<PreTokenizer> table = MakeDeepSeekSplitter();
};

std::string Repaired(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    AppendUtf8(c.valid ? c.code_point : 0xFFFD, &out);
    text.remove_prefix(c.size);
  }
  return out;
}

std::vector<uint32_t> Ends(const PreTokenizer& splitter, std::string_view text) {
  std::vector<uint32_t> ends;
  for (size_t position = 0; position < text.size();) DI_CHECK(splitter.Split(text, &position, &ends).ok());
  return ends;
}

void Run(std::string_view input) {
  static const Fixture fixture;
  const Tokenizer& tokenizer = *fixture.tokenizer;
  const std::string text = Repaired(input);
  const std::vector<TokenId> plain = *tokenizer.EncodePlain(input);
  DI_CHECK(tokenizer.Decode(plain) == text);
  DI_CHECK(tokenizer.Decode(*tokenizer.Encode(input)) == text);
  for (const TokenId id : plain) DI_CHECK(!tokenizer.IsAdded(id));
  DI_CHECK(Ends(*fixture.table, text) == Ends(*fixture.regex, text));
  for (size_t cut = 1; cut < text.size(); ++cut) {
    if ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80 || !fixture.table->SafeCut(text, cut)) continue;
    std::vector<TokenId> parts = *tokenizer.EncodePlain(std::string_view(text).substr(0, cut));
    DI_CHECK(tokenizer.AppendEncoded(std::string_view(text).substr(cut), {.added_tokens = false}, &parts).ok());
    DI_CHECK(parts == plain);
  }
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deepinfer::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
