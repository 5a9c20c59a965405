// SPDX-License-Identifier: Apache-2.0
// A request as the scheduler keeps it, and its states as types: a state owns exactly what the request holds of the
// cache while it is in it, so leaving a state means handing that on or giving it back.
//
//              admitted              prefix known                 last chunk planned
//   Queued ----------------> Following ------------> Prefilling ---------------------> Decoding
//     ^  ^                       |                       |                                |
//     |  | preempted,            +-----------+-----------+--------------------------------+
//     |  | no step in flight                 | preempted, ended: while steps are in flight
//     |  +-----------------------------------+---> Draining ---> gone, or Queued again
//     |                                                               first token drawn with the leader's
//     +---- no room to fork, leader gone ---- Forking ---------------------------------> Decoding
//
// Private to sched.
#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "kv/prefix/block_name.h"
#include "sched/cache.h"
#include "sched/plan.h"
#include "sched/replay.h"

namespace deepinfer::sched {

// Why a request left.
enum class EndReason : uint8_t {
  kFinished,   // a result said so, or its length limit is reached
  kCancelled,  // Cancel
  kFailed,     // a result said so
  kNoRoom,     // against a hang, should memory be held by requests alone that nobody can preempt: not seen
};

namespace state {

struct Queued {};  // waits for a slot and room

struct Forking {  // a further choice: waits for the leader to have run the prompt
  uint32_t leader;
};

struct Following {  // holds the blocks that it hit, waits while others compute the next ones
  SlotLease lease;
  bool waited = false;  // for a block that somebody computes
};

struct Prefilling {
  SlotLease lease;
  int64_t next;    // position of the first row not planned yet
  int64_t target;  // rows to run: Request::prefill_target() when it began
};

struct Decoding {
  SlotLease lease;
};

struct Draining {  // is planned no more; its cache comes back when the steps in flight are done
  SlotLease lease;
  bool preempted;   // true: results still count, then Queued; false: ends for `reason`
  bool makes_room;  // somebody ahead waits for what it holds
  EndReason reason;
};

}  // namespace state

using State =
    std::variant<state::Queued, state::Forking, state::Following, state::Prefilling, state::Decoding, state::Draining>;
inline constexpr size_t kNumStates = std::variant_size_v<State>;

// Who goes first: a smaller key.
struct OrderKey {
  int64_t time_ms = 0;  // of arrival, less the head start of its priority
  uint64_t sequence = 0;
  auto operator<=>(const OrderKey&) const = default;
};

struct Request {
  bool live = false;
  uint32_t generation = 0;
  State state;

  OrderKey key;
  int32_t priority = 0;
  Replay replay = Replay::kExact;
  int32_t drafts = 0;
  bool firm_drafts = false;
  int64_t prompt_length = 0;
  int64_t length_max = 0;
  std::vector<int32_t> tokens;  // prompt and committed answer; never reallocated
  std::vector<kv::ImageSpan> images;
  kv::BlockNamer namer{"", "", ""};
  std::vector<kv::BlockName> chain;  // of the whole blocks named so far; never reallocated
  std::vector<uint32_t> forking;     // choices that wait for this one

  // Progress. Rows [0, computed) are in the cache as far as completed steps go.
  int64_t computed = 0;
  int64_t published = 0;  // blocks handed to the index, or taken from it
  int64_t cached = 0;     // tokens of its last admission whose blocks were hit
  int64_t hit = -1;       // kBounded: the first hit, part of its recipe; -1: not admitted yet
  kv::BlockClass block_class = kv::BlockClass::kPure;
  ReplayStarts starts;

  // Steps in flight, and what they commit at least and at most.
  int32_t in_flight = 0;
  int32_t pending_min = 0;
  int32_t pending_max = 0;

  // Admission.
  int32_t bypassed = 0;       // in all its life
  int64_t blocks_wanted = 0;  // beyond its hits, when it was refused last
  int64_t refused_step = -1;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  // Rows of a prefill that begins now: all tokens, or all but the newest where that one needs drafts behind it.
  bool resumes_firm() const { return firm_drafts && length() > prompt_length; }
  int64_t prefill_target() const { return length() - (resumes_firm() ? 1 : 0); }
  // The slot that its state holds; -1 for none.
  int32_t slot() const;
  // Takes the lease out of the state. REQUIRES: slot() >= 0.
  SlotLease TakeLease();
  bool drained() const { return in_flight == 0; }
};

}  // namespace deepinfer::sched
