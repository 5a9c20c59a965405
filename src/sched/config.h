// SPDX-License-Identifier: Apache-2.0
// Limits and sizes of a scheduler. All memory is sized from them at construction.
#pragma once

#include <array>
#include <cstdint>

#include "core/status.h"
#include "kv/block/block_pool.h"
#include "sched/replay.h"

namespace deepinfer::sched {

struct Config {
  LayerShape layers;

  // Cache memory, in pieces of 128 tokens. Pages of a group hold a window row of each of its layers (late: of the draft
  // stages too); 0 pages for a group without layers.
  int32_t blocks = 0;
  std::array<int32_t, kv::kLayerGroups> pages{};
  // Share of the pages that snapshots may keep, and how often a prompt leaves one (in blocks; 0: only at its end).
  std::array<int32_t, kv::kLayerGroups> snapshot_pages{};
  int32_t snapshot_every_blocks = 0;

  int32_t slots = 1;             // requests that run at once
  int32_t queue_max = 1024;      // requests that wait
  int32_t choices_max = 16;      // of one request
  int64_t length_max = 1 << 20;  // tokens of a request, prompt and answer

  // Rows of a step: at most step_rows_max in all, prefill_rows_max of them for prompts. step_rows_max > slots, so that
  // neither decodes nor prompts ever stop.
  int32_t step_rows_max = 256;
  int32_t prefill_rows_max = 128;
  int32_t draft_rows = 0;       // drafts that a verify step may carry, at most
  int32_t steps_in_flight = 2;  // plans made and not completed, at most

  // A request of priority p counts as if it had come p * priority_head_start_ms earlier.
  int64_t priority_head_start_ms = 10000;
  // How many later requests may be admitted before one that waits for room.
  int32_t bypass_max = 64;

  // kInvalidArgument with the field's name.
  Status Validate() const;

  // Pages that a window spans before a block end.
  int32_t pages_per_point() const;
  // Entries that a row of the page tables needs at most, and those that one request needs to get on at all.
  int32_t pages_per_request_max() const;
  int32_t pages_per_request_min() const;
  int32_t blocks_per_request_max() const;
};

}  // namespace deepinfer::sched
