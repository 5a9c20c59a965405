// SPDX-License-Identifier: Apache-2.0
// The stored streams (tests/golden/recipe/streams.jsonl.xz), and what the parser and the writers make of them, in the
// form in which the streams are stored: neighbouring deltas joined, call ids without their random part.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "recipe/output/output_parser.h"
#include "recipe/output/response_writer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

struct StreamChunk {
  bool ids = false;
  std::string text;
  int64_t token_count = 0;
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // empty, or one for each token
  std::vector<std::vector<TokenCandidate>> top;
};

struct StreamVector {
  std::string id;
  std::string name;       // of the case; several chunkings of it are stored
  std::string chunking;
  std::string tokenizer;  // "", "v41" or "tiny"
  std::vector<StreamChunk> chunks;
  BackendFinish finish = BackendFinish::kNone;
  ParseOptions parsing;
  std::map<Protocol, Json> requests;
  std::map<Protocol, Json> events;  // [[name or null, event], ...]
  std::map<Protocol, Json> finals;
};

struct TestTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<OutputVocabulary> vocabulary;
};

// One Python process's worth of records; read once.
const std::vector<StreamVector>& StreamVectors();
// nullptr where the file is not there (the published tokenizer is made by tools/make_v41_tokenizer.py) or `name` is
// empty.
const TestTokenizer* FindTokenizer(const std::string& name);

struct StreamResult {
  Json events;
  Json body;
};
// What `chunks` give for one protocol. The vector's own chunks are one choice of them.
StreamResult RunStream(const StreamVector& vector, Protocol protocol, Profile profile,
                       const std::vector<StreamChunk>& chunks);

// Feeds a chunk. `events` is cleared first.
Status PushChunk(const StreamChunk& chunk, OutputParser* parser, OutputEvents* events);

// A vector's chunks cut anew, at random places, also inside characters. Logprobs are left out.
std::vector<StreamChunk> Rechunk(const std::vector<StreamChunk>& chunks, uint64_t seed);

// [name or null, data] of server-sent events as the vectors have them.
Json JoinDeltas(const std::vector<SseEvent>& sse, Protocol protocol);

// Equal but for the spelling of numbers. Where not, `where` gets the JSON pointer of the first difference.
bool SameJson(const Json& a, const Json& b, std::string* where);

AnswerOptions AnswerOptionsOf(Protocol protocol, const Json& request);

}  // namespace deepinfer::recipe
