// SPDX-License-Identifier: Apache-2.0
// Property: a step of the engine allocates nothing once it is warm: scheduler, executor, forward pass on the CPU backend,
// sampling, streams. Counted by an operator new of our own, on all threads, while requests decode and none begins or ends.
// With DEEPINFER_SHOW_ALLOCATIONS set, the first ten tell where they come from.
#include <gtest/gtest.h>

#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include "deepinfer/engine.h"

namespace {

std::atomic<int64_t> g_allocations{0};
std::atomic<int> g_to_show{0};  // of the next allocations, where they come from goes to stderr

void Count() {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (g_to_show.load(std::memory_order_relaxed) <= 0 || g_to_show.fetch_sub(1) <= 0) return;
  void* frames[24];
  backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  Count();
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace deepinfer {
namespace {

struct Scene {
  const char* name;
  GenerationRequest request;
};

std::vector<Scene> Scenes() {
  return {{"greedy", {}},
          {"temperature", {.temperature = 1, .seed = 1}},
          {"top-p", {.temperature = 1, .top_p = 0.9F, .seed = 1}},
          {"top-k and min-p", {.temperature = 1, .top_k = 20, .min_p = 0.05F, .seed = 1}}};
}

constexpr int kRequests = 6;
constexpr int64_t kAnswer = 900;

std::unique_ptr<Engine> Open(bool own_thread) {
  EngineOptions options{.model_directory = std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny", .num_threads = 2};
  options.context_max = 1024;
  options.kv_memory_bytes = 64 << 20;
  options.requests_running_max = 8;
  options.step_rows_max = 128;
  options.drafts = "off";
  options.own_thread = own_thread;
  std::string why;
  auto engine = Engine::Open(options, &why);
  EXPECT_NE(engine, nullptr) << why;
  return engine;
}

using Counts = std::array<std::atomic<int64_t>, kRequests>;

int64_t Least(const Counts& tokens) {
  int64_t least = kAnswer;
  for (const auto& count : tokens) least = std::min<int64_t>(least, count);
  return least;
}

// Requests whose consumers count tokens.
std::vector<GenerationId> SubmitAll(Engine& engine, GenerationRequest request, Counts* tokens) {
  std::vector<GenerationId> ids;
  for (int i = 0; i < kRequests; ++i) {
    request.prompt.assign(static_cast<size_t>(20 + i), 5 + i);
    request.max_tokens = kAnswer;
    request.ignore_eos = true;
    std::string why;
    std::atomic<int64_t>* count = &(*tokens)[static_cast<size_t>(i)];
    ids.push_back(engine.Submit(request, [count](const Output& output) { count->fetch_add(output.token >= 0); }, &why));
    EXPECT_NE(ids.back(), 0u) << why;
  }
  return ids;
}

// The window covers steps in which a block fills up and the next one is taken.
TEST(Engine, AStepByHandAllocatesNothing) {
  for (const Scene& scene : Scenes()) {
    const auto engine = Open(/*own_thread=*/false);
    Counts tokens{};
    SubmitAll(*engine, scene.request, &tokens);
    for (int step = 0; step < 60; ++step) ASSERT_TRUE(engine->Step());
    const int64_t before = g_allocations, tokens_before = Least(tokens);
    if (std::getenv("DEEPINFER_SHOW_ALLOCATIONS") != nullptr) g_to_show = 10;
    for (int step = 0; step < 150; ++step) ASSERT_TRUE(engine->Step());
    const int64_t allocations = g_allocations - before;
    g_to_show = 0;
    EXPECT_EQ(allocations, 0) << scene.name;
    EXPECT_EQ(Least(tokens) - tokens_before, 150);
  }
}

TEST(Engine, ItsThreadsAllocateNothing) {
  const auto engine = Open(/*own_thread=*/true);
  Counts tokens{};
  const std::vector<GenerationId> ids = SubmitAll(*engine, Scenes()[1].request, &tokens);
  const auto wait_for = [&](int64_t wanted) {
    while (Least(tokens) < wanted) std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  wait_for(60);
  const int64_t before = g_allocations;
  if (std::getenv("DEEPINFER_SHOW_ALLOCATIONS") != nullptr) g_to_show = 10;
  wait_for(160);
  EXPECT_EQ(g_allocations - before, 0);
  g_to_show = 0;
  for (const GenerationId id : ids) engine->Cancel(id);
  for (const GenerationId id : ids) engine->Wait(id);
}

}  // namespace
}  // namespace deepinfer
