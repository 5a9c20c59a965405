// SPDX-License-Identifier: Apache-2.0
#include "backend/api/backend.h"

#include <utility>

#include "core/check.h"

namespace deepinfer::backend {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Reset();
    backend_ = std::exchange(other.backend_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

void Buffer::Reset() {
  if (data_ != nullptr) backend_->Free(data_);
  backend_ = nullptr;
  data_ = nullptr;
  size_bytes_ = 0;
}

void Backend::BeginRecording() { DI_CHECK(!"BeginRecording: this backend cannot record"); }
Result<std::unique_ptr<Recording>> Backend::EndRecording() {
  return Error(Code::kUnimplemented, "the {} backend cannot record ops", name());
}
void Backend::Sample(const SampleParams&) { DI_CHECK(!"Sample: not implemented by this backend"); }
void Backend::SampleAdjusted(const SampleAdjustedParams&) { DI_CHECK(!"SampleAdjusted: not implemented by this backend"); }
void Backend::ReadLogits(const RowLogitsParams&) { DI_CHECK(!"ReadLogits: not implemented by this backend"); }
void Backend::HcSum(const HcSumParams&) { DI_CHECK(!"HcSum: not implemented by this backend"); }
void Backend::Add(const AddParams&) { DI_CHECK(!"Add: not implemented by this backend"); }

}  // namespace deepinfer::backend
