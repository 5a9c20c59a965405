// SPDX-License-Identifier: Apache-2.0
#include "graph_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace deepinfer::bench {

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "{}: {}\n", what, cudaGetErrorString(error));
  std::exit(1);
}

double MedianSeconds(cudaGraphExec_t exec, cudaStream_t stream, int warmups, int runs) {
  cudaEvent_t begin = nullptr, end = nullptr;
  Must(cudaEventCreate(&begin), "an event");
  Must(cudaEventCreate(&end), "an event");
  std::vector<float> times;
  for (int i = 0; i < warmups + runs; ++i) {
    Must(cudaEventRecord(begin, stream), "an event");
    Must(cudaGraphLaunch(exec, stream), "launching a graph");
    Must(cudaEventRecord(end, stream), "an event");
    Must(cudaEventSynchronize(end), "running a graph");
    float milliseconds = 0;
    Must(cudaEventElapsedTime(&milliseconds, begin, end), "an event");
    if (i >= warmups) times.push_back(milliseconds);
  }
  Must(cudaEventDestroy(begin), "an event");
  Must(cudaEventDestroy(end), "an event");
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return static_cast<double>(times[static_cast<size_t>(runs / 2)]) * 1e-3;
}

}  // namespace deepinfer::bench
