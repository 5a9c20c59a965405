// SPDX-License-Identifier: Apache-2.0
// Property: in the compatible profile every stored stream gives the stored events and final message for the three
// protocols, and so does every other cutting of it. Excused in other cuttings (tests/golden/recipe/README.md): the
// number of spaces for skipped text in JSON mode, usage numbers, and ids at the end that leave U+FFFD. Logprobs are
// compared in the stored cutting alone, since there whole chunks of entries go out with the first of their text.
#include <gtest/gtest.h>

#include <algorithm>

#include "stream_vectors.h"

namespace deepinfer::recipe {
namespace {

constexpr Protocol kAll[] = {Protocol::kChat, Protocol::kResponses, Protocol::kMessages};

// All spaces out of the strings.
void DropSpaces(Json* json) {
  if (json->IsArray()) {
    for (Json& item : json->Items()) DropSpaces(&item);
  } else if (json->IsObject()) {
    for (auto& member : json->Members()) DropSpaces(&member.second);
  } else if (json->IsString()) {
    std::string text = json->AsString();
    std::erase(text, ' ');
    *json = Json(text);
  }
}

// Usage and logprobs to null.
void DropCounts(Json* json) {
  if (json->IsArray()) {
    for (Json& item : json->Items()) DropCounts(&item);
  } else if (json->IsObject()) {
    for (auto& [key, value] : json->Members()) {
      key == "usage" || key == "logprobs" ? void(value = Json()) : DropCounts(&value);
    }
  }
}

// Ids at the end whose text the recipe loses, and how many depends on the cutting.
bool EndsUnfinished(const StreamVector& vector) {
  const TestTokenizer* tokenizer = FindTokenizer(vector.tokenizer);
  if (tokenizer == nullptr) return false;
  std::vector<TokenId> ids;
  for (const StreamChunk& chunk : vector.chunks) ids.insert(ids.end(), chunk.tokens.begin(), chunk.tokens.end());
  return tokenizer->tokenizer->Decode(ids).ends_with("\xEF\xBF\xBD");
}

void ExpectSame(Json expected, Json actual, bool spaces, const std::string& what) {
  if (!spaces) {
    DropSpaces(&expected);
    DropSpaces(&actual);
  }
  std::string where;
  EXPECT_TRUE(SameJson(expected, actual, &where))
      << what << " differs at " << where << "\n  stored " << WriteJson(expected) << "\n  got    " << WriteJson(actual);
}

// Skips vectors of the tokenizer that is not there, and says so.
template <typename F>
void ForEachVector(F&& run) {
  size_t missing = 0;
  for (const StreamVector& vector : StreamVectors()) {
    if (!vector.tokenizer.empty() && FindTokenizer(vector.tokenizer) == nullptr) {
      ++missing;
      continue;
    }
    run(vector);
    if (testing::Test::HasFailure()) return;
  }
  if (missing > 0) {
    GTEST_SKIP() << missing << " streams need the published tokenizer (tools/make_v41_tokenizer.py); the rest passed";
  }
}

TEST(CompatibleStreams, StoredCutting) {
  ASSERT_EQ(StreamVectors().size(), 1824u);
  ForEachVector([](const StreamVector& vector) {
    const bool spaces = !vector.parsing.parse_json_output;
    for (const Protocol protocol : kAll) {
      const StreamResult result = RunStream(vector, protocol, Profile::kCompatible, vector.chunks);
      const std::string what = vector.id + " " + vector.name + " protocol " + std::to_string(static_cast<int>(protocol));
      ExpectSame(vector.events.at(protocol), result.events, spaces, what + " events");
      ExpectSame(vector.finals.at(protocol), result.body, spaces, what + " final");
    }
  });
}

TEST(CompatibleStreams, TwentyOtherCuttings) {
  ForEachVector([](const StreamVector& vector) {
    if (EndsUnfinished(vector)) return;
    const bool spaces = !vector.parsing.parse_json_output;
    for (const Protocol protocol : kAll) {
      Json events = vector.events.at(protocol);
      Json final = vector.finals.at(protocol);
      DropCounts(&events);
      DropCounts(&final);
      for (uint64_t seed = 0; seed < 20; ++seed) {
        StreamResult result = RunStream(vector, protocol, Profile::kCompatible, Rechunk(vector.chunks, seed));
        DropCounts(&result.events);
        DropCounts(&result.body);
        const std::string what = vector.id + " " + vector.name + " seed " + std::to_string(seed);
        ExpectSame(events, result.events, spaces, what + " events");
        ExpectSame(final, result.body, spaces, what + " final");
      }
    }
  });
}

}  // namespace
}  // namespace deepinfer::recipe
