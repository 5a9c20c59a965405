// SPDX-License-Identifier: Apache-2.0
// The stages of the compatible profile: what deepseek-recipe 0.2.0 does with a model's output, its weak points
// included (docs/recipe.md, "Answers out"). Not for concurrent use.
#pragma once

#include <string>
#include <string_view>

#include "recipe/output/output_machine.h"

namespace deepinfer::recipe {

class CompatibleMachine : public OutputMachine {
 public:
  CompatibleMachine(const ParseOptions& options, const OutputLimits& limits);

  void BeginChunk() override { space_emitted_ = false; }
  void End() override { Flush(); }
  bool InReasoning() const override { return at_ == At::kReasoning; }

 protected:
  void OnText(std::string_view text) override;
  bool OnMatch(int action, std::string_view matched) override;

 private:
  enum class At {
    kReasoning, kContent, kJsonProse, kJson, kJsonAfter, kCalls, kName, kArguments, kKey, kType, kString, kRaw,
    kFinished,
  };

  void Go(At at);
  void ThinkEnd();
  void OpenParameter();
  void CloseCall();

  Stage reasoning_, content_, json_prose_, json_, json_after_, calls_, name_stage_, arguments_, key_, type_, value_,
      finished_;
  At at_ = At::kContent;
  bool space_emitted_ = false;  // for the text that JSON mode skipped in this chunk
  bool first_parameter_ = true;
  std::string name_;
};

}  // namespace deepinfer::recipe
