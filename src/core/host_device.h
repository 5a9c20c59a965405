// SPDX-License-Identifier: Apache-2.0
// Marks small pure functions that device kernels use too, so that a format has one definition for all backends.
#pragma once

#ifdef __CUDACC__
#define DI_HOST_DEVICE __host__ __device__
#else
#define DI_HOST_DEVICE
#endif
