// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device/tensor_map.h"

#include <cuda_runtime_api.h>

namespace deepinfer::backend::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, asked for at run time: so nothing links against the driver.
Encode FindEncode(Context& context) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  context.Record(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
                 "looking for the driver's tensor maps");
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

}  // namespace

bool MakeMap(Context& context, const FloatMap& map, CUtensorMap* result) {
  static const Encode encode = FindEncode(context);
  if (encode == nullptr) {
    context.Record(cudaErrorNotSupported, "looking for the driver's tensor maps");
    return false;
  }
  const cuuint32_t box[] = {FloatMap::kLine, map.box[0], map.box[1]}, steps[] = {1, 1, 1};
  const CUresult error =
      encode(result, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, const_cast<float*>(map.data), map.sizes, map.strides_bytes, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS) context.Record(cudaErrorInvalidValue, "describing an array to the copy engine");
  return error == CUDA_SUCCESS;
}

}  // namespace deepinfer::backend::cuda
