// SPDX-License-Identifier: Apache-2.0
// Any bytes as a whole safetensors file: an error with a message, or tensors that cover the data exactly, each with the
// bytes that its type and shape need. Seeds: small files written by run_short.sh.
#include <span>

#include "checkpoint/safetensors.h"

namespace deepinfer::checkpoint {
namespace {

void Run(std::span<const std::byte> file) {
  const Result<SafetensorsHeader> header = ParseSafetensorsHeader(file, file.size());
  if (!header.ok()) {
    DI_CHECK(!header.status().message().empty());
    return;
  }
  uint64_t covered = 0;
  unsigned sum = 0;
  for (const TensorInfo& info : header->tensors) {
    DI_CHECK(info.begin == covered && info.end >= info.begin);
    const TensorView view = {info.dtype, info.shape, file.data() + header->data_begin + info.begin};
    DI_CHECK(view.size_bytes() == info.end - info.begin);
    for (const std::byte byte : view.bytes()) sum += std::to_integer<unsigned>(byte);
    covered = info.end;
  }
  DI_CHECK(header->data_begin + covered == file.size());
  asm volatile("" : : "r"(sum));  // so that the bytes are really read
}

}  // namespace
}  // namespace deepinfer::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deepinfer::checkpoint::Run(std::as_bytes(std::span(data, size)));
  return 0;
}
