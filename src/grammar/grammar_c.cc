// SPDX-License-Identifier: Apache-2.0
#include "deepinfer/grammar_c.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "deepinfer/grammar.h"

using deepinfer::Code;
using deepinfer::Status;
namespace grammar = deepinfer::grammar;

struct di_grammar_vocabulary {
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
};
struct di_grammar_compiled {
  grammar::CompiledGrammar compiled;
  size_t mask_words;
};
struct di_grammar_matcher {
  grammar::Matcher matcher;
  size_t mask_words;
};

namespace {

int CodeOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return DI_GRAMMAR_OK;
    case Code::kInvalidArgument: return DI_GRAMMAR_INVALID;
    case Code::kUnimplemented: return DI_GRAMMAR_UNSUPPORTED;
    case Code::kResourceExhausted: return DI_GRAMMAR_LIMIT;
    default: return DI_GRAMMAR_OTHER;
  }
}

void Write(const std::string& message, char* error, size_t size) {
  if (error == nullptr || size == 0) return;
  const size_t length = std::min(message.size(), size - 1);
  std::memcpy(error, message.data(), length);
  error[length] = '\0';
}

}  // namespace

extern "C" {

di_grammar_options di_grammar_default_options(void) {
  return {.free_key_order = 0,
          .whitespace_max = grammar::CompileOptions{}.whitespace_max,
          .ignore_formats = 0,
          .allow_unsupported = 0,
          .usual_spelling = 0};
}

di_grammar_vocabulary* di_grammar_vocabulary_new(const char* const* bytes, const size_t* sizes, size_t count,
                                                 const uint32_t* special, size_t special_count, const uint32_t* stop,
                                                 size_t stop_count) {
  std::vector<std::string> tokens;
  tokens.reserve(count);
  for (size_t i = 0; i < count; ++i) tokens.emplace_back(bytes[i] == nullptr ? "" : bytes[i], bytes[i] == nullptr ? 0 : sizes[i]);
  return new di_grammar_vocabulary{grammar::Vocabulary::Create(tokens, {special, special_count}, {stop, stop_count})};
}

void di_grammar_vocabulary_free(di_grammar_vocabulary* vocabulary) { delete vocabulary; }

size_t di_grammar_mask_words(const di_grammar_vocabulary* vocabulary) { return vocabulary->vocabulary->mask_words(); }

int di_grammar_compile(const di_grammar_vocabulary* vocabulary, int kind, const char* text, size_t size,
                       const di_grammar_options* options, di_grammar_compiled** out, char* error, size_t error_size) {
  const std::string source(text, size);
  const auto constraint = [&]() -> grammar::Constraint {
    switch (kind) {
      case DI_GRAMMAR_JSON_SCHEMA: return grammar::Constraint::JsonSchema(source);
      case DI_GRAMMAR_GBNF: return grammar::Constraint::Grammar(source);
      case DI_GRAMMAR_LARK: return grammar::Constraint::Lark(source);
      case DI_GRAMMAR_STRUCTURAL_TAG: return grammar::Constraint::StructuralTag(source);
      default: return grammar::Constraint::Regex(source);
    }
  };
  if (kind < DI_GRAMMAR_REGEX || kind > DI_GRAMMAR_STRUCTURAL_TAG) {
    Write("unknown kind of constraint", error, error_size);
    return DI_GRAMMAR_INVALID;
  }
  grammar::CompileOptions compile_options;
  if (options != nullptr) {
    compile_options.key_order = options->free_key_order != 0 ? grammar::KeyOrder::kFree : grammar::KeyOrder::kSchema;
    compile_options.whitespace_max = options->whitespace_max;
    compile_options.assert_formats = options->ignore_formats == 0;
    compile_options.allow_unsupported = options->allow_unsupported != 0;
    if (options->usual_spelling != 0) compile_options.spelling = grammar::Spelling::kUsual;
  }
  auto compiled = grammar::Compile(constraint(), vocabulary->vocabulary, compile_options);
  if (!compiled.ok()) {
    Write(compiled.status().message(), error, error_size);
    return CodeOf(compiled.status());
  }
  Write("", error, error_size);
  *out = new di_grammar_compiled{*compiled, vocabulary->vocabulary->mask_words()};
  return DI_GRAMMAR_OK;
}

void di_grammar_compiled_free(di_grammar_compiled* compiled) { delete compiled; }

di_grammar_matcher* di_grammar_matcher_new(const di_grammar_compiled* compiled) {
  return new di_grammar_matcher{grammar::Matcher(compiled->compiled), compiled->mask_words};
}

di_grammar_matcher* di_grammar_matcher_fork(const di_grammar_matcher* matcher) {
  return new di_grammar_matcher{matcher->matcher.Fork(), matcher->mask_words};
}

void di_grammar_matcher_free(di_grammar_matcher* matcher) { delete matcher; }

int di_grammar_fill_mask(di_grammar_matcher* matcher, uint32_t* mask) {
  return CodeOf(matcher->matcher.FillMask({mask, matcher->mask_words}));
}

int di_grammar_accept(di_grammar_matcher* matcher, uint32_t token) { return CodeOf(matcher->matcher.Accept(token)); }

int di_grammar_rollback(di_grammar_matcher* matcher, size_t count) {
  if (count > matcher->matcher.accepted()) return DI_GRAMMAR_INVALID;
  matcher->matcher.Rollback(count);
  return DI_GRAMMAR_OK;
}

int di_grammar_is_complete(const di_grammar_matcher* matcher) { return matcher->matcher.IsComplete() ? 1 : 0; }
int di_grammar_is_finished(di_grammar_matcher* matcher) { return matcher->matcher.IsFinished() ? 1 : 0; }

size_t di_grammar_forced_tokens(di_grammar_matcher* matcher, uint32_t* tokens, size_t max) {
  const std::vector<uint32_t> forced = matcher->matcher.ForcedTokens(max);
  std::copy(forced.begin(), forced.end(), tokens);
  return forced.size();
}

}  // extern "C"
