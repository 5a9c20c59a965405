// SPDX-License-Identifier: Apache-2.0
// Prefix reuse on a trace of growing conversations, without a model: what the scheduler and the prefix cache find,
// against the ceiling that the trace allows, with all the memory that it could use and with a half and a quarter of it.
//   agent_trace TRACE.jsonl      (make_agent_trace.py writes one)
//
// The ceiling of a request: whole blocks of its prompt, at most floor((n - 1) / 128), that an earlier request had in
// its prompt or answer. It is computed from the texts alone, by comparing them, not from names or the index.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "sched/null_executor.h"
#include "sched/scheduler.h"

namespace {

using namespace deepinfer;
using kv::kBlockTokens;
using sched::Replay;

struct TraceLine {
  int64_t conversation = 0;
  std::vector<int32_t> new_ids;
  int64_t answer_tokens = 0;
};

std::vector<TraceLine> ReadTrace(const char* path) {
  std::vector<TraceLine> trace;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = ParseJson(line);
    if (!json.ok()) {
      fmt::print(stderr, "{}:{}: {}\n", path, trace.size() + 1, json.status().message());
      std::exit(1);
    }
    TraceLine& entry = trace.emplace_back();
    entry.conversation = json->Find("conversation")->ToInt64().value();
    entry.answer_tokens = json->Find("answer_tokens")->ToInt64().value();
    for (const Json& id : json->Find("new_ids")->Items())
      entry.new_ids.push_back(static_cast<int32_t>(id.ToInt64().value()));
  }
  return trace;
}

// All prefixes seen, as a tree of whole blocks: the children of a node are the blocks that followed it.
class Ceiling {
 public:
  // Whole blocks of `tokens` that were seen, at most `max`.
  int64_t Find(const std::vector<int32_t>& tokens, int64_t max) const {
    int64_t node = 0;
    for (int64_t block = 0; block < max; ++block) {
      const auto at = children_.find({node, Block(tokens, block)});
      if (at == children_.end()) return block;
      node = at->second;
    }
    return max;
  }
  void Add(const std::vector<int32_t>& tokens, int64_t rows) {
    int64_t node = 0;
    for (int64_t block = 0; block < rows / kBlockTokens; ++block) {
      node =
          children_.try_emplace({node, Block(tokens, block)}, static_cast<int64_t>(children_.size()) + 1).first->second;
    }
  }
  int64_t blocks() const { return static_cast<int64_t>(children_.size()); }

 private:
  static std::vector<int32_t> Block(const std::vector<int32_t>& tokens, int64_t block) {
    return {tokens.begin() + block * kBlockTokens, tokens.begin() + (block + 1) * kBlockTokens};
  }
  std::map<std::pair<int64_t, std::vector<int32_t>>, int64_t> children_;
};

struct Outcome {
  int64_t prompt_tokens = 0;
  int64_t ceiling_tokens = 0;
  int64_t distinct_blocks = 0;
  sched::Stats stats;
};

class Replayer {
 public:
  Replayer(const std::vector<TraceLine>& trace, Replay replay, int32_t blocks, int32_t snapshot_pages)
      : trace_(trace), replay_(replay), config_(MakeConfig(blocks, snapshot_pages)) {
    scheduler_ = *sched::Scheduler::Create(config_);
  }

  // Requests come in the order of the trace, at most `kTogether` at a time, a conversation's next one after its last.
  Outcome Run() {
    sched::NullExecutor executor(config_);
    sched::StepPlan plan = scheduler_->MakePlan();
    size_t next = 0;
    while (next < trace_.size() || !live_.empty()) {
      while (next < trace_.size() && live_.size() < kTogether && !busy_[trace_[next].conversation])
        Submit(trace_[next++]);
      if (scheduler_->Plan(&plan)) executor.Launch(plan);
      if (executor.steps() == 0) continue;
      const sched::StepResult& result = executor.Finish();
      for (auto& [index, live] : live_) {
        const auto tokens = scheduler_->Tokens(live.id);
        live.tokens.assign(tokens.begin(), tokens.end());
      }
      scheduler_->Complete(result);
      TakeEnded(result);
    }
    outcome_.stats = scheduler_->stats();
    outcome_.distinct_blocks = ceiling_.blocks();
    return outcome_;
  }

 private:
  static constexpr size_t kTogether = 8;

  struct Live {
    sched::RequestId id;
    int64_t conversation = 0;
    std::vector<int32_t> tokens;
    int64_t length_max = 0;
  };

  static sched::Config MakeConfig(int32_t blocks, int32_t snapshot_pages) {
    sched::Config config;
    config.layers = {40, 128, {2, 8, 14, 20}};
    config.blocks = blocks;
    config.slots = kTogether;
    config.prefill_rows_max = 1024;
    config.step_rows_max = 1100;
    config.steps_in_flight = 1;
    config.pages = {config.pages_per_request_max() * config.slots + snapshot_pages,
                    config.pages_per_request_max() * config.slots + snapshot_pages};
    config.snapshot_pages = {snapshot_pages, snapshot_pages};
    return config;
  }

  void Submit(const TraceLine& line) {
    std::vector<int32_t>& context = contexts_[line.conversation];
    context.insert(context.end(), line.new_ids.begin(), line.new_ids.end());
    const auto length = static_cast<int64_t>(context.size());
    sched::RequestSpec spec;
    spec.prompt = context;
    spec.names = kv::NamePrompt(kv::BlockNamer("model", "cpu", ""), context, {});
    spec.length_max = length + line.answer_tokens;
    spec.replay = replay_;
    Live live;
    live.length_max = spec.length_max;
    live.id = (*scheduler_->Submit(std::move(spec), ++now_ms_)).front();
    live.conversation = line.conversation;
    int64_t max = (length - 1) / kBlockTokens;
    if (replay_ == Replay::kDecoder) max = std::min(max, (length - config_.layers.window) / kBlockTokens);
    outcome_.prompt_tokens += length;
    outcome_.ceiling_tokens += ceiling_.Find(context, max) * kBlockTokens;
    ceiling_.Add(context, length);
    busy_[line.conversation] = true;
    live_.emplace(live.id.index, std::move(live));
  }

  void TakeEnded(const sched::StepResult& result) {
    scheduler_->TakeEnded(&ended_);
    for (const sched::Ended& ended : ended_) {
      Live& live = live_.at(ended.request.index);
      // Its last token came with this step; which one it was does not matter to anybody but the next turn.
      while (static_cast<int64_t>(live.tokens.size()) < live.length_max) live.tokens.push_back(result.tokens.front());
      ceiling_.Add(live.tokens, live.length_max - 1);  // the last token's row did not run
      contexts_[live.conversation] = live.tokens;
      busy_[live.conversation] = false;
      live_.erase(ended.request.index);
    }
  }

  const std::vector<TraceLine>& trace_;
  Replay replay_;
  sched::Config config_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  Ceiling ceiling_;
  std::map<int64_t, std::vector<int32_t>> contexts_;
  std::map<int64_t, bool> busy_;
  std::map<uint32_t, Live> live_;
  std::vector<sched::Ended> ended_;
  int64_t now_ms_ = 0;
  Outcome outcome_;
};

double Percent(int64_t part, int64_t whole) { return 100.0 * static_cast<double>(part) / static_cast<double>(whole); }

void Show(const char* memory, const char* setting, int32_t blocks, const Outcome& o) {
  fmt::print(
      "{:9} {:8} {:6} blocks: hit rate {:6.2f} %, ceiling {:6.2f} %, lost {:6.2f}; rows run again {:5.2f} % of "
      "prompts, "
      "{} of {} admissions at a snapshot, {} preemptions\n",
      memory, setting, blocks, Percent(o.stats.cached_tokens, o.stats.prompt_tokens),
      Percent(o.ceiling_tokens, o.prompt_tokens),
      Percent(o.ceiling_tokens, o.prompt_tokens) - Percent(o.stats.cached_tokens, o.stats.prompt_tokens),
      Percent(o.stats.replayed_rows, o.stats.prompt_tokens), o.stats.snapshot_hits, o.stats.ended[0],
      o.stats.preemptions);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: agent_trace TRACE.jsonl\n");
    return 2;
  }
  const std::vector<TraceLine> trace = ReadTrace(argv[1]);
  const int32_t unlimited = 200000;
  const Outcome all = Replayer(trace, Replay::kExact, unlimited, 2000).Run();
  const auto footprint = static_cast<int32_t>(all.distinct_blocks);
  fmt::print("{} requests, {} prompt tokens, {} distinct blocks\n", trace.size(), all.prompt_tokens, footprint);
  Show("unlimited", "exact", unlimited, all);
  struct Setting {
    Replay replay;
    const char* name;
  };
  for (const Setting& s :
       {Setting{Replay::kDecoder, "decoder"}, {Replay::kBounded, "bounded"}, {Replay::kNone, "none"}}) {
    Show("unlimited", s.name, unlimited, Replayer(trace, s.replay, unlimited, 2000).Run());
  }
  for (const int32_t part : {1, 2, 4}) {
    const std::string name = fmt::format("1/{}", part);
    for (const Setting& s :
         {Setting{Replay::kExact, "exact"}, {Replay::kDecoder, "decoder"}, {Replay::kBounded, "bounded"}}) {
      Show(name.c_str(), s.name, footprint / part, Replayer(trace, s.replay, footprint / part, 80 / part).Run());
    }
  }
  return all.stats.cached_tokens == all.ceiling_tokens ? 0 : 1;
}
