// SPDX-License-Identifier: Apache-2.0
#include "sched/request.h"

namespace deepinfer::sched {
namespace {

template <typename S>
constexpr bool kHoldsLease = requires(S& s) {
  s.lease;
};

}  // namespace

int32_t Request::slot() const {
  return std::visit(
      [](const auto& s) -> int32_t {
        if constexpr (kHoldsLease<std::decay_t<decltype(s)>>) {
          return s.lease.slot();
        } else {
          return -1;
        }
      },
      state);
}

SlotLease Request::TakeLease() {
  return std::visit(
      [](auto& s) -> SlotLease {
        if constexpr (kHoldsLease<std::decay_t<decltype(s)>>) {
          return std::move(s.lease);
        } else {
          core::CheckFailed(__FILE__, __LINE__, "the state holds a slot");
        }
      },
      state);
}

}  // namespace deepinfer::sched
