// SPDX-License-Identifier: Apache-2.0
// Plain completions: text chunks and the whole text completion, with the legacy form of logprobs. The model's output is
// text as it is: the parser that feeds it runs without tools or thinking. See response_writer.h.
#pragma once

#include <string>
#include <vector>

#include "recipe/output/response_writer.h"

namespace deepinfer::recipe {

class CompletionsWriter : public ResponseWriter {
 public:
  CompletionsWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing, Profile profile);

  void Begin(std::vector<SseEvent>* out) override;
  void AddPromptLogprobs(size_t prompt, std::vector<TokenLogprob> tokens, std::vector<TokenCandidate> candidates,
                         std::vector<SseEvent>* out) override;
  void Fail(const AnswerError& error, std::vector<SseEvent>* out) override;
  std::string Body() const override;

 protected:
  void OnEvent(int choice, const OutputEvents& events, const OutputEvent& event, bool fresh,
               std::vector<SseEvent>* out) override;
  void OnChoiceEnd(int choice, std::vector<SseEvent>* out) override;
  void OnAllEnd(std::vector<SseEvent>* out) override;

 private:
  std::string Choice(int choice, std::string_view text, std::string_view logprobs, std::string_view finish) const;
  std::string Object(std::string_view choices, std::string_view usage) const;
  std::string Usage() const;
  std::string_view FinishName(int choice) const;
  // The four lists of log-probabilities, JSON without brackets.
  struct Lists {
    std::string tokens, scores, tops, offsets;
    bool empty() const { return tokens.empty(); }
  };
  // `offset` is the place of the first token in characters and moves on.
  void Append(std::span<const TokenLogprob> tokens, std::span<const TokenCandidate> candidates, int64_t* offset,
              Lists* lists) const;
  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; nothing where they are empty.
  static std::string Logprobs(const Lists& lists);

  size_t PromptOf(int choice) const;
  std::string_view EchoOf(int choice) const;

  struct PromptLogprobs {
    std::vector<TokenLogprob> tokens;
    std::vector<TokenCandidate> candidates;
  };
  std::vector<PromptLogprobs> prompts_;  // where they are wanted

  std::vector<int64_t> offsets_;  // of each choice, while it is streamed
};

}  // namespace deepinfer::recipe
