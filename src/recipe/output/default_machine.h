// SPDX-License-Identifier: Apache-2.0
// The stages of the default profile. What it does beyond the compatible one (docs/recipe.md, "Answers out"):
//  - calls begin at a whole opener (of a block, or of a call without a block); a bare ｜DSML｜ is text;
//  - a value ends at the closer of a parameter alone, a parameter's name at the end of its tag; names are escaped;
//  - values not marked as strings must be JSON, else they become strings; a JSON object as the body is the arguments;
//  - what is no call, or not whole, is reported with its raw text;
//  - calls within the reasoning do not end it, and a second block is read like the first;
//  - JSON mode drops prose before the value and all after it.
// Not for concurrent use.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/output/json_end.h"
#include "recipe/output/output_machine.h"
#include "recipe/output/parameter_header.h"

namespace deepinfer::recipe {

class DefaultMachine : public OutputMachine {
 public:
  DefaultMachine(const ParseOptions& options, const OutputLimits& limits);

  void End() override;
  bool InReasoning() const override { return at_ == At::kReasoning; }

 protected:
  void OnText(std::string_view text) override;
  bool OnMatch(int action, std::string_view matched) override;

 private:
  enum class At {
    kReasoning, kContent, kJsonProse, kJson, kCalls, kName, kArguments, kHeader, kString, kRaw, kAfterCalls, kFinished,
  };

  void Go(At at);
  void Text(std::string_view text);
  void JsonProse(std::string_view text);
  void JsonText(std::string_view text);
  bool MatchInText(int action, std::string_view matched);
  void MatchInCalls(int action, std::string_view matched);

  void AddRaw(std::string_view text);
  void OpenCall(std::string_view matched);
  void EndName();
  void TryHeader();
  void OpenParameter(const ParameterHeader& header);
  void EndValue();
  bool CloseCall();
  void CloseBlock();
  bool ReportStrayText();
  void EndInBlock();
  void Break(Malformed reason);

  // The stages but for stop sequences, made once for all parsers.
  struct Stages;
  static const Stages& SharedStages(bool tools);

  const Stages& stages_;
  std::unique_ptr<Stage> content_with_stops_, json_with_stops_;
  At at_ = At::kContent;
  At origin_ = At::kContent;  // where the calls began
  int eos_pending_ = 0;       // spelled ends of sentence: dropped at the end of the output, else text

  std::string prose_;
  bool prose_is_text_ = false;
  JsonEndFinder json_end_;

  // The call that is being read.
  bool in_block_ = false;
  std::string raw_;
  std::string name_;
  std::string header_;
  std::string body_;   // text between its parameters
  std::string value_text_;
  std::vector<std::string> parameters_;  // names so far
  ParameterType type_ = ParameterType::kUnstated;
  bool begun_ = false;      // kCallBegin is out
  bool discard_ = false;    // the current value is not wanted
  Malformed malformed_ = Malformed::kNone;
  bool broken_ = false;     // nothing more of it goes out
};

}  // namespace deepinfer::recipe
