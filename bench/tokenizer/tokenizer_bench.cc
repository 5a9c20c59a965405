// SPDX-License-Identifier: Apache-2.0
// Times this tokenizer on the benchmark's texts and prints one JSON object of medians. bench/tokenizer/run.py runs it
// beside its peers and compares the ids.
//
//   tokenizer_bench TOKENIZER_JSON CORPUS_DIR THREADS [IDS_DIR]    with IDS_DIR the ids are written there, as int32
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "core/json.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", result.status().message().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> ReadChats(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> chats;
  std::string line;
  while (std::getline(file, line)) chats.push_back(Take(ParseJson(line)).AsString());
  return chats;
}

// With one thread the CPU's time, which other programs on the machine disturb less; with more the clock's.
double Seconds(int threads, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  work();
  if (threads == 1) return static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double MedianSeconds(int runs, int threads, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) seconds.push_back(Seconds(threads, work));
  std::ranges::nth_element(seconds, seconds.begin() + runs / 2);
  return seconds[runs / 2];
}

// How much faster `many` is than `one`, by the clock: pairs in turn, so that both see the same machine; the median pair,
// after a few that let every thread's caches fill.
double Gain(const std::function<void()>& one, const std::function<void()>& many) {
  constexpr int kPairs = 25, kWarmUp = 5;
  std::vector<double> gains;
  for (int i = 0; i < kPairs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    one();
    const auto middle = std::chrono::steady_clock::now();
    many();
    const std::chrono::duration<double> first = middle - start, second = std::chrono::steady_clock::now() - middle;
    if (i >= kWarmUp) gains.push_back(first / second);
  }
  std::ranges::nth_element(gains, gains.begin() + gains.size() / 2);
  return gains[gains.size() / 2];
}

void Write(const std::string& path, const std::vector<TokenId>& ids) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId));
}

int Main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER_JSON CORPUS_DIR THREADS [IDS_DIR]\n");
    return 2;
  }
  const std::string corpus = argv[2];
  EncodeOptions options{.threads = std::atoi(argv[3])};
  const std::string mixed = ReadAll(corpus + "/mixed.txt");
  const std::string long_text = ReadAll(corpus + "/long.txt");
  const std::vector<std::string> chats = ReadChats(corpus + "/chats.jsonl");
  size_t chat_bytes = 0;
  for (const std::string& chat : chats) chat_bytes += chat.size();

  TokenizerPtr tokenizer;
  const double load = Seconds(options.threads, [&] { tokenizer = Take(Tokenizer::Load(argv[1])); });
  std::vector<TokenId> mixed_ids, long_ids, chat_ids;
  const auto encode = [&](const std::string& text, std::vector<TokenId>* ids) {
    ids->clear();
    const Status status = tokenizer->AppendEncoded(text, options, ids);
    if (!status.ok()) std::exit(1);
  };
  const double first = Seconds(options.threads, [&] { encode(mixed, &mixed_ids); });
  const double again = MedianSeconds(15, options.threads, [&] { encode(mixed, &mixed_ids); });
  const double long_first = Seconds(options.threads, [&] { encode(long_text, &long_ids); });
  const double long_again = MedianSeconds(5, options.threads, [&] { encode(long_text, &long_ids); });
  const double chat = MedianSeconds(15, options.threads, [&] {
    chat_ids.clear();
    for (const std::string& text : chats) {
      if (!tokenizer->AppendEncoded(text, options, &chat_ids).ok()) std::exit(1);
    }
  });
  const int threads = options.threads;
  const auto gain = [&](const std::string& text, std::vector<TokenId>* ids) {
    const auto with = [&](int n) {
      options.threads = n;
      encode(text, ids);
    };
    return Gain([&] { with(1); }, [&] { with(threads); });
  };
  const double mixed_gain = threads > 1 ? gain(mixed, &mixed_ids) : 1, long_gain = threads > 1 ? gain(long_text, &long_ids) : 1;
  const auto rate = [](size_t bytes, double seconds) { return Json::Double(static_cast<double>(bytes) / seconds / 1e6); };
  const Json::Object report = {
      {"load_ms", Json::Double(load * 1e3)},
      {"mixed_first_mb_s", rate(mixed.size(), first)},
      {"mixed_mb_s", rate(mixed.size(), again)},
      {"chats_mb_s", rate(chat_bytes, chat)},
      {"long_tokens", Json::Integer(static_cast<int64_t>(long_ids.size()))},
      {"long_first_ms", Json::Double(long_first * 1e3)},
      {"long_ms", Json::Double(long_again * 1e3)},
      {"mixed_gain", Json::Double(mixed_gain)},
      {"long_gain", Json::Double(long_gain)},
  };
  std::printf("%s\n", WriteJson(Json(report)).c_str());
  if (argc > 4) {
    const std::string out = argv[4];
    Write(out + "/mixed.ids", mixed_ids);
    Write(out + "/chats.ids", chat_ids);
    Write(out + "/long.ids", long_ids);
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) { return deepinfer::Main(argc, argv); }
