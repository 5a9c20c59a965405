// SPDX-License-Identifier: Apache-2.0
// The model's output, as it comes, into events: reasoning, content, calls with their arguments as JSON, the reason
// for the end. Text or token ids may be cut anywhere, inside a character or a marker: the events, joined, are the
// same. Ids recognise control tokens by id, text by spelling (an id's bytes never form a marker).
//
//   DI_ASSIGN_OR_RETURN(auto parser, OutputParser::Create(request.parsing, request.profile, &vocabulary));
//   OutputEvents events;
//   while (...) {
//     events.Clear();
//     DI_RETURN_IF_ERROR(parser->PushTokens(ids, {}, &events));
//     ... // read the events
//     if (parser->done()) break;  // a stop sequence: generate no further
//   }
//   DI_RETURN_IF_ERROR(parser->Finish(BackendFinish::kStop, &events));
//
// One parser serves one choice of one answer and is not for concurrent use. It holds back at most what may still
// become a marker, an unfinished character and, of a call, its raw text; all within OutputLimits. Errors
// (kResourceExhausted) name the limit; after one the parser takes nothing more and returns it again. Pushing allocates
// nothing once its buffers and those of the batch have grown.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/status.h"
#include "recipe/output/output_events.h"
#include "recipe/output/output_vocabulary.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

struct OutputLimits {
  size_t output_bytes_max = size_t{256} << 20;    // of all events of an answer
  size_t arguments_bytes_max = size_t{16} << 20;  // of one call: its arguments, and its raw text
  size_t name_bytes_max = 1024;                   // of a function, and of a parameter with its attributes
  size_t calls_max = 1024;
  size_t parameters_max = 4096;  // of one call
  size_t json_prose_bytes_max = size_t{64} << 10;  // before the JSON of an answer in JSON mode
  size_t stop_sequences_max = 16;
  size_t stop_sequence_bytes_max = 4096;  // of one
};

// Why the backend ended. kNone: it just ended, or was stopped by done().
enum class BackendFinish : uint8_t { kNone, kStop, kLength, kContentFilter };

struct OutputUsage {
  int64_t completion_tokens = 0;
  // Those among them that were spent on reasoning, </think> included. The compatible profile leaves it 0: there the
  // answer counts the tokens of the reasoning's text.
  int64_t reasoning_tokens = 0;
};

class OutputParser {
 public:
  // `vocabulary` is needed for PushTokens() alone and must outlive the parser; it may be nullptr.
  // Errors: kInvalidArgument (an empty stop sequence), kResourceExhausted (a limit on stop sequences).
  static Result<std::unique_ptr<OutputParser>> Create(const ParseOptions& options, Profile profile,
                                                      const OutputVocabulary* vocabulary,
                                                      const OutputLimits& limits = {});
  ~OutputParser();
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  // Each appends to `events`. `token_count` is what the text counts as in usage. Bytes that are no UTF-8 come out as
  // U+FFFD, one for each maximal subpart.
  Status PushText(std::string_view text, int64_t token_count, OutputEvents* events);
  // `scores` is empty or has one entry for each id. REQUIRES: a vocabulary.
  Status PushTokens(std::span<const TokenId> ids, std::span<const TokenScore> scores, OutputEvents* events);
  // Once, at the end: what was held back, and a kFinish event. Nothing may be pushed after it.
  Status Finish(BackendFinish finish, OutputEvents* events);

  // The answer is complete although the backend may go on (a stop sequence; one call where only one is allowed; a
  // complete JSON value): further input is ignored.
  bool done() const;
  const OutputUsage& usage() const;

 private:
  struct Impl;
  explicit OutputParser(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer::recipe
