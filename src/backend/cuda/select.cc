// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/select.h"

namespace deepinfer::backend::cuda {

Result<std::string_view> ChooseVariant(const DeviceFacts& device) {
  if (device.driver < kDriverMin) {
    return Error(Code::kUnimplemented, "CUDA: the driver supports CUDA {}.{}; {}.{} or newer is needed: update the NVIDIA driver",
                 device.driver / 1000, device.driver % 1000 / 10, kDriverMin / 1000, kDriverMin % 1000 / 10);
  }
  if (device.major == 9 && device.minor == 0) return std::string_view("sm90a");
  // A part of the ops is no backend (docs/kernels/cuda.md).
  if (device.major == 10 && device.minor == 0) {
    return Error(Code::kUnimplemented, "CUDA: {} has compute capability 10.0 (sm_100a): matrix products and attention have no kernels "
                 "for it yet; 9.0 (H100, H200) has all", device.name);
  }
  return Error(Code::kUnimplemented, "CUDA: {} has compute capability {}.{}; the kernels are built for 9.0 (H100, H200)",
               device.name, device.major, device.minor);
}

}  // namespace deepinfer::backend::cuda
