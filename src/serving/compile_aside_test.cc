// SPDX-License-Identifier: Apache-2.0
// Property: quick compilations stay on their thread, long ones are done again at low priority, and both give what a plain
// compilation gives.
#include "serving/compile_aside.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace deepinfer::serving {
namespace {

using grammar::CompileOptions;
using grammar::Constraint;

struct Call {
  std::thread::id thread;
  int nice = 0;
  std::chrono::milliseconds limit{0};
};

struct Compiler {
  std::vector<Call> calls;

  CompileFn Of(const Constraint& constraint) {
    return [this, constraint](const CompileOptions& options) {
      const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
      calls.push_back({std::this_thread::get_id(), nice, options.limits.time});
      return grammar::Compile(constraint, vocabulary, options);
    };
  }
  std::shared_ptr<const grammar::Vocabulary> vocabulary = [] {
    std::vector<std::string> tokens;
    for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
    return grammar::Vocabulary::Create(tokens, {}, {});
  }();
};

// Emptiness of such a thing is found by a search that ends with a limit.
Constraint Endless() { return Constraint::JsonSchema(R"({"type":"string","minLength":1000000000,"pattern":"^a*$"})"); }

TEST(CompileAside, QuickOnesStayOnTheirThread) {
  Compiler compiler;
  EXPECT_TRUE(CompileAside(compiler.Of(Constraint::Regex("a+")), {}).ok());
  EXPECT_EQ(CompileAside(compiler.Of(Constraint::Regex("(")), {}).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(compiler.calls.size(), 2u);
  for (const Call& call : compiler.calls) EXPECT_EQ(call.thread, std::this_thread::get_id());
}

TEST(CompileAside, LongOnesGoOnAtLowPriority) {
  Compiler compiler;
  CompileOptions options;
  options.limits.time = std::chrono::milliseconds(200);
  const auto compiled = CompileAside(compiler.Of(Endless()), options);
  EXPECT_EQ(compiled.status().code(), Code::kResourceExhausted) << compiled.status().message();
  ASSERT_EQ(compiler.calls.size(), 2u);
  EXPECT_EQ(compiler.calls[0].thread, std::this_thread::get_id());
  EXPECT_EQ(compiler.calls[0].limit, std::chrono::milliseconds(20));
  EXPECT_NE(compiler.calls[1].thread, std::this_thread::get_id());
  EXPECT_EQ(compiler.calls[1].limit, options.limits.time);
  EXPECT_GT(compiler.calls[1].nice, compiler.calls[0].nice);
}

}  // namespace
}  // namespace deepinfer::serving
