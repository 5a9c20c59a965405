// SPDX-License-Identifier: Apache-2.0
#include <list>
#include <mutex>
#include <unordered_map>

#include "core/check.h"
#include "deepinfer/grammar.h"
#include "grammar/engine.h"

namespace deepinfer::grammar {
namespace {

constexpr size_t kIdleEnginesMax = 8;
constexpr size_t kTokenBytes = 256;      // more than a token has
constexpr uint64_t kShareOfCall = 16;    // of the allowance, that comes back with each call

}  // namespace

class CompiledGrammar::Impl {
 public:
  Impl(Constraint constraint, CompileOptions options, std::shared_ptr<const VocabularyImpl> vocabulary)
      : constraint_(std::move(constraint)), options_(std::move(options)), vocabulary_(std::move(vocabulary)) {
    options_.cancel = nullptr;
  }

  // An idle engine, or a new one (which then takes as long as compiling did).
  std::unique_ptr<Engine> Take() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Engine> engine = std::move(idle_.back());
        idle_.pop_back();
        return engine;
      }
    }
    auto engine = Engine::Create(constraint_, options_, vocabulary_);
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  void GiveBack(std::unique_ptr<Engine> engine) {
    // A large one is not worth keeping: what it has learnt was about one output.
    if (engine == nullptr || !engine->healthy() || engine->bytes() > options_.limits.memory_bytes / 2) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < kIdleEnginesMax) idle_.push_back(std::move(engine));
  }

  void SetDropped(std::vector<std::string> dropped) { dropped_ = std::move(dropped); }
  const std::vector<std::string>& dropped() const { return dropped_; }
  const VocabularyImpl& vocabulary() const { return *vocabulary_; }

 private:
  Constraint constraint_;
  CompileOptions options_;
  std::shared_ptr<const VocabularyImpl> vocabulary_;
  std::vector<std::string> dropped_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Engine>> idle_;
};

const std::vector<std::string>& CompiledGrammar::Dropped() const { return impl_->dropped(); }
const Vocabulary& CompiledGrammar::vocabulary() const { return impl_->vocabulary(); }

Result<CompiledGrammar> Compile(const Constraint& constraint, std::shared_ptr<const Vocabulary> vocabulary,
                                const CompileOptions& options) {
  auto words = std::dynamic_pointer_cast<const VocabularyImpl>(vocabulary);
  if (words == nullptr) return Error(Code::kInvalidArgument, "grammar: no vocabulary");
  DI_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(constraint, options, words));
  auto impl = std::make_shared<CompiledGrammar::Impl>(constraint, options, words);
  impl->SetDropped(engine->dropped());
  impl->GiveBack(std::move(engine));
  return CompiledGrammar(std::move(impl));
}

// The engine of a matcher and its forks; goes back to the grammar with the last of them.
struct Lease {
  explicit Lease(std::shared_ptr<CompiledGrammar::Impl> from) : grammar(std::move(from)), engine(grammar->Take()) {}
  ~Lease() { grammar->GiveBack(std::move(engine)); }
  std::shared_ptr<CompiledGrammar::Impl> grammar;
  std::unique_ptr<Engine> engine;  // nullptr: could not be built again
};

struct Matcher::State {
  std::shared_ptr<Lease> lease;
  struct Step {
    StateId state;
    size_t text_size;
    bool ended;
  };
  std::vector<Step> steps;  // steps[0] is the start
  std::string text;
  Status failure;           // sticky
  uint64_t allowance = 0;   // steps, before what the next call brings

  Engine* engine() { return lease->engine.get(); }
  StateId state() const { return steps.back().state; }
  // Around each call of the engine that may cost much; `bytes` that it reads.
  void Begin(size_t bytes) {
    const uint64_t most = engine()->options().limits.call_steps;
    allowance = std::min(most, allowance + most / kShareOfCall);
    engine()->StartCall(allowance + most * (bytes / kTokenBytes));
  }
  void End() {
    allowance = std::min(allowance, engine()->StepsLeft());
    failure = engine()->Failure();
  }
};

Matcher::Matcher(const CompiledGrammar& grammar) : state_(std::make_unique<State>()) {
  state_->lease = std::make_shared<Lease>(grammar.impl());
  if (state_->engine() == nullptr) {
    state_->failure = Error(Code::kResourceExhausted, "grammar: no engine");
    state_->steps.push_back({kDeadState, 0, false});
    return;
  }
  state_->steps.push_back({state_->engine()->start(), 0, false});
  state_->allowance = state_->engine()->options().limits.call_steps;
}

Matcher::Matcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

Matcher Matcher::Fork() const { return Matcher(std::make_unique<State>(*state_)); }

Status Matcher::FillMask(std::span<uint32_t> mask) {
  State& s = *state_;
  DI_RETURN_IF_ERROR(s.failure);
  DI_CHECK(mask.size() == s.engine()->vocabulary().mask_words());
  if (s.steps.back().ended) {
    std::fill(mask.begin(), mask.end(), 0);
    return Status();
  }
  s.Begin(0);
  s.engine()->FillMask(s.state(), &s.text, mask);
  s.End();
  return s.failure;
}

Status Matcher::Accept(uint32_t token) {
  State& s = *state_;
  DI_RETURN_IF_ERROR(s.failure);
  const VocabularyImpl& vocabulary = s.engine()->vocabulary();
  const auto refuse = [&] { return Error(Code::kInvalidArgument, "grammar: token {} is not allowed here", token); };
  if (s.steps.back().ended) return refuse();
  if (vocabulary.IsStop(token)) {
    if (!IsComplete()) return refuse();
    s.steps.push_back({s.state(), s.text.size(), true});
    return Status();
  }
  if (token >= vocabulary.size() || vocabulary.TokenBytes(token).empty()) return refuse();
  Status status = AcceptBytes(vocabulary.TokenBytes(token));
  return status.code() == Code::kInvalidArgument ? refuse() : status;
}

Status Matcher::AcceptBytes(std::string_view bytes) {
  State& s = *state_;
  DI_RETURN_IF_ERROR(s.failure);
  const size_t before = s.text.size();
  s.Begin(bytes.size());
  const StateId next = s.steps.back().ended ? kDeadState : s.engine()->Run(s.state(), bytes, &s.text);
  s.End();
  if (next == kDeadState) {
    s.text.resize(before);
    DI_RETURN_IF_ERROR(s.failure);
    return Error(Code::kInvalidArgument, "grammar: these bytes are not allowed here");
  }
  s.steps.push_back({next, s.text.size(), false});
  return Status();
}

bool Matcher::CanAcceptBytes(std::string_view bytes) {
  State& s = *state_;
  if (!s.failure.ok() || s.steps.back().ended) return false;
  std::string text = s.text;
  s.Begin(bytes.size());
  const bool can = s.engine()->Run(s.state(), bytes, &text) != kDeadState;
  s.End();
  return can;
}

void Matcher::Rollback(size_t count) {
  State& s = *state_;
  DI_CHECK(count < s.steps.size());
  s.steps.resize(s.steps.size() - count);
  s.text.resize(s.steps.back().text_size);
}

size_t Matcher::accepted() const { return state_->steps.size() - 1; }

bool Matcher::IsComplete() const {
  return state_->failure.ok() && state_->lease->engine->IsComplete(state_->state());
}

bool Matcher::IsFinished() {
  return state_->steps.back().ended || (IsComplete() && state_->engine()->IsFinished(state_->state()));
}

std::vector<uint32_t> Matcher::ForcedTokens(size_t max) {
  std::vector<uint32_t> forced;
  if (!state_->failure.ok()) return forced;
  Matcher ahead = Fork();
  std::vector<uint32_t> mask(state_->engine()->vocabulary().mask_words());
  while (forced.size() < max && ahead.FillMask(mask).ok()) {
    int64_t only = -1;
    for (size_t word = 0; word < mask.size() && only != -2; ++word) {
      if (mask[word] == 0) continue;
      only = only == -1 && (mask[word] & (mask[word] - 1)) == 0 ? static_cast<int64_t>(word * 32) + __builtin_ctz(mask[word]) : -2;
    }
    if (only < 0) break;
    forced.push_back(static_cast<uint32_t>(only));
    if (!ahead.Accept(static_cast<uint32_t>(only)).ok()) break;
  }
  return forced;
}

struct CompileCache::State {
  explicit State(size_t max) : entries_max(max) {}
  struct Entry {
    std::string key;
    CompiledGrammar grammar;
  };
  const size_t entries_max;
  std::mutex mutex;
  std::list<Entry> entries;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index;
};

CompileCache::CompileCache(size_t entries_max) : state_(std::make_unique<State>(entries_max)) {}
CompileCache::~CompileCache() = default;

namespace {

std::string CacheKey(const Constraint& constraint, const Vocabulary* vocabulary, const CompileOptions& options) {
  std::string key;
  const auto add = [&](std::string_view part) { key += fmt::format("{}:", part.size()) + std::string(part); };
  const auto number = [&](uint64_t value) { key += fmt::format("{};", value); };
  number(static_cast<uint64_t>(constraint.kind));
  number(reinterpret_cast<uintptr_t>(vocabulary));
  add(constraint.text);
  for (const std::string& choice : constraint.choices) add(choice);
  key += '|';
  for (const ToolConstraint& tool : constraint.tools) {
    add(tool.name);
    add(tool.parameters);
    number(tool.strict ? 1 : 0);
  }
  const DsmlOptions& dsml = constraint.dsml;
  for (uint64_t value : {uint64_t{dsml.dsml_token}, uint64_t{dsml.required}, uint64_t{dsml.parallel}, uint64_t{dsml.v41},
                         uint64_t{dsml.opener_in_prompt}}) {
    number(value);
  }
  for (uint32_t token : dsml.free_tokens) number(token);
  add(dsml.text_schema);
  add(dsml.text_regex);
  key += '|';
  number(static_cast<uint64_t>(options.spelling));
  for (uint64_t value : {static_cast<uint64_t>(options.key_order), uint64_t{options.whitespace_max},
                         uint64_t{options.assert_formats}, uint64_t{options.allow_unsupported}}) {
    number(value);
  }
  for (const auto& [uri, text] : options.documents) {
    add(uri);
    add(text);
  }
  return key;
}

}  // namespace

Result<CompiledGrammar> CompileCache::Get(const Constraint& constraint, const std::shared_ptr<const Vocabulary>& vocabulary,
                                          const CompileOptions& options) {
  const std::string key = CacheKey(constraint, vocabulary.get(), options);
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    const auto it = state_->index.find(key);
    if (it != state_->index.end()) {
      state_->entries.splice(state_->entries.begin(), state_->entries, it->second);
      return it->second->grammar;
    }
  }
  DI_ASSIGN_OR_RETURN(CompiledGrammar grammar, Compile(constraint, vocabulary, options));
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->index.count(key) == 0) {
    state_->entries.push_front({key, grammar});
    state_->index[key] = state_->entries.begin();
    if (state_->entries.size() > state_->entries_max) {
      state_->index.erase(state_->entries.back().key);
      state_->entries.pop_back();
    }
  }
  return grammar;
}

}  // namespace deepinfer::grammar
