// SPDX-License-Identifier: Apache-2.0
#include "core/sigbus_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "core/check.h"

namespace deepinfer::core {

// A slot is free while `begin` is 0; `end` is written before `begin` and read after it.
struct SigbusGuard::Slot {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;
  std::atomic<bool> damaged = false;
};

namespace {

// Static storage without a destructor: the handler may run at any time, also while the process ends.
std::array<SigbusGuard::Slot, SigbusGuard::kSlotsMax> g_slots;
struct sigaction g_previous;
uintptr_t g_page_size;

// Passes the signal on to whoever handled it before.
void CallPrevious(int signal, siginfo_t* info, void* context) {
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal);
  } else {
    // Back to the default: the faulting instruction runs again and ends the process as it would have. (Ignoring a
    // synchronous SIGBUS would fault for ever.)
    struct sigaction fallback = {};
    fallback.sa_handler = SIG_DFL;
    sigaction(signal, &fallback, nullptr);
  }
}

// Puts zero pages over the rest of the mapping. All of it, not only the faulting page: a truncated file has nothing
// further on, its data are worthless anyway, and page by page a large file would exceed the kernel's limit of areas.
bool Patch(SigbusGuard::Slot& slot, uintptr_t fault, uintptr_t end) {
  const uintptr_t page = fault / g_page_size * g_page_size;
  slot.damaged.store(true, std::memory_order_release);
  return mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
              MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void OnSigbus(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto fault = reinterpret_cast<uintptr_t>(info->si_addr);
  for (SigbusGuard::Slot& slot : g_slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin == 0 || fault < begin) continue;
    const uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (fault < end && Patch(slot, fault, end)) {
      errno = saved_errno;
      return;
    }
  }
  CallPrevious(signal, info, context);
  errno = saved_errno;
}

void Install() {
  g_page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = OnSigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  DI_CHECK(sigaction(SIGBUS, &action, &g_previous) == 0);
}

std::mutex g_register_mutex;

}  // namespace

SigbusGuard::Slot* SigbusGuard::Register(void* address, size_t size) {
  const std::lock_guard lock(g_register_mutex);
  static const bool installed = (Install(), true);
  (void)installed;
  for (Slot& slot : g_slots) {
    if (slot.begin.load(std::memory_order_relaxed) != 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(address);
    slot.damaged.store(false, std::memory_order_relaxed);
    slot.end.store(begin + size, std::memory_order_release);
    slot.begin.store(begin, std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

void SigbusGuard::Unregister(Slot* slot) {
  const std::lock_guard lock(g_register_mutex);
  slot->begin.store(0, std::memory_order_release);
}

bool SigbusGuard::Damaged(const Slot* slot) { return slot->damaged.load(std::memory_order_acquire); }

}  // namespace deepinfer::core
